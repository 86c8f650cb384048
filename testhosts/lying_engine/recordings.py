"""What the real engine said in its recorded starts (tests/unit/corpus), as a script that another start can follow.

A recording is one start of one release. Kept are its lines in their order, with what depends on the start as ⟨names⟩;
who says them; and the fields of `server_args=` with the values that nobody declared.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[2] / "tests/unit/corpus"
READY = "The server is fired up and ready to roll!"
CHAT = "Using default HuggingFace chat template"  # the launcher's last line before its workers speak
STARTED = ("Engine startup timings", "INFO:     Started server process")  # and its first after them
STOP = "SIGTERM received."

# What the recorded runs declared: here as the engine takes it where nobody declares it.
UNDECLARED = {
    "model_path": None, "tokenizer_path": None, "served_model_name": None, "host": "127.0.0.1", "port": 30000,
    "device": None, "attention_backend": None, "mem_fraction_static": 0.8, "max_total_tokens": None,
    "max_running_requests": None, "random_seed": None, "disable_cuda_graph": False, "skip_server_warmup": False,
    "disable_overlap_schedule": False, "disable_piecewise_cuda_graph": False, "sleep_on_idle": False,
    "speculative_algorithm": None, "speculative_draft_model_path": None, "speculative_draft_model_revision": None,
    "speculative_num_steps": None, "speculative_eagle_topk": None, "speculative_num_draft_tokens": None,
    "speculative_draft_window_size": None, "speculative_dflash_draft_window_size": None,
    "speculative_draft_attention_backend": None,
}  # fmt: skip

_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\] ")
_MASKS = (
    ("/srv/models/tiny-qwen3", "⟨model⟩"),
    ("/srv/models/tiny-dflash-swa", "⟨draft⟩"),
    (r"type=Qwen3ForCausalLM", "type=⟨model_class⟩"),
    (r"(type|model)=DFlashDraftModel", r"\1=⟨draft_class⟩"),
    (r"server process \[\d+\]", "server process [⟨pid⟩]"),
    (r"pid=\d+", "pid=⟨pid⟩"),
    (r"port=\d+", "port=⟨port⟩"),
    (r"(running on http://)\S+", r"\1⟨address⟩"),
    (r"#tokens: \d+", "#tokens: ⟨tokens⟩"),
    (r"max_num_reqs=\d+", "max_num_reqs=⟨granted⟩"),
    (r"attention_backend=triton, (model=.*) block_size=.*", r"attention_backend=⟨draft_backend⟩, \1 block_size=⟨block⟩, "
     "draft_window_size=⟨window⟩, compact_cache=⟨compact⟩"),
    (r"max_total_num_tokens=\d+(.*)max_running_requests=\d+, context_len=\d+, available_cpu_mem",
     r"max_total_num_tokens=⟨tokens⟩\1max_running_requests=⟨granted⟩, context_len=⟨context⟩, available_⟨device⟩_mem"),
)  # fmt: skip


def releases() -> list[str]:
    """The releases that were recorded, oldest first."""
    found = {path.name.split("-")[0] for path in CORPUS.glob("*-*window.log")}
    return sorted(found, key=lambda release: [*map(int, release.split("."))])


def log_of(release: str) -> Path:
    """The recording to follow: without a warm-up, which is the engine's own doing."""
    return next(path for kind in ("nowindow", "window") if (path := CORPUS / f"{release}-{kind}.log").exists())


def read(release: str) -> dict:
    """`fields`: [[name, default]]; `launcher`, `workers`, `serving`, `stopping`: [[stamped, text, of the drafter]]."""
    parts = {"launcher": [], "workers": [], "serving": [], "stopping": []}
    part, heads, fields, last = "launcher", set(), None, ""
    for line in log_of(release).read_text().splitlines():
        stamp = _STAMP.match(line)
        text = line[stamp.end() :] if stamp else line
        if stamp:
            last = text
        elif not _ours(text, last, parts[part] if part else []):
            continue
        if text.startswith(STOP):
            part = "stopping"
        elif part == "workers" and text.startswith(STARTED):
            part = "serving"
        if part is None:
            continue
        if text.startswith("server_args="):
            fields = _fields(text.removeprefix("server_args="))
            text = "server_args="
        masked = _masked(text)
        parts[part].append([bool(stamp), masked, part == "workers" and _of_the_drafter(masked, bool(stamp), heads)])
        if text.startswith(CHAT):
            part = "workers"
        elif part == "serving" and _ends_the_start(parts["serving"]):
            part = None
    return {"fields": fields, **parts}


def _ours(text, stamped, before):
    """Whether to keep a line without a time stamp. `stamped`: the last line with one; `before`: what was kept until then.

    Kept are progress, the engine's own advice and its traceback; not what the recording machine's packages complained of.
    """
    if stamped.startswith("post-warmup freeze_gc failed"):
        return bool(text.strip())
    if text.startswith(("Multi-thread loading", "  Example: sglang serve")) or "/launch_server.py:" in text:
        return True
    return text.startswith("  warnings.warn(") and before[-1:] and before[-1][1].startswith("  Example: sglang serve")


def _ends_the_start(serving):
    """Requests follow. Ready line and Uvicorn come in either order."""
    texts = [line[1] for line in serving]
    return READY in texts and any("Uvicorn running" in text for text in texts)


def _masked(text):
    for pattern, name in _MASKS:
        text = re.sub(pattern, name, text)
    return text


def _of_the_drafter(text, stamped, seen):
    """A worker loads twice, target and drafter: what it says for the second time is of the drafter."""
    if not stamped:
        return seen >= {"Load weight begin", "drafter"}
    head = re.split(r"[.\d=:]", text)[0]
    is_again = head in seen or "DFLASH" in text or "⟨draft⟩" in text or text.startswith("Overriding draft")
    seen.add(head)
    if head == "Load weight begin" and is_again:
        seen.add("drafter")
    elif head == "Load weight end":
        seen.discard("drafter")
    return is_again


def _fields(text):
    """The fields of `server_args=` in their order; what is no literal is {"verbatim": text}."""
    tree = ast.parse(text, mode="eval").body
    if isinstance(tree, ast.Call):
        pairs = [(keyword.arg, keyword.value) for keyword in tree.keywords]
    else:
        pairs = [(key.value, value) for key, value in zip(tree.keys, tree.values, strict=True)]
    return [[name, UNDECLARED.get(name, _literal(text, value))] for name, value in pairs]


def _literal(text, node):
    try:
        return ast.literal_eval(node)
    except ValueError:
        return {"verbatim": ast.get_source_segment(text, node)}
