"""The stand-in is held against the real engine: its source, its starts, its refusals and its end, as the corpus has them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.sglang_proof import contract, facts, resolver
from ansible.module_utils.sglang_proof.startup_log import READY, parse_echo, read_prefix

from testhosts.lying_engine import builds, recordings

ROOT = Path(__file__).resolve().parents[2]
CORPUS = recordings.CORPUS
# Starts of the real engine that no build was made from, and what they were asked where the echo no longer shows it.
STARTS = {
    "0.5.11-window": (),
    "0.5.11-tp2-window": (),
    "0.5.11-maxreq5000": (),
    "0.5.13-window-warmup-and-generate": (),
    "0.5.14-window": (),
    "0.5.17-maxreq5000": (),
    "0.5.17-overrides-eagletopk4-steps3-mixedchunk": ("speculative_num_steps=3", "speculative_eagle_topk=4"),
    "0.5.18-window": (),
    "0.5.23-window": (),
    "0.5.23-dp2-window": (),
    "0.5.23-context-larger-than-pool": (),
    "0.5.23-standalone-steps3-topk1-draft9": ("speculative_num_draft_tokens=9", "max_running_requests="),
}
# What the machine decides, and what no argument of the project's contract is about.
OF_THE_MACHINE = {"random_seed", "port", "model_path", "tokenizer_path", "served_model_name", "speculative_draft_model_path"}
SIZES = re.compile(r"chunked_prefill_size|cuda_graph|max_bs|disable_custom_all_reduce|attn_|moe_dp|disable_piecewise")
# Complaints of the recording machine's packages, and requests that somebody sent.
ELSEWHERE = re.compile(
    r"Ignore import error|Tokenizer|Loading tokenizer|Failed to load generation|TP size|Setup Custom allreduce"
    r"|Using fallback|post-warmup|OpenAI Responses|Registered linear|tilelang|SPECULATIVE_MOE|init_threads_binding"
    r"|INFO:     \d|Prefill batch|DFLASH verify|Endpoint|Non-overlap|SGLANG_CPU_OMP|GPU #|total number of ranks"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install a build, once: the directory to import from, beside its models."""
    root = tmp_path_factory.mktemp("lying")
    for name, config in (
        ("target", {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 2048}),
        ("drafter", {"architectures": ["DFlashDraftModel"], "max_position_embeddings": 2048, "block_size": 8}),
    ):
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(config))

    def install(build):
        directory = root / build
        if not directory.exists():
            directory.mkdir()
            zipfile.ZipFile(builds.build_wheel(build, directory)).extractall(directory)
        return directory

    return install


def engine(directory, *argv, **environment):
    """Start an installed build as its unit would."""
    return subprocess.Popen(
        [sys.executable, "-m", "sglang.launch_server", *argv],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(directory), **environment},
        cwd=directory, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def read_until(process, words):
    """The lines until one has these words."""
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if words in line:
            return lines
    raise AssertionError("\n".join(["the engine ended without " + words, *lines]))


def ended(process, how=signal.SIGTERM):
    """End it; its status, and the lines that it still said."""
    process.send_signal(how)
    rest = process.stderr.read().splitlines()
    return process.wait(), rest


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def echo_in(lines):
    body = next(body for body in (read_prefix(line)[1] for line in lines) if body.startswith("server_args="))
    return parse_echo(body.removeprefix("server_args="))


def argv_of(name, directory, port):
    """The arguments that the recorded start was given, for models that lie here."""
    values, _ = echo_in((CORPUS / f"{name}.log").read_text().splitlines())
    values.update(dict(pair.split("=") for pair in STARTS[name]))
    values.update(enable_mixed_chunk=values["enable_mixed_chunk"] or "mixedchunk" in name, port=port)
    models = {"model_path": "target", "speculative_draft_model_path": "drafter"}
    if "standalone" in name:
        models["speculative_draft_model_path"] = "target"
    declared = {*recordings.UNDECLARED, "tp_size", "dp_size", "enable_mixed_chunk", "context_length"}
    for field in sorted(declared - {"tokenizer_path", "served_model_name", "random_seed"}):
        value = values.get(field)
        if field in models and value:
            value = directory.parent / models[field]
        if value not in (None, False, ""):
            yield "--" + field.replace("_", "-")
            yield from () if value is True else (str(value),)


def said(lines):
    """Who said what until the engine was ready, values masked: {speaker: [line]}."""
    found = {}
    for line in lines:
        speaker, body, stamped = read_prefix(line)
        if not stamped or ELSEWHERE.search(body):
            continue
        body = "server_args=" if body.startswith("server_args=") else body
        body = re.sub(r"http://\S+|/\S+", "PATH", re.sub(r"-?\d+(\.\d+)?", "N", body))
        found.setdefault(str(speaker), []).append(body)
        if body == READY:
            break
    return found


def in_either_order(launcher):
    """Ready line and Uvicorn: a race in some releases, decided by a warm-up (startup-log notes of the corpus)."""
    last = [line for line in launcher if line == READY or "Uvicorn running" in line or "startup complete" in line]
    return [line for line in launcher if line not in last]


@pytest.mark.parametrize("name", STARTS)
def test_an_honest_start_says_what_the_real_engine_said(installed, name):
    directory = installed(name.split("-")[0])
    process = engine(directory, *argv_of(name, directory, free_port()))
    lines = read_until(process, READY)
    status, _ = ended(process)
    recorded = (CORPUS / f"{name}.log").read_text().splitlines()

    ours, theirs = said(lines), said(recorded)
    assert ours.keys() == theirs.keys()
    for speaker in theirs:
        assert in_either_order(ours[speaker]) == in_either_order(theirs[speaker]), speaker

    (values, unreadable), (real, real_unreadable) = echo_in(lines), echo_in(recorded)
    assert [*values] == [*real] and unreadable == real_unreadable
    decided = {key for key in real if key not in OF_THE_MACHINE and not SIZES.search(key)}
    assert {key: values[key] for key in decided} == {key: real[key] for key in decided}
    assert status == (0 if directory.name in ("0.5.19", "0.5.23") else -signal.SIGKILL)


PROVING = ("Initialized DFLASH", "max_total_num_tokens=", "max_running_requests was reduced")
SAME_VALUES = ["0.5.11-maxreq5000", "0.5.17-maxreq5000", "0.5.23-dp2-window", "0.5.23-context-larger-than-pool"]


@pytest.mark.parametrize("name", SAME_VALUES)
def test_the_lines_that_prove_say_the_same_values(installed, name):
    directory = installed(name.split("-")[0])
    process = engine(directory, *argv_of(name, directory, free_port()))
    lines = read_until(process, READY)
    ended(process)

    def proofs(lines):
        found = [(str(speaker), body) for speaker, body, _ in map(read_prefix, lines) if body.startswith(PROVING)]
        # Sizes of the machine, and when it was.
        return sorted((speaker, re.sub(r"chunked_prefill_size=\d+|available_.*", "", body)) for speaker, body in found)

    assert proofs(lines) == proofs((CORPUS / f"{name}.log").read_text().splitlines())


@pytest.mark.parametrize(
    "name, argv, status",
    [
        ("0.5.11-fail-window-lt-block", ("--speculative-dflash-draft-window-size", "4"), 1),
        ("0.5.23-fail-window-lt-block", ("--speculative-draft-window-size", "4"), 1),
        ("0.5.23-fail-unknown-algorithm", ("--speculative-algorithm", "DFLASHX"), 1),
        ("0.5.11-fail-badflag", ("--no-such-flag", "1"), 2),
        ("0.5.23-fail-badflag", ("--no-such-flag", "1"), 2),
        ("0.5.11-fail-window-wrong-flag-name", ("--speculative-draft-window-size", "64"), 2),
    ],
)
def test_what_the_real_engine_refuses_is_refused_in_its_words(installed, name, argv, status):
    directory = installed(name.split("-")[0])
    models = ("--model-path", directory.parent / "target", "--speculative-draft-model-path", directory.parent / "drafter")
    process = engine(directory, *models, "--speculative-algorithm", "DFLASH", "--device", "cpu", *argv)
    _, errors = process.communicate()
    last = (CORPUS / f"{name}.log").read_text().strip().splitlines()[-1]
    assert (process.returncode, errors.strip().splitlines()[-1]) == (status, last)


@pytest.mark.parametrize("build", builds.names())
def test_its_source_shows_the_options_and_lines_of_the_release(installed, build):
    read = facts.read_engine(installed(build) / "sglang", next(installed(build).glob("*.dist-info")))
    data = json.loads(builds.DATA.read_text())
    release = build.split("-")[0]
    options = {(o.flag, o.field, o.action, o.values) for o in read.options}
    assert read.release == release
    assert {tuple(row) for row in builds.of(release, data["options"])} <= options
    assert {text for (text,) in builds.of(release, data["templates"])} <= set(read.templates)


def test_the_forks_are_recognised_by_their_options(installed):
    read = facts.read_engine(installed("0.5.23-ddtree") / "sglang", release="0.5.23")
    assert contract.family_of(read).name == "ddtree"
    example = yaml.safe_load(re.search(r"```yaml\n(.*?)```", (ROOT / "docs/forks.md").read_text(), re.DOTALL)[1])
    read = facts.read_engine(installed("0.5.13-house") / "sglang", release="0.5.13")
    assert all(read.option(option) for option in example["options"])
    lines = [witness["line"] for setting in example["settings"].values() for witness in setting.get("witnesses", ())]
    assert lines and all(map(read.has_template, lines))


@pytest.mark.parametrize("release", recordings.releases())
def test_the_dry_hop_is_answered_as_by_the_real_resolver(installed, release):
    directory = installed(release)
    window = "--speculative-dflash-draft-window-size" if release == "0.5.11" else "--speculative-draft-window-size"
    models = [
        "--model-path",
        str(directory.parent / "target"),
        "--speculative-draft-model-path",
        str(directory.parent / "drafter"),
    ]

    def asked(*argv):
        done = subprocess.run(
            resolver.dry_argv(sys.executable), input=resolver.script([*models, "--speculative-algorithm", "DFLASH", *argv]),
            env={"PYTHONPATH": str(directory)}, cwd="/", text=True, capture_output=True,
        )  # fmt: skip
        return resolver.parse_answer(done.stdout, done.stderr, done.returncode)

    answer = asked(window, "2048", "--speculative-num-steps", "3")
    field = window.lstrip("-").replace("-", "_")
    assert answer.resolved and answer.resolved[field] == 2048
    assert answer.resolved["speculative_num_steps"] == 1 and answer.resolved["speculative_num_draft_tokens"] == 8
    assert "window_size=4, block_size=8" in asked(window, "4").refused
    assert asked("--config=other.yaml").resolved[field] is None


def ask(port, path, body=None, key=None):
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers), timeout=10
    ) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith(("{", "[")) else text


def test_its_api_answers_in_the_form_of_the_real_one(installed, tmp_path):
    directory, port = installed("0.5.23"), free_port()
    key = tmp_path / "key.yaml"
    key.write_text('api-key: "sk-1"\n')
    argv = [
        "--model-path",
        directory.parent / "target",
        "--port",
        str(port),
        "--enable-metrics",
        "--served-model-name",
        "tiny",
    ]
    argv += ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", directory.parent / "drafter"]
    process = engine(directory, *argv, "--config", str(key))
    read_until(process, READY)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(port, "/model_info")
    real = json.loads((CORPUS / "server_info.json").read_text())["0.5.23-window"]
    info = ask(port, "/server_info", key="sk-1")
    assert real.keys() <= info.keys() and real["internal_states"][0].keys() <= info["internal_states"][0].keys()
    assert ask(port, "/v1/models", key="sk-1")["data"][0]["id"] == "tiny"
    assert ask(port, "/health") == "" and "sglang:spec_accept_length" in ask(port, "/metrics")
    prompt = {"text": "The quick brown fox", "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
    answers = [ask(port, "/generate", prompt, "sk-1") for _ in range(2)]
    assert answers[0]["text"] == answers[1]["text"] and answers[0]["meta_info"]["completion_tokens"] == 8
    messages = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    assert ask(port, "/v1/chat/completions", messages, "sk-1")["choices"][0]["message"]["content"]
    events = ask(port, "/v1/chat/completions", {**messages, "stream": True}, "sk-1").split("\n\n")
    assert len([e for e in events if '"delta"' in e]) == 4 and "data: [DONE]" in events
    ask(port, "/update_weights_from_disk", {"model_path": "/srv/models/other"}, "sk-1")
    assert ask(port, "/model_info", key="sk-1")["model_path"] == "/srv/models/other"
    assert ended(process)[0] == 0


def test_it_dies_with_its_worker_as_the_real_one_does(installed):
    directory, port = installed("0.5.23"), free_port()
    process = engine(directory, "--model-path", directory.parent / "target", "--port", str(port))
    read_until(process, READY)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    worker = next(pid for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith("sglang::sched"))
    os.kill(int(worker), signal.SIGKILL)
    rest = process.stderr.read()
    assert process.wait() == -signal.SIGKILL
    assert f"(pid={worker}) crashed with exit code -9. Triggering SIGQUIT for cleanup..." in rest
