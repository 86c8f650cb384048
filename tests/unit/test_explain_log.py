"""`./explain-log` as a person types it: what a careful reader tells from a saved log, and what it never takes for proof."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from ansible.module_utils.sglang_proof import contract, explain
from hypothesis import example, given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).with_name("corpus")


LOADER = SourceFileLoader("explain_log", str(ROOT / "explain-log"))
COMMAND = module_from_spec(spec_from_loader(LOADER.name, LOADER))
LOADER.exec_module(COMMAND)


def run(*arguments, log=b"", check=None):
    """The command with these arguments and standard input, without the cost of a process: (stdout, stderr)."""
    streams = {name: TextIOWrapper(BytesIO(data)) for name, data in (("stdin", log), ("stdout", b""), ("stderr", b""))}
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        status = COMMAND.main([str(argument) for argument in arguments])
    for stream in (streams["stdout"], streams["stderr"]):
        stream.flush()
    out, err = (streams[name].buffer.getvalue().decode() for name in ("stdout", "stderr"))
    assert "Traceback" not in err
    assert check is None or status == check, (status, out, err)
    return out, err


def explained(log, *declare, check=None):
    """The starts that `explain-log --json` tells of a file of the corpus or of bytes."""
    options = ["--json", *(f"--declare={text}" for text in declare)]
    given_file = isinstance(log, str)
    out, _ = run(*options, CORPUS / f"{log}.log" if given_file else "-", log=b"" if given_file else log, check=check)
    return json.loads(out)["starts"]


# Real runs, one start each. Values were read off by eye.

# log: release, algorithm echoed, window, block size, requests asked and granted, tokens of the pool; "-" is not stated
SERVED = {
    "0.5.11-block16-drafttokens8": ("0.5.11", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.11-maxreq5000": ("0.5.11", "DFLASH", None, 8, 5000, 2048, 4096),
    "0.5.11-nowindow": ("0.5.11", "DFLASH", None, 8, 4, 4, 4096),
    "0.5.11-overrides-eagletopk4-steps3-mixedchunk": ("0.5.11", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.11-plain": ("0.5.11", None, "-", "-", None, 2048, 4096),
    "0.5.11-standalone-auto": ("0.5.11", "STANDALONE", "-", "-", 48, 48, 4096),
    "0.5.11-standalone-steps3-topk1-draft9": ("0.5.11", "STANDALONE", "-", "-", 48, 48, 4096),
    "0.5.11-tp2-window": ("0.5.11", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.11-window": ("0.5.11", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.11-window-generate-decodelog1": ("0.5.11", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.11-window-logms": ("0.5.11", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.12-window": ("0.5.12", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.13-nowindow": ("0.5.13", "DFLASH", None, 8, 4, 4, 4096),
    "0.5.13-window-generate-decodelog1": ("0.5.13", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.13-window-warmup-and-generate": ("0.5.13", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.14-nowindow": ("0.5.14", "DFLASH", None, 8, 4, 4, 4096),
    "0.5.14-window": ("0.5.14", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.15-window": ("0.5.15", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.16-window": ("0.5.16", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.17-maxreq5000": ("0.5.17", "DFLASH", None, 8, 5000, 2048, 4096),
    "0.5.17-nowindow": ("0.5.17", "DFLASH", None, 8, 4, 4, 4096),
    "0.5.17-overrides-eagletopk4-steps3-mixedchunk": ("0.5.17", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.18-nowindow": ("0.5.18", "DFLASH", None, 8, 4, 4, 4096),
    "0.5.18-window": ("0.5.18", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.19-nowindow": ("0.5.19", "DFLASH", None, 8, 4, 4, 4096),
    "0.5.20-nowindow": ("0.5.20", "DFLASH", None, 8, 4, 4, 4096),
    "0.5.20-overrides-eagletopk4-steps3-mixedchunk": ("0.5.20", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.21-window": ("0.5.21", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.22-nowindow": ("0.5.22", "DFLASH", None, 8, 4, 4, 4096),
    "0.5.23-context-larger-than-pool": ("0.5.23", "DFLASH", 64, 8, 4, 4, 1024),
    "0.5.23-dp2-window": ("0.5.23", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.23-eagle3-steps3-topk1-draft9": ("0.5.23", "EAGLE3", "-", "-", 4, 4, 4096),
    "0.5.23-maxreq5000": ("0.5.23", "DFLASH", None, 8, 5000, 2048, 4096),
    "0.5.23-overrides-eagletopk4-steps3-mixedchunk": ("0.5.23", "DFLASH", 64, 8, 4, 4, 4096),
    "0.5.23-standalone-auto": ("0.5.23", "STANDALONE", "-", "-", 48, 48, 4096),
    "0.5.23-standalone-steps3-topk1-draft9": ("0.5.23", "STANDALONE", "-", "-", 48, 48, 4096),
    "0.5.23-unset-drafttokens-unset-maxreq": ("0.5.23", "DFLASH", 64, 16, 48, 48, 4096),
    "0.5.23-window": ("0.5.23", "DFLASH", 64, 8, 4, 4, 4096),
}


@pytest.mark.parametrize("name", SERVED)
def test_a_start_that_served(name):
    release, algorithm, window, block, asked, granted, tokens = SERVED[name]
    (start,) = explained(name, check=0)
    assert (start["release"], start["outcome"], start["cause"]) == (release, "ready", None)
    echoed, effective = start["echoed"], start["effective"]
    assert (echoed["speculative_algorithm"], echoed["max_running_requests"]) == (algorithm, asked)
    assert (effective["max_running_requests"], effective["max_total_num_tokens"]) == (granted, tokens)
    assert effective.get("draft_window_size", "-") == window
    assert effective.get("block_size", "-") == block
    assert effective.get("compact_cache", "-") == (window if window == "-" else window is not None)
    assert (start["unreadable"], start["dropped"], start["verdicts"]) == ([], [], [])


# log: release (None: it never printed server_args=), kind of the cause, words of it
FAILED = {
    "0.5.11-fail-badflag": (None, "bad_flag", "unrecognized arguments: --no-such-flag 1"),
    "0.5.11-fail-crash-during-warmup-verify": ("0.5.11", "exception", "AttributeError: 'NoneType' object"),
    "0.5.11-fail-eagle3-nooverlap-needs-cuda": ("0.5.11", "exception", "Torch not compiled with CUDA enabled"),
    "0.5.11-fail-eagle3-overlap-needs-cuda": ("0.5.11", "exception", "Torch not compiled with CUDA enabled"),
    "0.5.11-fail-missing-draft-dir": ("0.5.11", "missing_model", "'/srv/models/absent-draft'"),
    "0.5.11-fail-missing-model-dir": (None, "missing_model", "'/srv/models/absent'"),
    "0.5.11-fail-port-in-use": ("0.5.11", "port", "('127.0.0.1', 30111): address already in use"),
    "0.5.11-fail-scheduler-sigkilled-like-oom": ("0.5.11", "exited", "crashed with exit code -9"),
    "0.5.11-fail-tp2-omp-bind": ("0.5.11", "exception", "SGLANG_CPU_OMP_THREADS_BIND is not set"),
    "0.5.11-fail-window-lt-block": (None, "refused", "window_size=4, block_size=8."),
    "0.5.11-fail-window-wrong-flag-name": (None, "bad_flag", "arguments: --speculative-draft-window-size 64"),
    "0.5.15-fail-crash-after-uvicorn-during-warmup": ("0.5.15", "exception", "no attribute 'view'"),
    "0.5.19-fail-badflag": (None, "bad_flag", "unrecognized arguments: --no-such-flag 1"),
    "0.5.19-fail-deprecated-window-flag-accepted-then-no-gpu": ("0.5.19", "exception", "'_cuda_setDevice'"),
    "0.5.19-fail-missing-draft-dir": (None, "missing_model", "'/srv/models/absent-draft'"),
    "0.5.19-fail-missing-model-dir": (None, "missing_model", "'/srv/models/absent'"),
    "0.5.19-fail-no-gpu-no-device": (None, "exception", "RuntimeError: No accelerator (CUDA"),
    "0.5.23-fail-badflag": (None, "bad_flag", "unrecognized arguments: --no-such-flag 1"),
    "0.5.23-fail-crash-after-uvicorn-during-warmup": ("0.5.23", "exception", "sgl_kernel stub called"),
    "0.5.23-fail-missing-model-dir": (None, "missing_model", "'/srv/models/absent'"),
    "0.5.23-fail-no-gpu-no-device": (None, "exception", "RuntimeError: No accelerator (CUDA"),
    "0.5.23-fail-scheduler-sigkilled-like-oom": ("0.5.23", "exited", "crashed with exit code -9"),
    "0.5.23-fail-tp2-omp-bind": ("0.5.23", "exception", "SGLANG_CPU_OMP_THREADS_BIND is not set"),
    "0.5.23-fail-unknown-algorithm": (None, "refused", "Unknown speculative algorithm name: DFLASHX"),
    "0.5.23-fail-window-lt-block": (None, "refused", "window_size=4, block_size=8."),
    "0.5.23-parse-dflash-cpu": (None, "refused", "not supported by SRTPlatform on device 'cpu'"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_start_that_failed(name):
    release, kind, words = FAILED[name]
    (start,) = explained(name, check=2)
    assert (start["release"], start["outcome"], start["cause_kind"]) == (release, "failed", kind)
    assert words in start["cause"]
    assert start["cause_read_in"].startswith("line ")


@pytest.mark.parametrize("name", ["0.5.11-parse-dflash-cuda", "0.5.23-window-loglevel-warning"])
def test_a_start_that_says_nothing_is_incomplete_and_proves_nothing(name):
    (start,) = explained(name, "window=64", check=2)
    assert (start["release"], start["outcome"], start["echoed"], start["effective"]) == (None, "incomplete", {}, {})
    assert {v["verdict"] for v in start["verdicts"]} == {"missing"}
    assert explained(name, check=0)


def test_every_log_of_the_corpus_is_told():
    told = {*SERVED, *FAILED, "0.5.11-parse-dflash-cuda", "0.5.23-window-loglevel-warning"}
    assert told == {path.stem for path in CORPUS.glob("*.log")}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("0.5.11-block16-drafttokens8", ["using speculative_num_draft_tokens=8 but draft config block_size=16"]),
        ("0.5.11-maxreq5000", []),  # granted 2048 of 5000 without a word
        ("0.5.17-maxreq5000", ["reduced from the requested 5000 to 2048"]),
        ("0.5.23-eagle3-steps3-topk1-draft9", ["adjusted to speculative_num_steps + 1"]),
        ("0.5.23-context-larger-than-pool", ["KV pool holds 1024 tokens"]),
        (
            "0.5.23-overrides-eagletopk4-steps3-mixedchunk",
            ["overriding speculative_num_steps=3 to 1", "overriding speculative_eagle_topk=4 to 1"],
        ),
    ],
)
def test_what_the_engine_says_it_made_something_else_of(name, words):
    said = [line for line in explained(name)[0]["overrides"] if "Overlap" not in line and "attention backend" not in line]
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said, strict=True))


# What was declared


@pytest.mark.parametrize(
    ("name", "declare", "status"),
    [
        ("0.5.11-window", ["window=64", "block_size=8", "spec_algorithm=DFLASH"], 0),
        ("0.5.11-window", ["window=2048"], 2),
        ("0.5.11-window", ["window=none"], 2),
        ("0.5.11-window", ["window=unset"], 0),
        ("0.5.11-nowindow", ["window=none"], 0),
        ("0.5.11-nowindow", ["window=64"], 2),
        ("0.5.23-window", ["window=64", "context_length=2048"], 2),  # not echoed as 2048: it was not asked for
        ("0.5.23-dp2-window", ["window=64", "dp=2", "max_running_requests=4"], 0),
        ("0.5.23-dp2-window", ["window=64", "dp=3"], 2),
        ("0.5.11-maxreq5000", ["max_running_requests=5000"], 2),  # asked is not granted
        ("0.5.23-maxreq5000", ["max_running_requests=5000"], 2),
        ("0.5.23-window", ["budget=8"], 2),  # of another build
        ("0.5.20-overrides-eagletopk4-steps3-mixedchunk", ["topk=4"], 2),
        ("0.5.11-plain", ["spec_algorithm=none"], 0),
        ("0.5.11-plain", ["window=64"], 2),
        ("0.5.23-standalone-auto", ["spec_algorithm=DFLASH"], 2),
        ("0.5.11-fail-crash-during-warmup-verify", ["spec_algorithm=DFLASH"], 2),  # a match that died
    ],
)
def test_the_exit_status_says_whether_it_ran_what_was_declared(name, declare, status):
    explained(name, *declare, check=status)


def test_verdicts_say_what_was_declared_what_was_found_and_where():
    (start,) = explained("0.5.11-window", "window=2048")
    echoed, effective = (v for v in start["verdicts"] if v["declared"] == 2048)
    assert (echoed["setting"], echoed["hop"], echoed["verdict"], echoed["found"]) == ("window", "echoed", "differs", 64)
    assert (effective["hop"], effective["verdict"], effective["found"]) == ("effective", "differs", 64)
    number = int(effective["where"].removeprefix("line "))
    assert "draft_window_size=64" in (CORPUS / "0.5.11-window.log").read_text().splitlines()[number - 1]


@pytest.mark.parametrize(("declare", "status"), [(["budget=8"], 0), (["budget=21"], 2), (["budget=8", "topk=4"], 2)])
def test_a_tree_states_its_budget_and_never_the_cap_from_its_environment(declare, status):
    log = [
        STAMP + "server_args={'speculative_algorithm': 'DDTREE', 'speculative_ddtree_budget': 8}",
        STAMP + DRAFT,
        STAMP + "Initialized DDTree worker. tree_budget=8, max_tree_nodes=9",
        STAMP + READY,
    ]
    (start,) = explained("\n".join(log).encode(), *declare, check=status)
    assert start["release"] is None
    topk = [v["verdict"] for v in start["verdicts"] if v["setting"] == "topk"]
    assert topk == ["unstated"] * len(topk)


@pytest.mark.parametrize("text", ["windw=2048", "window", "window=2_048", "port=high"])
def test_a_declaration_that_means_nothing_is_refused(text):
    _, problem = run("--declare", text, CORPUS / "0.5.11-window.log", check=3)
    assert text.partition("=")[0] in problem


def test_a_misspelt_declaration_is_told_what_was_meant():
    assert "did you mean window?" in run("--declare", "windwo=1", CORPUS / "0.5.11-window.log", check=3)[1]


def test_each_option_of_the_contract_is_echoed_under_its_own_name():
    """Where no engine can be asked, explain takes an option's name for its field's."""
    for release in ("0.5.11-nowindow", "0.5.12-window", "0.5.18-window", "0.5.19-nowindow", "0.5.23-window"):
        (log,) = explain.starts((CORPUS / f"{release}.log").read_bytes())
        flags = {e.carrier(log.echo.release) for e in contract.SETTINGS if e.family in (None, "upstream")}
        fields = {explain._field(flag.option) for flag in flags if isinstance(flag, contract.Flag)}
        assert fields <= {*log.echo.values, *log.echo.unreadable}


# The shapes that a log takes on its way

ECHO = "server_args={'model_path': '/m', 'speculative_algorithm': 'DFLASH', 'speculative_draft_window_size': 2048}"
DRAFT = (
    "Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8, "
    "draft_window_size=2048, compact_cache=True"
)
POOL = (
    "max_total_num_tokens=4096, chunked_prefill_size=2048, max_prefill_tokens=16384, max_running_requests=4, "
    "context_len=4096, available_gpu_mem=20.50 GB"
)
READY = "The server is fired up and ready to roll!"
STAMP = "[2026-05-20 10:00:00] "
LINES = [STAMP + ECHO, STAMP + DRAFT, STAMP + POOL, STAMP + READY]
BAR = "Loading safetensors:  50%|█████     | 1/2 [00:01<00:01,  1.02s/it]"


def each(prefix):
    return [prefix + line for line in LINES]


SHAPES = {
    "plain": LINES,
    "bare": [ECHO, DRAFT, POOL, READY],
    "time only": [line.replace("2026-05-20 ", "") for line in LINES],
    "milliseconds": [line.replace("10:00:00", "10:00:00.123") for line in LINES],
    "of rank 0": [LINES[0], f"[2026-05-20 10:00:00 TP0] {DRAFT}", f"[2026-05-20 10:00:00 DP0 TP0 EP0] {POOL}", LINES[3]],
    "pool before the drafter": [LINES[0], LINES[2], LINES[1], LINES[3]],
    "journald short": each("May 20 10:00:00 node3 python[77]: "),
    "journald short-iso": each("2026-05-20T10:00:00+0200 node3 python[77]: "),
    "journald short-precise": each("May 20 10:00:00.123456 node3 python[77]: "),
    "journald short-full": each("Wed 2026-05-20 10:00:00 UTC node3 python[77]: "),
    "journald short-monotonic": each("[ 1234.123456] node3 python[77]: "),
    "journald short-unix": each("1779271200.123456 node3 python[77]: "),
    "kubectl": each("2026-05-20T10:00:00.123456789Z "),
    "containerd": each("2026-05-20T10:00:00.123456789Z stderr F "),
    "containerd's file, split": [
        f"2026-05-20T10:00:00.1Z stderr {part}" for line in LINES for part in (f"P {line[:50]}", f"F {line[50:]}")
    ],
    "Docker's file, split": [
        json.dumps({"log": part, "stream": "stderr"}) for line in LINES for part in (line[:50], line[50:] + "\n")
    ],
    "JSON strings": [json.dumps(LINES, indent=1)],
    "compose": each("sglang-1  | "),
    "Ray": each("(WorkerDict pid=77, ip=10.0.0.1) "),
    "indented": each("    "),
    "coloured": [f"\x1b[33m{line}\x1b[0m" for line in LINES],
    "carriage returns": [line + "\r" for line in LINES],
    "behind a progress bar": [LINES[0], f"\r{BAR}\r{BAR}{LINES[1]}", f"{BAR}{LINES[2]}", LINES[3]],
    "every warning twice": [LINES[0], "a warning", STAMP + "a warning", *LINES[1:]],
    "decoys in front": ["{'server_args_fa4_gate': True, 'speculative_draft_window_size': 1}", f"Req(x='{DRAFT}')", *LINES],
    "between other loggers": ["I0529 10:00:00 x.cc:7] a", "[rank0]:[W513 b", *LINES, 'INFO:     1.2.3.4:5 - "GET /" 200'],
    "blank lines": [text for line in LINES for text in (line, "")],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_changes_nothing(shape):
    (start,) = explained("\n".join(SHAPES[shape]).encode(), "window=2048", check=0)
    assert start["outcome"] == "ready"
    assert start["echoed"]["speculative_draft_window_size"] == start["effective"]["draft_window_size"] == 2048


def without(line, *lines):
    return [other for other in LINES if other is not LINES[line]] + list(lines)


BROKEN = {
    "echo cut": [LINES[0][:-9], *LINES[1:]],
    "echo cut in a name": [LINES[0][:80], *LINES[1:]],
    "echo elided": [LINES[0].replace("'/m', 'spec", "...spec"), *LINES[1:]],
    "echo elided by a character": [LINES[0].replace("'/m', ", "…"), *LINES[1:]],
    "echo wrapped": [LINES[0][:60], LINES[0][60:], *LINES[1:]],
    "containerd's file without a piece": [f"2026-05-20T10:00:00Z stderr P {LINES[0][:60]}", *LINES[1:]],
    "Docker's file without a piece": [
        json.dumps({"log": text, "stream": "stderr"}) for text in (LINES[0][:60], *(line + "\n" for line in LINES[1:]))
    ],
    "draft line cut": [LINES[0], LINES[1][:-3], *LINES[2:]],
    "draft line cut in a number": [LINES[0], LINES[1][: LINES[1].index("2048") + 2], *LINES[2:]],
    "draft line elided": [LINES[0], LINES[1].replace("block_size=8, draft_window_", "..."), *LINES[2:]],
    "two that differ": [LINES[0], LINES[0].replace("2048", "64"), *LINES[1:]],
    "not UTF-8": [LINES[0], LINES[1].replace("triton", "\udcff"), *LINES[2:]],
    "blob": [LINES[0], "May 20 10:00:00 node3 python[7]: [163B blob data]", *LINES[2:]],
    "rate limit": [
        LINES[0],
        "May 20 10:00:00 node3 systemd-journald[9]: Suppressed 7 messages from sglang.service",
        *LINES[2:],
    ],
}


@pytest.mark.parametrize("shape", BROKEN)
def test_what_is_not_whole_is_unreadable_and_never_a_value(shape):
    log = "\n".join(BROKEN[shape]).encode("utf-8", "surrogateescape")
    start = explained(log, "window=2048", check=3)[-1]
    assert [v["verdict"] for v in start["verdicts"]].count("unreadable") >= 1
    assert start["unreadable"] or start["dropped"] or shape == "two that differ"
    hop = "effective" if shape.startswith(("draft", "not", "blob", "rate")) else "echoed"
    assert "draft_window_size" not in str(start[hop].keys())


@pytest.mark.parametrize("shape", [shape for shape in BROKEN if shape.startswith(("echo", "draft", "two"))])
def test_nothing_declared_does_not_make_it_readable(shape):
    run("-", log="\n".join(BROKEN[shape]).encode(), check=3)


@pytest.mark.parametrize("log", [b"", b"\n\n", b"\x00\xff\xfe", b"{}", b"[1]", b"nginx: started\n", b'{"MESSAGE": "x"}'])
def test_what_is_no_log_of_the_engine_is_unreadable(log):
    assert run("-", log=log, check=3)[1].startswith("explain-log: ")
    assert explained(log, check=3) == []


def test_a_file_that_can_not_be_read_is_unreadable(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        assert str(path) in run(path, check=3)[1]


def test_a_log_that_runs_backwards_is_refused():
    lines = [f"[2026-05-20 10:00:0{second}] {line}" for second, line in enumerate([ECHO, DRAFT, POOL, READY])]
    assert "backwards" in run("-", log="\n".join(reversed(lines)).encode(), check=3)[1]


# Several starts in one log

SIGTERM = STAMP + "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
OTHER = [line.replace("2048", "64") for line in LINES]
REFUSED = [
    "Traceback (most recent call last):",
    '  File "<frozen runpy>", line 198, in _run_module_as_main',
    "ValueError: DFLASH --speculative-draft-window-size must be >= --speculative-num-draft-tokens.",
]
SYSTEMD = "May 20 10:00:00 node3 systemd[1]: "


def outcomes(*lines):
    return [(s["outcome"], s["echoed"].get("speculative_draft_window_size")) for s in explained("\n".join(lines).encode())]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([*OTHER, SIGTERM, *LINES], [("ready", 64), ("ready", 2048)]),
        ([*OTHER, *LINES], [("ready", 64), ("ready", 2048)]),
        ([*OTHER[:2], SIGTERM, *LINES], [("incomplete", 64), ("ready", 2048)]),
        ([*LINES, SIGTERM, *REFUSED], [("ready", 2048), ("failed", None)]),
        ([*LINES, SIGTERM, "usage: sglang serve [-h]", "sglang serve: error: unrecognized arguments: --x"],
         [("ready", 2048), ("failed", None)]),
        ([*OTHER[1:], *LINES], [("ready", None), ("ready", 2048)]),  # the first lost its beginning
        ([*LINES, "-- Boot 3f2a --", *OTHER[:2]], [("ready", 2048), ("incomplete", 64)]),
        ([*OTHER[:2], SYSTEMD + "sglang-k.service: Main process exited, code=killed, status=9/KILL",
          SYSTEMD + "Started sglang-k.service - SGLang k.", *LINES], [("failed", 64), ("ready", 2048)]),
        ([SYSTEMD + "Starting sglang-k.service - SGLang k...", *LINES, SYSTEMD + "Started sglang-k.service - SGLang k."],
         [("ready", 2048)]),
        ([*LINES[:2], SYSTEMD + "Starting apt-daily.service...", SYSTEMD + "nginx.service: Failed with result 'exit-code'.",
          SYSTEMD + "sglang-k.service: Consumed 7s CPU time.", *LINES[2:]], [("ready", 2048)]),
    ],
)  # fmt: skip
def test_starts_in_one_text_are_told_apart(lines, expected):
    assert outcomes(*lines) == expected


@pytest.mark.parametrize("lines", [[*LINES, *OTHER], [*LINES, SIGTERM, *OTHER], [*LINES, SIGTERM, *REFUSED]])
def test_an_older_good_start_does_not_excuse_a_newer_bad_one(lines):
    explained("\n".join(lines).encode(), "window=2048", check=2)


@pytest.mark.parametrize("lines", [[*OTHER, SIGTERM, *LINES], [*REFUSED, *LINES]])
def test_an_older_bad_start_does_not_spoil_a_newer_good_one(lines):
    explained("\n".join(lines).encode(), "window=2048", check=0)


@pytest.mark.parametrize(
    "after", [f'{STAMP}INFO:     10.0.0.1:5 - "POST /generate HTTP/1.1" 200 OK', f"{STAMP}Decode batch, x"]
)
def test_a_traceback_of_a_server_that_goes_on_serving_is_no_end(after):
    raised = ["Task exception was never retrieved", REFUSED[0], '  File "/x.py", line 7, in f', "RuntimeError: gone"]
    assert outcomes(*LINES, *raised, after) == [("ready", 2048)]
    assert outcomes(*LINES, *raised) == [("failed", 2048)], "nothing shows that it went on"


def test_two_real_logs_in_one_file():
    both = b"".join((CORPUS / f"{name}.log").read_bytes() for name in ("0.5.23-window", "0.5.11-nowindow"))
    first, second = explained(both, "window=none", check=0)
    assert (first["release"], second["release"]) == ("0.5.23", "0.5.11")
    assert second["effective"]["draft_window_size"] is None


def entries(lines, invocation, unit="sglang-k.service", **fields):
    common = {"_SYSTEMD_INVOCATION_ID": invocation, "_SYSTEMD_UNIT": unit, "_TRANSPORT": "stdout", "_PID": "77"}
    return [json.dumps({**common, "__CURSOR": f"s=1;i={n}", "MESSAGE": line, **fields}) for n, line in enumerate(lines)]


def test_in_a_journal_a_start_is_an_invocation():
    other_unit = entries(["GET /", "Failed with result"], "nginx1", unit="nginx.service")
    log = [
        *entries(OTHER[:2], "i1"),
        *other_unit,
        *entries(LINES[:3], "i2"),
        *entries(OTHER[2:], "i1"),
        *entries(LINES[3:], "i2"),
    ]
    starts = explained("\n".join(log).encode(), "window=2048", check=0)
    assert [(s["invocation"], s["outcome"], s["effective"]["draft_window_size"]) for s in starts] == [
        ("i1", "ready", 64),
        ("i2", "ready", 2048),
    ]
    assert starts[0]["unit"] == "sglang-k.service"


def test_the_journals_own_note_of_dropped_messages_belongs_to_the_start_it_names():
    note = {"N_DROPPED": "9", "_TRANSPORT": "driver", "OBJECT_SYSTEMD_INVOCATION_ID": "i1"}
    note.update(OBJECT_SYSTEMD_UNIT="sglang-k.service", _SYSTEMD_UNIT="systemd-journald.service")
    log = [
        *entries(LINES[:1], "i1"),
        *entries(["Suppressed 9 messages"], "journald's own", **note),
        *entries(LINES[2:], "i1"),
    ]
    (start,) = explained("\n".join(log).encode(), "window=2048", check=3)
    assert "Suppressed 9 messages" in start["dropped"][0]


def test_a_journal_saved_without_all_is_unreadable_where_it_has_null():
    log = [*entries([None], "i1"), *entries(LINES[1:], "i1")]
    explained("\n".join(log).encode(), "window=2048", check=3)


# What must not be said

GREEDY = STAMP + "DFLASH non-greedy verification is unavailable on this build/device; falling back to greedy argmax."
EAGER = STAMP + "Disable DFLASH draft cuda graph because dp attention is enabled (draft runs eager)."
OF_A_TREE = STAMP + "--speculative-draft-window-size has no effect with speculative_algorithm=DDTREE (honored by …)."


@pytest.mark.parametrize(
    ("line", "declare", "status", "said"),
    [
        (GREEDY, ["window=2048"], 2, ["critical"]),
        (GREEDY, [], 0, ["critical"]),  # nothing was declared that it could break
        (EAGER, ["window=2048"], 0, ["warning"]),
        (OF_A_TREE, ["window=2048"], 0, []),
        (OF_A_TREE.replace("DDTREE", "DFLASH"), ["window=2048"], 2, []),  # it contradicts the window
    ],
)
def test_a_line_that_must_not_be_said_is_judged_as_on_a_host(line, declare, status, said):
    log = "\n".join([LINES[0], line, *LINES[1:]]).encode()
    (start,) = explained(log, *declare, check=status)
    found = [v for v in start["verdicts"] if v["verdict"] == "forbidden"]
    assert [v["severity"] for v in found] == said
    shown, _ = run(*(f"--declare={text}" for text in declare), "-", log=log, check=status)
    assert ("forbidden" in shown) == bool(said)
    assert ("not proved:" in shown) == (status == 2)


def test_what_a_cpu_must_say_is_not_forbidden_there():
    log = "\n".join([LINES[0].replace("{'model", "{'device': 'cpu', 'model"), GREEDY, *LINES[1:]]).encode()
    assert [v["verdict"] for v in explained(log, "window=2048", check=0)[0]["verdicts"]] == ["match"] * 3


# For people, and for other machines


def test_the_text_is_for_a_tired_person():
    shown = run("--declare", "window=2048", CORPUS / "0.5.11-nowindow.log", check=2)[0]
    assert shown.startswith("Start 1 of 1: SGLang 0.5.11, ready, then stopped\n")
    window = next(line for line in shown.splitlines() if line.split()[:1] == ["window"])
    assert window.split()[1:5] == ["2048", "none", "none", "differs"]
    assert shown.rstrip().endswith("not proved: window")


def test_the_text_has_no_setting_that_means_nothing_here():
    shown = run(CORPUS / "0.5.11-plain.log")[0]
    assert "\n  port " in shown
    assert "\n  window " not in shown


def test_the_text_of_an_unknown_build_says_what_can_be_known():
    assert "SGLang 0.5.19 or later, ready" in run("-", log="\n".join(LINES).encode())[0]
    old = STAMP + "server_args=ServerArgs(model_path='/m', my_own_field=1)"
    assert "SGLang up to 0.5.18, incomplete" in run("-", log=old.encode())[0]
    assert explained(old.encode())[0]["release"] is None


def test_what_json_has_no_form_for_is_told_as_text():
    log = [
        STAMP + "server_args={'a': 1e999, 'b': {1, 2}, 'c': b'x', 'd': {(1, 2): 3}}",
        STAMP + POOL.replace("4096", "1e999"),
    ]
    (start,) = explained("\n".join(log).encode(), check=0)
    assert start["echoed"] == {"a": "inf", "b": "{1, 2}", "c": "b'x'", "d": {"(1, 2)": 3}}
    assert start["effective"]["context_len"] == "inf"


def test_no_secret_is_shown():
    log = [STAMP + "server_args={'api_key': 'sk-secret', 'a': {'hf_token': 'sk-secret'}, 'port': 1}", STAMP + READY]
    for arguments in (["--json"], []):
        assert "sk-secret" not in "".join(run(*arguments, "-", log="\n".join(log).encode(), check=0))
    assert explained("\n".join(log).encode())[0]["echoed"]["port"] == 1


def test_it_runs_where_it_is_copied_to(tmp_path):
    for name in ("explain-log", "module_utils"):
        subprocess.run(["cp", "-r", ROOT / name, tmp_path / name], check=True)
    argv = [sys.executable, "-I", "-S", tmp_path / "explain-log", CORPUS / "0.5.23-window.log"]
    assert subprocess.run(argv, cwd="/", env={"PATH": os.defpath}, capture_output=True).returncode == 0


# Properties

NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
TEXTS = st.text(max_size=20).filter(lambda text: "..." not in text and "…" not in text)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(TEXTS, SCALARS, max_size=3)
PREFIXES = st.sampled_from(
    ["", STAMP, "[10:00:00] ", "[2026-05-20 10:00:00.123] ", "May 20 10:00:00 node3 python[77]: " + STAMP,
     "2026-05-20T10:00:00.1Z stderr F " + STAMP, "sglang-1  | " + STAMP, f"\x1b[1m{STAMP}\x1b[0m", f"{BAR}{STAMP}"]
)  # fmt: skip
NOISE = st.lists(st.text(max_size=40).map(lambda text: " ".join(text.split())), max_size=4)


def evidence(log):
    """What the newest start states, through the whole of explain."""
    start = explain.starts(log)[-1]
    return explain.as_data(start, explain.verdicts(start, []))


@given(st.dictionaries(NAMES, VALUES, min_size=1), st.booleans(), PREFIXES, NOISE, NOISE)
def test_settings_in_either_form_behind_any_prefix_are_read_back(settings, as_call, prefix, before, after):
    call = f"ServerArgs({', '.join(f'{name}={value!r}' for name, value in settings.items())})"
    line = f"{prefix}server_args={call if as_call else repr(settings)}"
    log = "\n".join([*before, line, *after, STAMP + READY]).encode("utf-8", "surrogatepass")
    (start,) = explain.starts(log)
    assert (start.echo.problem, start.echo.values, start.echo.unreadable) == (None, settings, frozenset())
    json.dumps(evidence(log), allow_nan=False)


@given(st.dictionaries(NAMES, VALUES, min_size=1), st.integers(1, 60))
def test_a_line_that_journald_split_is_read_back_and_without_a_piece_never(settings, size):
    raw = list(f"server_args={settings!r}".encode())
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    split = entries(pieces[:-1], "i1", _LINE_BREAK="line-max") + entries(pieces[-1:], "i1")
    ready = entries([STAMP + READY], "i1")
    (start,) = explain.starts("\n".join(split + ready).encode())
    assert start.echo.values == settings
    for rest in (split[1:], split[:-1]):
        if len(split) > 1:  # journald itself notes what it dropped in between
            (start,) = explain.starts("\n".join(rest + ready).encode())
            assert start.echo is None or start.echo.problem


@given(st.lists(st.binary(max_size=60) | st.sampled_from([line.encode() for line in [*LINES, *OTHER]]), max_size=8))
@example([b"{", b"[" * 100_000])
@example([b'{"MESSAGE": 1}', b"\xff"])
@example([b'{"MESSAGE": [1], "__REALTIME_TIMESTAMP": "9999999999999999999", "_SYSTEMD_INVOCATION_ID": "sglang"}'])
def test_bytes_never_raise_and_match_only_what_they_state(lines):
    log = b"\n".join(lines)
    try:
        start = explain.starts(log)[-1]
    except explain.NotReadable:
        return
    judged = explain.verdicts(start, explain.expectations(start, {"window": "4711"}))
    json.dumps(explain.as_data(start, judged), allow_nan=False)
    assert explain.exit_status(start, judged) != 0, "nobody has said 4711"
