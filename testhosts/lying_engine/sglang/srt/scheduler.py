"""Part of a stand-in for SGLang: a worker, which says that it loads and what it runs, and the detokenizer."""

import ctypes
import os
import signal
import time

from sglang.recording import FORK, SCRIPT, filled, since

from .mouth import Mouth
from .server_args import model_config

# Said by rank 0 of a replica alone (0.5.11-tp2-window).
RANK_0 = (
    "Using KV cache dtype",
    "Initialized D",
    "DFLASH draft runner ready",
    "max_total_num_tokens=",
    "Tree cache",
    "Init Unified",
)
ON_A_CPU = (
    "init_cpu_threads_env", "init_threads_binding", "Cannot detect CUDA", "Ignore import error", "tilelang not installed",
)  # fmt: skip
POOL = 131072  # tokens that fit where nobody limits them
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
SET_NAME = 15


def title(name):
    """The name of this process, and that it dies with its parent. The real one writes its whole command line."""
    libc = ctypes.CDLL(None)
    libc.prctl(SET_NAME, name.encode(), 0, 0, 0)
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def run_detokenizer(_launcher):
    title("sglang::detokenizer")
    while True:
        signal.pause()


def run_scheduler(run, scenario, dp, tp, launcher, done):
    """One rank. `run`: field → value. `done`: a connection; gets what this rank was granted."""
    tags = (f" DP{dp}" if run["dp_size"] > 1 else "") + (f" TP{tp}" if run["tp_size"] > 1 else "")
    title("sglang::scheduler" + tags.replace(" ", "_"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rank = dp * run["tp_size"] + tp
    mouth = Mouth(scenario, tags, rank, launcher)
    facts = granted(run)
    drafts = run["speculative_algorithm"] not in (None, "NGRAM")
    blocks = run["speculative_algorithm"] in ("DFLASH", "DDTREE")
    loaded = False
    for stamped, text, of_the_drafter in SCRIPT["workers"]:
        if (of_the_drafter and not drafts) or (tp and text.startswith(RANK_0)):
            continue
        if run["device"] != "cpu" and text.startswith(ON_A_CPU):
            continue
        if ("DFLASH" in text or text.startswith("Overriding draft")) and not blocks:
            continue
        if text.startswith("KV Cache is allocated") and not of_the_drafter and facts["reduced"] and since(0, 5, 14):
            mouth.say(
                f"max_running_requests was reduced from the requested {run['max_running_requests']} to "
                f"{facts['granted']} (per dp worker) due to the available KV cache capacity."
            )
        if text.startswith("max_total_num_tokens=") and facts["tokens"] < facts["context"] and since(0, 5, 23):
            mouth.say(
                f"KV pool holds {facts['tokens']} tokens, fewer than --context-length {facts['context']}. One full-length "
                "request cannot fit, so long requests will be refused or truncated at serving time. Lower "
                "--context-length, raise --mem-fraction-static, or free memory taken before the pool is sized."
            )
        mouth.say(filled(text, facts), stamped)
        if text.startswith("Load weight begin") and not loaded:
            loaded = True
            load(mouth, scenario.get("load_seconds", 0))
        if text.startswith("DFLASH draft runner ready") and run["speculative_algorithm"] == "DDTREE":
            mouth.say(tree(run))
    done.send(facts)
    while True:
        signal.pause()


def load(mouth, seconds):
    """Takes and gives back memory, and draws a bar that nothing ends until it is full."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        mouth.memory.append(bytearray(os.urandom(1 << 20) * 2))
        if len(mouth.memory) > 100:
            mouth.memory.clear()
        time.sleep(min(1, left))
    mouth.memory.clear()


def tree(run):
    budget = run["speculative_ddtree_budget"]
    if FORK == "house":
        return (
            f"Initialized DDTREE worker. budget={budget}, topk={run['speculative_ddtree_topk']}, "
            f"window={run['speculative_ddtree_window']}"
        )
    return (
        f"Initialized DDTree worker. block_size={run['speculative_num_draft_tokens']}, tree_budget={budget}, "
        f"max_tree_nodes={budget + 1}"
    )


def granted(run):
    """What a replica gets of what was asked for (0.5.11 … 0.5.23; see operators' notes in the contract)."""
    target = model_config(run["model_path"])
    draft = run["speculative_draft_model_path"]
    drafter = model_config(draft) if draft else {}
    context = run["context_length"] or target["max_position_embeddings"]
    tokens = run["max_total_tokens"] or POOL
    # Up to 0.5.13 between 2048 and 4096 whatever the pool; then half of the pool's tokens (maxreq5000 of 0.5.11, .17, .23).
    most = tokens // 2 if since(0, 5, 14) else min(max(tokens * 512 // context, 2048), 4096)
    asked = run["max_running_requests"] or most
    window = run.get("speculative_draft_window_size", run.get("speculative_dflash_draft_window_size"))
    return {
        "model": run["model_path"],
        "draft": draft,
        "model_class": target["architectures"][0],
        "draft_class": drafter.get("architectures", target["architectures"])[0],
        "tokens": tokens,
        "context": context,
        "granted": min(asked, most),
        "reduced": asked > most,
        "device": "cpu" if run["device"] == "cpu" else "gpu",
        "draft_backend": run["speculative_draft_attention_backend"] or run["attention_backend"],
        "block": run["speculative_num_draft_tokens"],
        "window": window,
        "compact": window is not None,
    }
