"""Watches one start of a unit until it is proved or broken. All I/O is in the `host` that is handed in.

A start is an invocation of systemd; nothing is selected by time. What the engine said is kept when it was read (Kept), so
that a week-old process stays proved after its first lines were rotated away.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace

from . import verdict as v
from .journal import Decoder
from .startup_log import READY, StartupLog, read_prefix

PROMPT = "The quick brown fox"
PORT_GRACE = 60  # seconds from the ready line to a listening port: up to 0.5.17 the line can come first


class CannotRead(Exception):
    """Something that must be readable is not: an error of its own, never an empty answer. Raised by hosts."""


class NotProved(Exception):
    """The start does not prove the plan. `str()` is the sentence; `verdicts` is what was judged until then."""

    def __init__(self, sentence, verdicts=()):
        super().__init__(sentence)
        self.verdicts = list(verdicts)


@dataclass(frozen=True)
class Start:
    """Which start is spoken of: one boot, one invocation, one main process."""

    boot_id: str
    invocation: str
    pid: int
    since: float  # Unix seconds

    def to_dict(self):
        return asdict(self)


@dataclass(frozen=True)
class Pending:
    """Nothing decisive until the end of this slice of the wait."""

    phase: str
    seconds: float  # since the process started


@dataclass(frozen=True)
class Proved:
    evidence: v.Evidence
    verdicts: list
    start: Start
    seconds: float | None  # from the start of the process to its ready line; None if that line is gone from the journal


def check_unit(host, plan, unit_path):
    """The unit hop alone, as it can be asked before a restart. Returns the verdicts, or raises NotProved."""
    evidence = v.Evidence(unit=host.unit(plan.unit), unit_path=unit_path)
    return _insist(plan, v.judge_unit(plan, evidence))


def prove(host, plan, unit_path, until, kept=None, generate=True, key=None):
    """Proved, or Pending when `until` (host.clock) comes first. Raises NotProved, CannotRead.

    kept: what an earlier Proved of this plan left behind, `keep()`; it counts for the same start only.
    """
    unit = host.unit(plan.unit)
    evidence = v.Evidence(unit=unit, unit_path=unit_path)
    verdicts = _insist(plan, v.judge_unit(plan, evidence))
    process = host.process(unit.main_pid) if unit.main_pid else None
    if process is None:
        raise NotProved(_death(plan, unit, _read(host, plan, unit.invocation_id, unit.exec_main_start)), verdicts)
    log = _read(host, plan, unit.invocation_id)
    start = Start(host.boot_id(), unit.invocation_id, unit.main_pid, unit.exec_main_start)
    evidence = replace(evidence, argv=process[0], environ=process[1])
    verdicts += _insist(plan, v.judge_process(plan, evidence))

    if log.ready is None and kept and kept["start"] == start.to_dict() and kept["digest"] == plan.digest:
        evidence, ready_after = _remember(evidence, kept), kept["seconds"]
        ready_at = 0.0
    else:
        pending = _follow(host, plan, start, log, evidence, until)
        if pending:
            return pending
        evidence = _hear(evidence, plan, log)
        ready_at, ready_after = log.ready.time, log.ready.time - start.since
    owner = _listener(host, plan, ready_at + PORT_GRACE, until)
    if owner is None and host.now() < ready_at + PORT_GRACE:
        return Pending("ready, but nobody listens on its port yet", host.now() - start.since)
    evidence = _ask(host, plan, evidence, owner, generate, key)
    verdicts = _insist(plan, v.judge(plan, evidence))
    _still(host, plan, start)  # ready is not healthy: it must have survived its first request
    return Proved(evidence, verdicts, start, ready_after)


def keep(plan, proved):
    """What is worth keeping of a proved start: JSON data for `prove(kept=…)`."""
    return {
        "start": proved.start.to_dict(),
        "digest": plan.digest,
        "seconds": proved.seconds,
        "echo": asdict(proved.evidence.echo) if proved.evidence.echo else None,
        "lines": {head: [asdict(said) for said in lines] for head, lines in proved.evidence.lines.items()},
    }


def _remember(evidence, kept):
    echo = v.Said(**kept["echo"]) if kept["echo"] else None
    lines = {head: [v.Said(**said) for said in lines] for head, lines in kept["lines"].items()}
    return replace(evidence, echo=echo, lines=lines)


def _insist(plan, verdicts):
    broken = v.first_broken(verdicts)
    if broken:
        raise NotProved(v.sentence(plan, broken, verdicts), verdicts)
    return verdicts


# What a person wants to know of a load of ten minutes: the beginnings of lines, in their order, and what they mean.
PHASES = (
    ("server_args=", "arguments resolved, starting workers"),
    ("Load weight begin", "loading weights"),
    ("Load weight end", "weights loaded"),
    ("Capture ", "capturing CUDA graphs"),
    ("max_total_num_tokens=", "memory allocated"),
    ("INFO:     Uvicorn running", "warming up"),
    (READY, "ready"),
)


class _Log(StartupLog):
    """The start-up log of one invocation, fed with lines of the journal."""

    def __init__(self, plan):
        super().__init__({w["head"] for e in plan.expectations for w in e.witnesses if w["source"] == "line"})
        self._decoder = Decoder()
        self.cursor = None
        self.phase = "starting Python"

    def feed(self, line):
        for record in self._decoder.feed(line):
            self.cursor = record.cursor or self.cursor
            self.add(record)
            body = read_prefix(record.text or "")[1]
            self.phase = next((phase for head, phase in PHASES if body.startswith(head)), self.phase)

    @property
    def gap(self):
        """Why something may be missing that was said, or None."""
        lost = next(iter([*self.unreadable, *self.suppressed]), None)
        return lost and (lost.problem or lost.text)


def _read(host, plan, invocation, kernel_since=None):
    """What the journal holds of a start; of one that ended also the kernel's kills, so that they are told apart."""
    log = _Log(plan)
    lines = host.journal(invocation) if invocation else []
    if kernel_since:
        lines += host.kernel_journal(kernel_since)
    for line in lines:
        log.feed(line)
    return log


def _follow(host, plan, start, log, evidence, until):
    """Until the ready line, None; Pending if `until` comes first. Raises NotProved at the first contradiction."""
    _contradictions(plan, evidence, log)
    if log.ready:
        return None
    for line in host.follow(start.invocation, log.cursor, until):
        if line is not None:
            log.feed(line)
            continue
        # A pause between lines: all that was said so far has been heard.
        _contradictions(plan, evidence, log)
        if log.ready:
            return None
        _still(host, plan, start)
    return Pending(log.phase, host.now() - start.since)


def _contradictions(plan, evidence, log):
    heard = _hear(evidence, plan, log)
    broken = v.contradicted(plan, heard)
    if broken:
        known = [*v.judge_unit(plan, heard), *v.judge_process(plan, heard), *v.judge_echoed(plan, heard)]
        raise NotProved(v.sentence(plan, broken[0], known), [*known, *v.judge_effective(plan, heard)])


def _hear(evidence, plan, log):
    """The start-up log as evidence: only the fields that the plan asks for, so nothing else leaves the host."""
    keys = {e.echoed_as for e in plan.expectations if e.echoed_as}
    echo = None
    if log.echo:
        values = {key: value for key, value in log.echo.values.items() if key in keys}
        echo = v.Said(values, f"server_args= {_at(log.echo.record)}", problem=log.echo.problem)
    lines = {
        head: [v.Said(s.fields, f"journal {_at(s.record)}", s.speaker, s.problem, s.record.text) for s in statements]
        for head, statements in log.statements.items()
    }
    if log.gap:  # what is not there may have been said: that is unreadable, not missing
        hidden = v.Said({}, f"journal of {plan.unit}", problem=log.gap)
        echo = echo or hidden
        lines = {head: said or [hidden] for head, said in lines.items()}
    return replace(evidence, echo=echo, lines=lines)


def _at(record):
    return time.strftime("%H:%M:%S", time.localtime(record.time))


def _listener(host, plan, give_up, until):
    """Who owns the listening socket; None if nobody listens at `give_up` (Unix seconds) or `until` (host.clock)."""
    while True:
        owner = host.listener(plan.port, host.unit(plan.unit).control_group)
        if owner or host.now() >= give_up or host.clock() >= until:
            return owner
        host.sleep(0.25)


def _ask(host, plan, evidence, owner, generate, key):
    """The evidence with what the running server answers."""
    if owner is None:
        return evidence
    listener = v.Said({"ours": owner.ours, "owner": owner.name}, f"listening socket of port {plan.port}")
    evidence = replace(evidence, listener=listener)
    if not owner.ours:
        return evidence  # whoever answers there is not asked
    address = f"http://{host.reachable(plan.host)}:{plan.port}"
    evidence = replace(
        evidence,
        server_info=_said(host, f"{address}/server_info", key),
        model_info=_said(host, f"{address}/model_info", key),
    )
    if generate:
        request = {"text": PROMPT, "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
        said = _said(host, f"{address}/generate", key, request, timeout=300)
        if not said.problem and not said.fields.get("text"):
            said = replace(said, problem="it answered without a text")
        evidence = replace(evidence, generation=said)
    return evidence


def _said(host, url, key, body=None, timeout=30):
    try:
        answer = host.get(url, key, body, timeout)
    except CannotRead as error:
        return v.Said({}, url, problem=str(error))
    return v.Said(answer, url) if isinstance(answer, dict) else v.Said({}, url, problem="it is no JSON object")


def _still(host, plan, start):
    """Raises NotProved unless this very start still runs."""
    unit = host.unit(plan.unit)
    if unit.invocation_id == start.invocation and unit.main_pid == start.pid:
        return
    ended = _read(host, plan, start.invocation, kernel_since=start.since)
    raise NotProved(_death(plan, unit, ended, start))


def _death(plan, unit, log, start=None):
    """Why there is no process, with the engine's own reason before systemd's."""
    cause = log.failure()
    if cause:
        reason, where = (
            cause.sentence,
            f"journal of {plan.unit}, {_at(cause.record)}" if cause.record else "the journal",
        )
    elif not unit.invocation_id:
        reason, where = "it was never started in this boot", f"systemctl status {plan.unit}"
    else:
        reason, where = f"the engine gave no reason; systemd says {unit.result or unit.sub_state}", "systemctl"
    again = f", systemd has started it {unit.n_restarts} more times" if unit.n_restarts else ""
    what = "ended during this start" if start else f"has no main process ({unit.active_state}/{unit.sub_state})"
    invocation = start.invocation if start else unit.invocation_id
    more = f"journalctl _SYSTEMD_INVOCATION_ID={invocation} on the host" if invocation else f"systemctl start {plan.unit}"
    return f"{plan.unit} {what}{again}: {reason}\n  read in  {where}\n  next     {more}; then ansible-playbook deploy.yml"
