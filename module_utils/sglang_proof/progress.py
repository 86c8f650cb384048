"""Tells a slow load from a hang: what the processes of a start read, hold and compute from one look to the next. Pure.

A hang that computes, as ranks do that wait for each other in NCCL, looks like work. What tells it from work is that nothing
comes of it: no byte read, no memory taken, no line. A compiler or a capture of CUDA graphs can be so for minutes, so it is
suspected early and believed late.
"""

from __future__ import annotations

INTERVAL = 5  # seconds between two looks
QUIET = 60  # seconds without a movement until the progress line says so
FRUITLESS = 180  # seconds of computing of which nothing comes, until the progress line says so
MEGABYTE = 1_000_000
IDLE = 0.05  # CPUs; event loops and heartbeats of a hung engine need less


class Watch:
    """When a start last moved. `to_dict()` and `resume` carry it from one slice of the wait to the next."""

    def __init__(self, invocation, now, resume=None):
        if not resume or resume["invocation"] != invocation:
            resume = {"moved_at": now, "got_on_at": now, "looked_at": now, "usage": None}
        self.invocation = invocation
        self.moved_at = resume["moved_at"]
        self.got_on_at = resume["got_on_at"]
        self.looked_at = resume["looked_at"]
        self.usage = resume["usage"]
        self._since, self._read, self._grown, self._computed = self.looked_at, 0, 0, 0.0

    def to_dict(self):
        return {
            "invocation": self.invocation,
            "moved_at": self.moved_at,
            "got_on_at": self.got_on_at,
            "looked_at": self.looked_at,
            "usage": self.usage,
        }

    def is_due(self, now):
        return self.usage is None or now - self.looked_at >= INTERVAL

    def look(self, now, usage):
        """Take a reading: process id (text) → [bytes read, resident bytes, CPU seconds]."""
        read, grown, computed = _growth(self.usage or {}, usage)
        # What cannot be seen is no hang, and the first reading has nothing to be compared with.
        blind = not usage or self.usage is None
        if blind or read or grown >= MEGABYTE:
            self.moved_at = self.got_on_at = now
        elif computed >= IDLE * (now - self.looked_at):
            self.moved_at = now
        if self.usage is not None:
            self._read, self._grown, self._computed = self._read + read, self._grown + grown, self._computed + computed
        self.looked_at, self.usage = now, usage

    def heard(self, when):
        """A line of the log is a movement too. `when`: Unix seconds."""
        self.moved_at, self.got_on_at = max(self.moved_at, when), max(self.got_on_at, when)

    def quiet_for(self, now):
        return now - self.moved_at

    def fruitless_for(self, now):
        """Seconds in which it may have computed, but read nothing, took no memory and said nothing."""
        return now - self.got_on_at

    def describe(self, now):
        """What moves, for people; empty where there is nothing to say."""
        seconds = now - self._since
        if self.quiet_for(now) >= QUIET:
            return f"nothing has moved for {self.quiet_for(now):.0f} s"
        if self._read >= MEGABYTE:
            return f"{_size(self._read)} read in {seconds:.0f} s"
        if self._grown >= MEGABYTE:
            return f"memory grew by {_size(self._grown)} in {seconds:.0f} s"
        if seconds and self._computed >= IDLE * seconds:
            fruitless = self.fruitless_for(now)
            doubt = f", and nothing read, taken or said for {fruitless:.0f} s: a hang?" if fruitless >= FRUITLESS else ""
            return f"{self._computed / seconds:.1f} CPUs busy{doubt}"
        return ""


def _growth(before, usage):
    """(bytes read, bytes grown, CPU seconds) since the last reading; a process that ended takes nothing back."""
    nothing = (0, 0, 0)
    grown = [[max(0, b - a) for a, b in zip(before.get(pid, nothing), now)] for pid, now in usage.items()]
    return [sum(column) for column in zip(*grown)] or [0, 0, 0.0]


def _size(count):
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
