"""Ask the installed engine what it would make of a command line, without a GPU and without a start.

SGLang's own resolver runs in the engine's interpreter in about ten seconds, while the old service still
serves. It refuses what a start would refuse, and tells what it would rewrite.

This file has two sides. The asking process runs ``dry_argv`` with ``script`` on its standard input and gives
what comes back to ``parse_answer``. The engine's interpreter runs this very file (``answer``), so it imports
nothing of this package.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

_MARKER = "sglang-proof-answer: "

# What SGLang and torch say where no GPU can be seen: that is no judgement about the arguments.
_NO_DEVICE = re.compile(
    r"No accelerator|NVIDIA driver|No CUDA (?:GPUs|devices)|No GPU memory values|CUDA is not available"
    r"|not compiled with CUDA|nvidia-smi|libcuda"
)


@dataclass(frozen=True)
class Answer:
    """What the engine's resolver said; exactly one of ``resolved``, ``refused`` and ``unasked`` is set.

    ``resolved``: every field of the server's arguments as the engine would use it (API keys too: redact it
    before it leaves the host). ``refused``: the reason, with the ``exit`` status that a start would end with.
    ``unasked``: why there is no answer, which says nothing about the arguments.
    """

    resolved: dict[str, Any] | None = None
    warnings: tuple[str, ...] = field(default=())
    refused: str | None = None
    exit: int | None = None
    unasked: str | None = None


def dry_argv(python: str) -> list[str]:
    """The command that reads ``script`` from its standard input; ``python`` is the engine's interpreter.

    It belongs into the service's environment and working directory: both can change the answer.
    """
    return [python, "-"]


def script(argv: Sequence[str]) -> str:
    """The standard input of ``dry_argv``: this file and the options of the server, without program or module.

    The options travel here, not on a command line, because an API key may be among them. The source comes
    from this module's loader, which also has it where Ansible runs this package from a zip file.
    """
    source = __spec__.loader.get_source(__name__)
    return f"{source}\n\nanswer({list(argv)!r})\n"


def parse_answer(stdout: str, stderr: str, rc: int) -> Answer:
    """The answer among whatever else the engine printed."""
    for line in reversed(stdout.splitlines()):
        if line.startswith(_MARKER):
            said = json.loads(line[len(_MARKER) :])
            return Answer(**{**said, "warnings": tuple(said.get("warnings", ()))})
    last = (stderr.strip().splitlines() or ["it printed nothing"])[-1]
    return Answer(unasked=f"The engine's interpreter ended with status {rc} and no answer: {last}")


# ---- in the engine's interpreter ----


class _Refused(Exception):
    """The argument parser refused the command line."""


def answer(argv: Sequence[str]) -> None:
    """Resolve ``argv`` and print one marked line of JSON, an Answer, as the last line of standard output."""
    print("\n" + _MARKER + json.dumps(_ask(argv)), flush=True)


def _ask(argv: Sequence[str]) -> dict[str, Any]:
    warnings = _Warnings()
    logging.getLogger("sglang").addHandler(warnings)  # SGLang replaces the handlers of the root logger
    argparse.ArgumentParser.error = _refuse
    try:
        from sglang.srt.server_args import prepare_server_args  # in the engine's Python
    except Exception as error:
        return {"unasked": _sentence(error)}
    try:
        said = {"resolved": _resolve(prepare_server_args(list(argv)))}
    except _Refused as error:
        said = {"refused": str(error), "exit": 2}
    except SystemExit as error:
        is_status = error.code is None or isinstance(error.code, int)
        said = {"refused": f"SystemExit: {error.code}", "exit": (error.code or 0) if is_status else 1}
    except Exception as error:
        is_about_this_host = isinstance(error, ImportError) or _NO_DEVICE.search(str(error))
        said = {"unasked": _sentence(error)} if is_about_this_host else {"refused": _sentence(error), "exit": 1}
    return {**said, "warnings": warnings.messages}


def _resolve(server_args: Any) -> dict[str, Any]:
    # Up to 0.5.18 prepare_server_args resolves and fields hold the result; from 0.5.19 they hold the input.
    if hasattr(server_args, "resolve_once"):
        server_args.resolve_once()
    if hasattr(server_args, "check_server_args"):  # what a start does next, before it starts a process
        server_args.check_server_args()
    if hasattr(server_args, "resolved_dict"):
        held = server_args.resolved_dict()
    else:
        held = {item.name: getattr(server_args, item.name) for item in fields(server_args)}
    return {name: _plain(value) for name, value in held.items()}


def _plain(value: Any) -> Any:
    """Numbers, texts, lists and dicts as they are, anything else as its repr."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return repr(value)


def _refuse(_parser: argparse.ArgumentParser, message: str) -> None:
    raise _Refused(message)


def _sentence(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class _Warnings(logging.Handler):
    """Keeps each warning once, in order."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self.messages:
            self.messages.append(message)
