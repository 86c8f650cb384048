"""What a start has said, as evidence for a plan, and what is kept of it for later days. Pure, no I/O.

What the engine said is kept when it was read, so that a week-old process stays proved after its first lines were rotated
away.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace

from . import redact
from . import verdict as v
from .journal import Decoder
from .startup_log import READY, StartupLog, read_prefix

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


def alarming(plan):
    """The texts that must not be said: by nobody, or not where a setting is declared so."""
    return [line["text"] for line in plan.forbidden] + [text for e in plan.expectations for text in e.contradict]


class Log(StartupLog):
    """The start-up log of one invocation, fed with lines of the journal."""

    def __init__(self, plan):
        heads = {w["head"]: w.get("last") for e in plan.expectations for w in e.witnesses if w["source"] == "line"}
        super().__init__(heads, alarming(plan), plan.benign)
        self.unit = plan.unit
        self._decoder = Decoder()
        self.cursor = None
        self.last = None  # the newest record of the service
        self.phase = "starting Python"

    def feed(self, line):
        for record in self._decoder.feed(line):
            self.cursor = record.cursor or self.cursor
            self.add(record)
            if record.origin != "service" or not record.text:
                continue
            self.last = record
            body = read_prefix(record.text)[1]
            self.phase = next((phase for head, phase in PHASES if body.startswith(head)), self.phase)

    @property
    def gap(self):
        """Why something may be missing that was said, or None."""
        lost = next(iter([*self.unreadable, *self.suppressed]), None)
        return lost and (lost.problem or lost.text)


def hear(evidence, plan, log):
    """The start-up log as evidence: only the fields that the plan asks for, so nothing else leaves the host."""
    keys = {e.echoed_as for e in plan.expectations if e.echoed_as}.union(v.CHANGEABLE)
    echo = None
    if log.echo:
        values = {key: value for key, value in log.echo.values.items() if key in keys}
        echo = v.Said(values, f"server_args= {at(log.echo.record)}", problem=log.echo.problem)
    lines = {
        head: [v.Said(s.fields, f"journal {at(s.record)}", s.speaker, s.problem, s.record.text) for s in statements]
        for head, statements in log.statements.items()
    }
    alarms = {
        text: v.Said({}, f"journal {at(record)}", text=redact.text(record.text)) for text, record in log.alarms.items()
    }
    if log.gap:  # what is not there may have been said: that is unreadable, not missing
        hidden = v.Said({}, f"journal of {plan.unit}", problem=log.gap)
        echo = echo or hidden
        lines = {head: said or [hidden] for head, said in lines.items()}
    # One before the ready line hides more than a later one; of each kind the first tells where.
    lost, early = next(iter(sorted(log.gaps, key=lambda gap: not gap[1])), (None, False))
    gap = lost and v.Said({"before_ready": early}, f"journal {at(lost)}", problem=lost.problem or lost.text)
    return replace(evidence, echo=echo, lines=lines, alarms=alarms, gap=gap)


def at(record):
    return time.strftime("%H:%M:%S", time.localtime(record.time)) if record.time else "at an unknown time"


def keep(plan, proved):
    """What is worth keeping of a proved start: JSON data for `startup.prove(kept=…)`."""
    return {
        "start": proved.start.to_dict(),
        "digest": plan.digest,
        "seconds": proved.seconds,
        "echo": asdict(proved.evidence.echo) if proved.evidence.echo else None,
        "lines": {head: [asdict(said) for said in lines] for head, lines in proved.evidence.lines.items()},
        "alarms": {text: asdict(said) for text, said in proved.evidence.alarms.items()},
    }


def remember(evidence, kept):
    """The evidence with what was heard earlier of the same start: that was whole, and the journal may be so no more."""
    echo, lines = evidence.echo, dict(evidence.lines)
    if kept["echo"]:
        known = v.Said(**kept["echo"])
        echo = replace(known, fields={**known.fields, **(echo.fields if echo else {})})
    for head, earlier in kept["lines"].items():
        known = [v.Said(**said) for said in earlier]
        fields = [said.fields for said in known]
        later = [said for said in lines.get(head, ()) if not said.problem and said.fields not in fields]
        lines[head] = [*known, *later] or lines.get(head, [])
    alarms = {text: v.Said(**said) for text, said in kept.get("alarms", {}).items()}
    gap = evidence.gap and replace(evidence.gap, fields={"before_ready": False})
    return replace(evidence, echo=echo, lines=lines, alarms={**evidence.alarms, **alarms}, gap=gap)
