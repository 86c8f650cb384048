"""Why a start of SGLang ended: the true cause among its consequences. Pure, no I/O.

What each mark means: sglang 0.5.11 … 0.5.23, read from the sources and from failed runs; systemd 252.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import redact
from .journal import Record

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("The above exception was the direct cause of", "During handling of the above exception, another")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?")
_HARMLESS = re.compile(r"freeze_gc|Exception in ASGI application|Exception ignored in|^ERROR:")
_ARGPARSE = re.compile(r"[^:]{1,80}: error: .*")
_DIED = re.compile(
    r"Subprocess \S+ \(pid=(?P<pid>\d{1,9})\) crashed with exit code"
    r"|.*scheduler died during initialization|.*[Ww]atchdog timeout"
)
_PORT = r"(?i:port is already in use|address already in use|EADDRINUSE)"
_FILE = r".*\.(?:safetensors|bin|pt|gguf|json|model)\b"
_KINDS = {  # of an exception, by its line
    "memory": r"Not enough memory\. Please try|leave no GPU memory|OutOfMemoryError|out of memory",
    "port": _PORT,
    "unreadable_model": rf"^PermissionError{_FILE}|SafetensorError|is not a valid JSON file",
    # A file that the service's user may not read is often reported as missing.
    "missing_model": rf"^FileNotFoundError{_FILE}|Cannot find any model weights|Repo id must be in the form"
    r"|not a local folder and is not a valid model|does not appear to have a file named",
}
_SERVES = re.compile(r"INFO:     \S+ - \"|Prefill batch|Decode batch")
_OOM = re.compile(r"killed by the OOM killer|result 'oom-kill'")
_ENDED = re.compile(r"Main process exited|operation timed out|Failed with result|Failed to (?:load|run|set up)")
_KILLED = re.compile(r"Killed process (?P<pid>\d{1,9}) ")
_CHOSEN = re.compile(r"oom-kill:.*\btask_memcg=(?P<group>[^,]*),.*\bpid=(?P<pid>\d{1,9})")  # the line before it

# How near to the root a word is: the nearest wins, among equals the first. A bare traceback can be harmless.
_KILL, _SAID, _BARE, _CHILD, _STEP, _EXIT = range(6)


@dataclass(frozen=True)
class Cause:
    """Why a start ended: one line, mostly the engine's own words, without secrets.

    ``kind``: bad_flag, refused (before server_args=), exception, memory, port, missing_model,
    unreadable_model, warmup, killed_by_kernel or exited.
    """

    kind: str
    sentence: str
    record: Record


class FailureLog:
    """Keeps what may have ended a start: tracebacks, fatal lines, systemd's and the kernel's word."""

    def __init__(self):
        self._causes = []  # (how near, Cause), in order
        self._kills = []  # kernel records
        self._groups = {}  # process id → its control group, as the kernel told it before it killed
        self._exited_at = None
        self._pids = set()
        self._traceback = None  # the one that is being read
        self._previous = ""
        self._usage = self._resolved = self._ready = self._stopping = False

    def cause(self, unit=None):
        """Return the nearest cause known, or None. ``unit`` is the start's own, where it is known."""
        self._end_traceback()
        for record in self._kills:
            pid = int(_KILLED.search(record.text)["pid"])
            later = self._exited_at and record.time and record.time > self._exited_at
            if pid in self._pids or (unit in self._groups.get(pid, "").split("/") and not later):
                return Cause("killed_by_kernel", record.text, record)
        return min(self._causes, key=lambda pair: pair[0])[1] if self._causes else None

    def progress(self, echo, ready=False):
        """The start went on: the bare tracebacks so far were not its end."""
        self._end_traceback()
        self._resolved, self._ready = self._resolved or echo, self._ready or ready
        self._causes = [pair for pair in self._causes if pair[0] != _BARE]

    def outside(self, record):
        """Take a record of systemd or of the kernel."""
        text = record.text
        if record.origin == "kernel":
            chosen = _CHOSEN.search(text)
            if chosen:
                self._groups[int(chosen["pid"])] = chosen["group"]
            elif _KILLED.search(text):
                self._kills.append(record)
        elif _OOM.search(text):
            self._add(_KILL, "killed_by_kernel", text, record)
        elif text.startswith("Stopping "):
            self._stopping = True
        elif "Failed at step" in text:
            self._add(_STEP, "exited", text, record)
        elif _ENDED.search(text):
            self._exited_at = self._exited_at or record.time
            self._add(_EXIT, "exited", text, record)

    def line(self, body, stamped, record):
        """Take a line of the service that is neither echo, nor statement, nor the ready line."""
        if record.pid:
            self._pids.add(record.pid)
        if body.startswith("[rank"):
            body = re.sub(r"^\[rank\d+\]: ", "", body)
        previous, self._previous = self._previous, body
        if stamped:
            self._end_traceback()
        if body.endswith(_TRACEBACK) and not (self._traceback and self._traceback.chained):
            self._end_traceback()
            self._traceback = _Traceback(body[: -len(_TRACEBACK)].strip(), previous, record)
        elif stamped:
            self._stamped(body, record)
        elif self._traceback:
            self._traceback.add(body, record)
        elif body.startswith("usage: "):
            self._usage = True
        elif self._usage and not self._resolved and _ARGPARSE.fullmatch(body):
            self._add(_SAID, "bad_flag", body, record)

    def _stamped(self, body, record):
        if _SERVES.match(body):  # nearly all lines of an old process
            if self._ready:
                self.progress(echo=False)
            return
        died = _DIED.match(body)
        if body.startswith("SIGTERM received."):
            self._stopping = True
        elif re.search(_PORT, body):
            self._add(_SAID, "port", body, record)
        elif body.startswith("Initialization failed. warmup error:"):
            self._add(_BARE, "warmup", body, record)
        elif died:
            if died["pid"]:
                self._pids.add(int(died["pid"]))
            self._add(_CHILD, "exited", body, record)

    def _end_traceback(self):
        traceback, self._traceback = self._traceback, None
        if traceback is None:
            return
        sentence, record = traceback.sentence(), traceback.record
        if "hit an exception" in traceback.opener:
            self._add(_SAID, _kind(sentence), sentence, record)
        elif "warmup error:" in traceback.opener:
            self._add(_BARE, "warmup", f"{traceback.opener} {sentence}", record)
        elif _DIED.match(sentence):
            self._add(_CHILD, "exited", sentence, record)
        elif traceback.exception and not traceback.harmless():
            kind = _kind(sentence)
            refusal = not self._resolved and sentence.startswith(("ValueError:", "AssertionError:"))
            kind = "refused" if kind == "exception" and refusal else kind
            self._add(_BARE, kind, sentence, record)

    def _add(self, nearness, kind, sentence, record):
        if not self._stopping or nearness == _KILL:  # what follows a stop is its consequence
            self._causes.append((nearness, Cause(kind, redact.text(sentence.strip()), record)))


class _Traceback:
    """A traceback with the ones chained to it. Blank lines mean nothing: journald drops them."""

    def __init__(self, opener, previous, record):
        self.opener, self.previous, self.record = opener, previous, record
        self.exception, self.frame, self.chained = "", "", False

    def add(self, line, record):
        if line.startswith("  File "):
            self.frame = line.strip()
        elif line.startswith(_CHAINED):
            self.chained = True
        elif line == _TRACEBACK:
            self.exception, self.chained = "", False
        elif not self.exception and _EXCEPTION.fullmatch(line):
            self.exception, self.record = line, record

    def harmless(self):
        return _HARMLESS.search(self.opener or self.previous) or "url: /freeze_gc" in self.exception

    def sentence(self):
        """Return the first line of the last exception, with its place where it says nothing else."""
        if not self.exception:
            return f"{self.opener} (its traceback is cut)"
        if ": " in self.exception or not self.frame:
            return self.exception
        return f"{self.exception} ({self.frame})"


def _kind(sentence):
    return next((kind for kind, mark in _KINDS.items() if re.search(mark, sentence)), "exception")
