"""Journal entries as records: how journalctl is asked, how its JSON and saved logs are read. Pure, no I/O.

Field names and their meaning: systemd.journal-fields(7), systemd 252.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

_FIELDS = (
    "MESSAGE",
    "_PID",
    "_TRANSPORT",
    "_STREAM_ID",
    "_LINE_BREAK",
    "N_DROPPED",
    "_SYSTEMD_INVOCATION_ID",
    "INVOCATION_ID",
    "OBJECT_SYSTEMD_INVOCATION_ID",
)
_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
# What SGLang's own logger puts in front of a record: time stamp, then the ranks that speak.
STAMP = re.compile(r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?P<tags>(?: [A-Z][A-Z_]*\d+)*)\](?: |$)")
_BAR = re.compile(r"\d%|\dit/s|\ds/it|\?it/s")
_WRAPPER = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)"
    r"|[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]{1,5}|\[ {0,12}\d+\.\d{6}\]|\d{10}\.\d{6})"
    r"(?: \S+ (?P<name>[^\s:\[]+)(?:\[(?P<pid>\d+)\])?:(?: |$)"  # syslog, journalctl --output=short…
    r"| (?:stdout|stderr) [FP] | )"  # Kubernetes, RFC 3339
    r"|[\w.-]+ +\| |\(\w+ pid=\d+[^)]*\) "  # compose | Ray
    r"|\s+(?=\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d)"
)
_BLOB = re.compile(r"\[[\d.]+[BKMG] blob data\]")

_SYSLOG_NAMES = {"kernel": "kernel", "systemd": "manager", "systemd-journald": "journald"}


@dataclass(frozen=True)
class Record:
    """One line of a log. ``text`` is None where it can't be read; ``problem`` then says why.

    ``unit`` and ``invocation`` are those of the start that it speaks of, where known. ``time``: Unix seconds.
    ``origin`` is who wrote it: ``service``, ``manager`` (systemd about the unit), ``journald`` (its note that it
    dropped messages) or ``kernel``.
    """

    text: str | None
    cursor: str | None = None
    time: float | None = None
    invocation: str | None = None
    pid: int | None = None
    origin: str = "service"
    problem: str | None = None
    unit: str | None = None


def journalctl_argv(invocation, follow=False, after_cursor=None):
    """Return the call for all records of one start: the service's, systemd's, journald's notes of drops.

    ``--all``: without it JSON has null for each field above 4096 bytes.
    """
    argv = ["journalctl", "--output=json", "--all", "--no-pager", "--output-fields=" + ",".join(_FIELDS)]
    if follow:
        argv += ["--follow", "--no-tail"]
    if after_cursor:
        argv.append("--after-cursor=" + after_cursor)
    owners = ("_SYSTEMD_INVOCATION_ID", "INVOCATION_ID", "OBJECT_SYSTEMD_INVOCATION_ID")
    return argv + " + ".join(f"{owner}={invocation}" for owner in owners).split(" ")


def kernel_argv(since):
    """Return the call for the kernel's records from ``since`` (Unix seconds) on, its OOM kills among them."""
    return [
        "journalctl",
        "--output=json",
        "--all",
        "--no-pager",
        "--output-fields=" + ",".join(_FIELDS),
        f"--since=@{since:.6f}",
        "_TRANSPORT=kernel",
    ]


class Decoder:
    """Turns the lines of ``journalctl --output=json`` into records; never raises on what it is fed."""

    def __init__(self):
        self._open = {}  # stream -> entries whose line goes on in the next entry, and the pieces of its text

    def feed(self, line):
        """Decode one line (bytes). Returns the records that it completes, often one, perhaps none."""
        if not line.strip():
            return []
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            return [Record(None, problem="not a JSON object: " + repr(line[:80]))]
        stream = (_field(entry, "_STREAM_ID"), _field(entry, "_PID"))
        raw = _message(entry.get("MESSAGE"))
        records = []
        if _origin(entry) == "journald":  # messages were dropped here: what was open can't be trusted
            records += self.close()
        elif stream in self._open and (raw is None or STAMP.match(raw.decode("utf-8", "replace"))):
            records += self._give_up(stream)
        if _field(entry, "_LINE_BREAK") == "line-max":
            first, pieces = self._open.setdefault(stream, (entry, []))
            pieces.append(raw)
            return records
        first, pieces = self._open.pop(stream, (entry, []))
        pieces.append(raw)
        if None in pieces:
            return [*records, _record(first, problem="MESSAGE is null or no text")]
        return records + _records(first, b"".join(pieces))

    def close(self):
        """Return what is still open, as unreadable: the rest of its line never came."""
        return [record for stream in list(self._open) for record in self._give_up(stream)]

    def _give_up(self, stream):
        entry, pieces = self._open.pop(stream)
        start = (pieces[0] or b"")[:48].decode("utf-8", "replace")
        return [_record(entry, problem=f"journald split this line, and a piece is missing: {start!r}…")]


def read_log(lines):
    """Yield the records of a saved log, an iterable of its lines; open the file in binary mode.

    The cursor is ``line N``. Lines of ``journalctl --output=short`` keep their origin; what it left out because it is
    no plain text, ``[163B blob data]``, is unreadable.
    """
    for number, line in enumerate(lines, 1):
        raw = line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line
        for record in _records({"__CURSOR": f"line {number}"}, raw.rstrip(b"\r\n")):
            blob = record.text is not None and _BLOB.fullmatch(record.text)
            yield replace(record, text=None, problem=f"journalctl printed {blob[0]}; save with --all") if blob else record


def _records(entry, raw):
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return [_record(entry, problem=f"not UTF-8 at byte {error.start}")]
    return [_record(entry, part) for part in _overwritten(text)]


def _overwritten(text):
    """Yield what a terminal would show last, and each stamped record that a progress bar was glued to."""
    *earlier, last = _COLOUR.sub("", text).rstrip("\r").split("\r")
    for part in earlier:
        part = _behind_bar(part)
        if STAMP.match(part):
            yield part
    yield _behind_bar(last)


def _behind_bar(text):
    stamp = None if STAMP.match(text) else STAMP.search(text)
    return text[stamp.start() :] if stamp and _BAR.search(text, 0, stamp.start()) else text


def _record(entry, text=None, problem=None):
    pid, origin = _field(entry, "_PID"), _origin(entry)
    wrapper = _WRAPPER.match(text) if text else None
    if wrapper:
        text = text[wrapper.end() :]
        if "MESSAGE" not in entry:  # a saved log: nobody but this prefix says who wrote the line
            pid, origin = wrapper["pid"], _SYSLOG_NAMES.get(wrapper["name"], origin)
    stamp = _field(entry, "__REALTIME_TIMESTAMP")
    return Record(
        text=text,
        cursor=_field(entry, "__CURSOR"),
        time=int(stamp) / 1e6 if _number(stamp) else None,
        invocation=_owner(entry, origin, "INVOCATION_ID"),
        pid=int(pid) if _number(pid) else None,
        origin=origin,
        problem=problem,
        unit=_owner(entry, origin, "UNIT"),
    )


def _owner(entry, origin, name):
    """Return the unit or invocation that a record is about. journald's notes are about another than its own."""
    if origin == "service":
        return _field(entry, f"_SYSTEMD_{name}")
    about = _field(entry, name) if origin == "manager" else None
    return about or _field(entry, f"OBJECT_SYSTEMD_{name}")


def _origin(entry):
    transport = _field(entry, "_TRANSPORT")
    if transport == "kernel":
        return "kernel"
    if _field(entry, "N_DROPPED"):
        return "journald"
    # systemd names the unit by INVOCATION_ID, from PID 1 and from its child before exec ("Failed at step …")
    return "manager" if _field(entry, "INVOCATION_ID") and transport != "stdout" else "service"


def _message(value):
    """Return the bytes of a MESSAGE: text, a list of byte values, or a list of these (a repeated field)."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if not isinstance(value, list) or not value:
        return None
    if all(type(byte) is int and 0 <= byte < 256 for byte in value):
        return bytes(value)
    lines = [_message(item) for item in value]
    return None if None in lines else b"\n".join(lines)


def _field(entry, name):
    """Return a field as text, the first where it is repeated; None where it is absent or no text."""
    value = entry.get(name)
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) else None


def _number(text):
    return text is not None and text.isascii() and text.isdigit() and len(text) < 20
