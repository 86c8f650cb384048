"""What a saved log says: every start in it, and for each whether it ran what was declared. Pure, no I/O.

A start is an invocation of systemd where the log is `journalctl --output=json`. Elsewhere nothing but the text tells one
start from the next. A new one begins with
  - systemd's "Starting …", or its "Started …" after an end; a boot
  - `server_args=` of the launcher after an end, a ready line, or other words of a start whose own is gone
  - after any of these too, what only a launcher does first: `usage: …`, the advice to use `sglang serve`, a traceback
    that begins in its main module
Two `server_args=` without any of it in between are one start, and one that differs can't be read.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from dataclasses import replace

from . import contract, journal, plan, redact, settings, verdict
from .facts import Option
from .startup_log import StartupLog, read_prefix

HEADS = sorted({w.head for entry in contract.SETTINGS for w in entry.witnesses if isinstance(w, contract.Line)})
ALARMING = [*(line.text for line in contract.FORBIDDEN), *(text for entry in contract.SETTINGS for text in entry.contradict)]
BENIGN = [text for entry in contract.SETTINGS for text in entry.benign]
# What /server_info calls so is printed too, as it was granted (managers/scheduler.py, 0.5.11 … 0.5.23).
GRANTED = {
    "effective_max_running_requests_per_dp": "max_running_requests",
    "memory_usage.token_capacity": "max_total_num_tokens",
}

_CONTAINERD = re.compile(rb"\d{4}-\d\d-\d\dT\S+ (stdout|stderr) ([PF])(?: |$)")
_TRACEBACK = "Traceback (most recent call last):"
_MAIN = re.compile(r'  File "(?:<frozen runpy>|.*/bin/[\w.-]+)", line \d+')
_ADVICE = "'python -m sglang.launch_server' is still supported"  # warned by 0.5.11 … 0.5.23 before anything else
_STOPS = "SIGTERM received"
_GONE = re.compile(r"Main process exited|Deactivated successfully|Failed with result|Scheduled restart job|^Stopped ")


class NotReadable(Exception):
    """There is no start of SGLang that can be told from this log; the text says why."""


class BadDeclaration(Exception):
    """A `--declare` that means nothing; the text says what would."""


class Start(StartupLog):
    """One start, of whom it is and whether its process was seen to go."""

    def __init__(self, invocation=None, unit=None):
        super().__init__(HEADS, ALARMING, BENIGN)
        self.invocation, self.unit = invocation, unit
        self.named = self.spoken = self.stopped = False

    def add(self, record):
        super().add(record)
        self.unit = self.unit or record.unit
        text = record.text or ""
        self.named = self.named or "sglang" in text or "sglang" in text.lower()
        self.spoken = self.spoken or record.origin == "service"
        if record.origin == "manager":
            self.stopped = self.stopped or _GONE.search(text) is not None
        elif _STOPS in text:
            self.stopped = self.stopped or read_prefix(text)[1].startswith(_STOPS)

    @property
    def states(self):
        """Has it said anything that no other program says?"""
        return bool(self.echoes or self.ready or any(self.statements.values()))

    def over(self):
        """Not to be asked within a traceback: that would end it."""
        return self.stopped or self.failure() is not None


def starts(data):
    """The starts in a saved log (bytes), oldest first. Raises NotReadable."""
    lines = data.split(b"\n")
    first = _parsed(next((line for line in lines if line.strip()), b""), dict)
    if not {"MESSAGE", "__CURSOR", "__REALTIME_TIMESTAMP"}.isdisjoint(first):
        found = _by_invocation(lines)
    else:
        texts = _parsed(data, list)  # a log that somebody keeps as JSON
        texts = texts if all(isinstance(text, str) for text in texts) else []
        found = _by_text([text.encode("utf-8", "replace") for text in texts] or _unpacked(lines, "log" in first), data)
    if not found:
        raise NotReadable("no start of SGLang is in this log")
    return found


def _parsed(text, kind):
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return kind()
    return parsed if isinstance(parsed, kind) else kind()


def _unpacked(lines, docker):
    """The lines of a container's log file as they were printed: Docker and containerd split them at 16 kB.

    There are as many as before, so that their numbers stay; a line whose end never came follows as it is.
    """
    begun, printed = {}, []
    for line in lines:
        stream, whole, text = _of_docker(line) if docker else _of_containerd(line)
        text = begun.pop(stream, b"") + text
        if not whole:
            begun[stream] = text
        printed.append(text if whole else b"")
    return printed + list(begun.values())


def _of_docker(line):
    entry = _parsed(line, dict)
    text = entry.get("log")
    if not isinstance(text, str):
        return None, True, line
    return str(entry.get("stream")), text.endswith("\n"), text.rstrip("\n").encode("utf-8", "replace")


def _of_containerd(line):
    piece = _CONTAINERD.match(line)
    return (piece[1], piece[2] == b"F", line[piece.end() :]) if piece else (None, True, line)


def _by_invocation(lines):
    decoder = journal.Decoder()
    records = [
        replace(record, cursor=f"line {number}")
        for number, line in enumerate([*lines, None], 1)
        for record in (decoder.close() if line is None else decoder.feed(line))
    ]
    _refuse_backwards([record.time for record in records if record.time])
    found = {}
    for record in records:
        if record.invocation:
            if record.invocation not in found:
                found[record.invocation] = Start(record.invocation, record.unit)
            found[record.invocation].add(record)
        else:  # of the kernel, or of nobody who can be told: it may concern each
            for start in found.values():
                start.add(record)
    units = {s.unit for s in found.values() if s.states} or {s.unit for s in found.values() if s.named}
    return [start for start in found.values() if start.unit in units]


def _by_text(lines, data):
    ours = b"sglang" if re.search(rb"systemd\[\d+\]: .*sglang", data, re.IGNORECASE) else b""
    records = [record for record in journal.read_log(lines) if _concerns(record, ours.decode())]
    _refuse_backwards([record.text[1:20] for record in records if re.match(r"\[\d{4}-", record.text or "")])
    found = [Start()]
    held = None  # the first line of a traceback after an end: the next line tells whose it is
    for record in records:
        text = record.text or ""
        if held is None and text == _TRACEBACK and found[-1].stopped:
            held = record
            continue
        if (held and _MAIN.match(text)) or _begins(record, text, found[-1]):
            found.append(Start())
        if held:
            found[-1].add(held)
        held = None
        found[-1].add(record)
    if held:
        found[-1].add(held)
    return [start for start in found if start.states or start.named or start.failure()]


def _concerns(record, ours):
    """Where systemd speaks of several units, only the one that is named after SGLang counts."""
    return record.origin not in ("manager", "journald") or record.text is None or ours in record.text.lower()


def _begins(record, text, current):
    if record.origin == "manager":
        return current.spoken and (text.startswith("Starting ") or (text.startswith("Started ") and current.over()))
    if text.startswith(("-- Boot ", "-- Reboot")):
        return current.spoken
    if "server_args=" in text:
        speaker, body, _ = read_prefix(text)
        if speaker or not body.startswith("server_args="):
            return False
        if not current.echoes:
            return current.states
        other = record.pid and record.pid != current.echoes[0].record.pid
        return bool(current.ready or other or current.over())
    return (text.startswith("usage: ") or _ADVICE in text) and (current.states or current.over())


def _refuse_backwards(times):
    earlier = sum(after < before for before, after in zip(times, times[1:]))
    later = sum(after > before for before, after in zip(times, times[1:]))
    if earlier > later:
        raise NotReadable("this log runs backwards in time; save it without --reverse")


def declaration(texts):
    """{name: text} of `name=value` texts. Raises BadDeclaration."""
    declared = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in contract.names():
            nearest = difflib.get_close_matches(name, contract.names(), n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"with a name out of {', '.join(contract.names())}"
            raise BadDeclaration(f"{text}: name=value is needed; {hint}")
        if name in declared and declared[name] != value:
            raise BadDeclaration(f"{name} is declared twice: {declared[name]} and {value}")
        declared[name] = value
    return declared


def expectations(log, declared):
    """What the declared settings would make this start say. Raises BadDeclaration."""
    expected, known = [], {}
    for name, text in declared.items():
        entry = _entry(log, name, declared)
        try:
            value = settings.read(entry.type, text)
        except settings.BadValue as wanted:
            raise BadDeclaration(f"{name}: declared {text}, but it must be {wanted}") from None
        if value is not settings.UNSET:
            known[name] = None if value is settings.OFF else value
            expected.append((entry, value))
    return [_from_a_log(plan.expectation(entry, _carrier(log, entry), value, known, _Named)) for entry, value in expected]


def verdicts(log, expected):
    """A verdict per setting and hop, and one for each line that must not be said.

    What is missing is unreadable where something was lost that may have said it.
    """
    forbidden = tuple(plan.forbidden_lines(contract.BUILT_IN, _algorithm(log, {}), _stated(log)))
    said = plan.Plan("", "", "", (), {}, tuple(expected), _replicas(log, expected), "", 0, "", "", forbidden=forbidden)
    heard = _evidence(log)
    return [*verdict.judge_echoed(said, heard), *verdict.judge_effective(said, heard)]


def as_whole(name, judged):
    """The verdict on one setting: the first that is no match; `unstated` where no hop states it."""
    kinds = [v.verdict for v in judged if v.setting == name and v.verdict != verdict.UNSTATED]
    return next((kind for kind in kinds if kind != verdict.MATCH), verdict.MATCH if kinds else verdict.UNSTATED)


def forbidden(judged):
    """The verdicts on what the engine said and must not say, whatever was declared."""
    return [v for v in judged if v.verdict == verdict.FORBIDDEN]


def exit_status(log, judged):
    """0 match or nothing declared, 2 not a match or failed, 3 unreadable."""
    declared = [v for v in judged if v.verdict != verdict.FORBIDDEN]
    kinds = {as_whole(v.setting, declared) for v in declared}
    kinds |= {v.verdict for v in forbidden(judged) if declared and not v.passes}
    if log.failure() or kinds - {verdict.MATCH, verdict.UNREADABLE}:
        return 2
    illegible = [said.problem for said in (*_said(log), *log.echoes, *filter(None, [log.echo]))]
    return 3 if kinds - {verdict.MATCH} or (not kinds and any(illegible)) else 0


def as_data(log, judged):
    """All that one start says, as plain JSON data without secrets."""
    echo, cause = log.echo, log.failure()
    return {
        "release": echo.release if echo else None,
        "unit": log.unit,
        "invocation": log.invocation,
        "outcome": outcome(log),
        "stopped": log.stopped,
        "cause": cause.sentence if cause else None,
        "cause_kind": cause.kind if cause else None,
        "cause_read_in": where(cause.record) if cause else None,
        "echoed": _plain(redact.mapping(echo.values)) if echo else {},
        "effective": _plain(effective(log)),
        "unreadable": [f"{where(record)}: {redact.text(record.problem)}" for record in log.unreadable],
        "dropped": [f"{where(record)}: {record.text}" for record in log.suppressed],
        "overrides": overrides(log),
        "verdicts": [{name: _plain(value) for name, value in vars(v).items()} for v in judged],
    }


def outcome(log):
    """A start that failed after its ready line has failed."""
    return "failed" if log.failure() else "ready" if log.ready else "incomplete"


def effective(log):
    """Fields of the workers' lines under the engine's names. Where replicas differ, a list in the order they spoke."""
    said = {}
    for statement in _said(log):
        for name, value in statement.fields.items():
            said.setdefault(name, []).append(value)
    return {name: values[0] if all(v == values[0] for v in values) else values for name, values in said.items()}


def _said(log):
    return [statement for statements in log.statements.values() for statement in statements]


def overrides(log):
    """Lines by which the engine says that it made something else of a setting."""
    return [redact.text(body) for body in log.overrides]


def where(record):
    """The place of a record in the saved log: `line 7`, of a journal with its local time."""
    at = time.strftime(", %Y-%m-%d %H:%M:%S", time.localtime(record.time)) if record.time else ""
    return f"{record.cursor}{at}"


def _from_a_log(expectation):
    """The expectation with the witnesses that a log can have: there nobody answers requests."""
    witnesses = []
    for witness in expectation.witnesses:
        if witness["source"] == "granted" and witness["field"] in GRANTED:
            witnesses.append({**witness, "source": "line", "head": contract.POOL, "field": GRANTED[witness["field"]]})
        elif witness["source"] == "line":
            witnesses.append(witness)
    return replace(expectation, witnesses=tuple(witnesses))


class _Named:
    """Stands for the facts of an engine that can't be asked: an option's field bears its name (see the test)."""

    @staticmethod
    def option(flag):
        return Option(flag, _field(flag), "store", "one")

    @staticmethod
    def last_field(_head):
        return None


def _field(flag):
    return flag.lstrip("-").replace("-", "_")


def _printed(log):
    return {*log.echo.values, *log.echo.unreadable} if log.echo else set()


def _stated(log):
    """Name of a setting → what the engine echoes of it."""
    values = log.echo.values if log.echo else {}
    flags = [(e.name, _field(c.option)) for e in contract.SETTINGS for c in e.carried_by if isinstance(c, contract.Flag)]
    return {name: values[field] for name, field in flags if field in values}


def _algorithm(log, declared):
    """The algorithm that was declared, else the one that runs, as far as it is known."""
    name = declared.get("spec_algorithm") or (log.echo and log.echo.values.get("speculative_algorithm"))
    return name.upper() if isinstance(name, str) else None


def _entry(log, name, declared):
    """The entry of the contract that speaks of the setting here; where it means nothing, one that does elsewhere."""
    return contract.find(name, _algorithm(log, declared), None) or contract.elsewhere(name)[0]


def _carrier(log, entry):
    """What carries the setting in this release; where that is not known, the first whose field is printed."""
    known = entry.carrier(log.echo.release) if log.echo and log.echo.release else None
    flags = [c for c in entry.carried_by if isinstance(c, contract.Flag) and _field(c.option) in _printed(log)]
    return known or next(iter([*flags, *entry.carried_by]), None)


def _replicas(log, expected):
    """How many speak: all replicas, but under DP attention rank 0 of the whole engine alone."""
    values = log.echo.values if log.echo else {}
    declared = next((e.value for e in expected if e.setting == "dp"), values.get("dp_size"))
    return declared if type(declared) is int and not values.get("enable_dp_attention") else 1


def _evidence(log):
    lost = next(iter([*log.unreadable, *log.suppressed]), None)
    gap = lost and verdict.Said({}, where(lost), problem=lost.problem or lost.text)
    echo = log.echo and verdict.Said(log.echo.values, where(log.echo.record), problem=log.echo.problem)
    lines = {
        head: [verdict.Said(s.fields, where(s.record), s.speaker, s.problem, s.record.text or "") for s in statements]
        for head, statements in log.statements.items()
    }
    alarms = {text: verdict.Said({}, where(r), text=redact.text(r.text)) for text, r in log.alarms.items()}
    lines = {head: said or [gap] * bool(gap) for head, said in lines.items()}
    return verdict.Evidence(echo=echo or gap, lines=lines, alarms=alarms)


def _plain(value):
    """The value, or its text where JSON has no form for it."""
    try:
        json.dumps(value, allow_nan=False)
        return value
    except (TypeError, ValueError):
        pass
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    try:
        return repr(value)
    except ValueError:  # an integer of more digits than Python prints
        return "a number too large to print"


def release_in_words(log):
    """The release, or as much as the form of `server_args=` tells of it."""
    if log.echo is None:
        return "of an unknown release"
    later = re.search(r"server_args=\{", log.echo.record.text or "")
    return log.echo.release or ("0.5.19 or later" if later else "up to 0.5.18")


def rows(log, judged):
    """Table of the contract's settings that this start states, and of those declared. [] if there are none."""
    found = []
    declared = {v.setting: v.declared for v in judged}
    for name in contract.names():
        mine = [v for v in judged if v.setting == name]
        entry = _entry(log, name, declared)
        if not mine and not entry.applies(_algorithm(log, declared), None):
            continue
        carrier = _carrier(log, entry)
        echoed = _field(carrier.option) if isinstance(carrier, contract.Flag) else None
        fields = [GRANTED.get(w.field, w.field) for w in entry.witnesses if w.hop == "effective" and w.expect == "declared"]
        said = effective(log)
        stated = _cell(log.echo.values if log.echo else {}, [echoed]), _cell(said, fields)
        broken = next((v for v in mine if v.verdict not in (verdict.MATCH, verdict.UNSTATED)), None)
        if mine or stated != ("-", "-"):
            asked = settings.shown(mine[0].declared) if mine else "-"
            read_in = (broken or mine[-1]).where if mine else ""
            found.append([name, asked, *stated, as_whole(name, mine) if mine else "-", read_in])
    return [["setting", "declared", "echoed", "effective", "verdict", "read in"], *found] if found else []


def _cell(said, fields):
    values = [settings.shown(said[field]) for field in fields if field in said]
    return redact.text(", ".join(values)) or "-"
