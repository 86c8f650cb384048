"""Engines of a few lines, asked in a process of their own as the real ones are."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible.module_utils.sglang_proof import resolver

HEAD = """
import argparse, dataclasses, logging, sys
logger = logging.getLogger("sglang.srt.server_args")

@dataclasses.dataclass
class ServerArgs:
    window: int = None
    odd: object = None

def parse(argv):
    parser = argparse.ArgumentParser(prog="sglang serve")
    parser.add_argument("--window", type=int)
    raw = parser.parse_args(argv)
    logging.basicConfig(level="INFO", force=True)
    return raw.window

def check(window):
    print("noise on standard output")
    if window == 1:
        raise ValueError("window 1 is below the block size.\\nsee the manual")
    if window == 2:
        raise RuntimeError("No accelerator (CUDA, XPU) is available.")
    if window == 3:
        import sgl_kernel_that_is_not_there
    if window == 4:
        sys.exit("not today")
    if window == 5:
        import os; os.kill(os.getpid(), 9)
    if window == 6:
        logger.info("no warning"); logger.warning("reset to %d", 48); logger.warning("reset to %d", 48)
        return 48
    return window
"""
IN_PLACE = """
def prepare_server_args(argv):
    return ServerArgs(check(parse(argv)), odd=(1, {2: logging.INFO}, argparse.SUPPRESS, int))
"""
RESOLVED_LATER = """
def prepare_server_args(argv):
    return Later(parse(argv))

class Later(ServerArgs):
    def resolve_once(self):
        self.resolved = check(self.window)

    def resolved_dict(self):
        return {"window": self.resolved, "odd": (1, {2: logging.INFO}, argparse.SUPPRESS, int)}
"""


@pytest.fixture(params=[IN_PLACE, RESOLVED_LATER], ids=["up to 0.5.18", "from 0.5.19"])
def ask(request, tmp_path):
    source = tmp_path / "sglang" / "srt"
    source.mkdir(parents=True)
    (source / "server_args.py").write_text(HEAD + request.param)

    def ask(*argv, script=resolver.script, path=tmp_path):
        done = subprocess.run(
            resolver.dry_argv(sys.executable),
            input=script(argv),
            env={**os.environ, "PYTHONPATH": str(path)},
            capture_output=True,
            text=True,
            check=False,
        )
        return resolver.parse_answer(done.stdout, done.stderr, done.returncode)

    return ask


def test_good_arguments_are_resolved(ask):
    answer = ask("--window", "2048")
    assert answer.resolved == {"window": 2048, "odd": [1, {"2": 20}, "==SUPPRESS==", "<class 'int'>"]}
    assert (answer.refused, answer.unasked, answer.warnings) == (None, None, ())


def test_what_the_engine_rewrites_it_also_says(ask):
    answer = ask("--window", "6")
    assert answer.resolved["window"] == 48
    assert answer.warnings == ("reset to 48",)


@pytest.mark.parametrize(
    ("argv", "reason", "status"),
    [
        (["--budget", "8"], "unrecognized arguments: --budget 8", 2),
        (["--window", "wide"], "argument --window: invalid int value: 'wide'", 2),
        (["--window", "1"], "ValueError: window 1 is below the block size.", 1),
        (["--window", "4"], "SystemExit: not today", 1),
    ],
)
def test_bad_arguments_are_refused_as_a_start_would(ask, argv, reason, status):
    answer = ask(*argv)
    assert (answer.refused, answer.exit) == (reason, status)
    assert (answer.resolved, answer.unasked) == (None, None)


@pytest.mark.parametrize(
    ("window", "reason"),
    [("2", "No accelerator"), ("3", "ModuleNotFoundError"), ("5", "ended with status -9")],
)
def test_no_answer_is_no_judgement(ask, window, reason):
    answer = ask("--window", window)
    assert reason in answer.unasked
    assert (answer.resolved, answer.refused) == (None, None)


def test_an_environment_without_sglang_gives_no_answer(ask, tmp_path):
    assert "No module named 'sglang" in ask(path=tmp_path / "empty").unasked


def test_the_script_is_found_in_the_zip_file_of_an_ansible_module(ask, tmp_path, monkeypatch):
    archive = tmp_path / "payload.zip"
    with zipfile.ZipFile(archive, "w") as payload:
        payload.writestr("zipped_proof/__init__.py", "")
        payload.write(Path(resolver.__file__), "zipped_proof/resolver.py")
    monkeypatch.syspath_prepend(str(archive))
    zipped = importlib.import_module("zipped_proof.resolver")
    assert ask("--window", "7", script=zipped.script).resolved["window"] == 7
