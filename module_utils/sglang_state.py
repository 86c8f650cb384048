"""What is kept of one instance on its host: the last verified states, and the start that is not verified yet.

<state_dir>/verified.json   plan, unit and evidence of the last start that passed
<state_dir>/before.json     the same of the plan that was verified before it
<state_dir>/attempt.json    the plan that is being started and has not passed yet
<state_dir>/loads.json      how long the last starts that passed took, newest first
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from .sglang_host import read_json, write_json
from .sglang_proof.plan import Plan

VERSION = 1  # of these files' form
LOADS = 8  # are kept: enough to have seen a cold one among the warm
NO_ATTEMPT = {"digest": None, "failed": False, "back": False}
EVIDENCE = {"start", "digest", "seconds", "echo", "lines"}


class Unusable(Exception):
    """A verified state is there, but not one that can be gone back to. `str()` says why."""


class Verified(NamedTuple):
    """A start that passed: its plan, the text of its unit file, its evidence (`hearing.keep`)."""

    plan: Plan
    unit: str
    evidence: dict

    def to_dict(self):
        return {"version": VERSION, "plan": self.plan.to_dict(), "unit": self.unit, "evidence": self.evidence}


class State:
    """The files of one instance. Writing raises CannotKeep; the old file stays then."""

    def __init__(self, directory):
        self.directory = directory

    def verified(self, which="verified"):
        """The `verified` state, or the one `before` it; None if there never was one. Raises Unusable."""
        path = self._path(which)
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Unusable(f"{path} cannot be read: {error}") from None
        found = data.get("version") if isinstance(data, dict) else None
        if found != VERSION:
            raise Unusable(
                f"{path} has form {found!r}, and this project reads form {VERSION}: go back with the one that wrote it"
            )
        try:
            return Verified(Plan.from_dict(data["plan"]), data["unit"], data["evidence"])
        except (KeyError, TypeError, ValueError) as error:
            raise Unusable(f"{path}: {error}") from None

    def evidence(self):
        """The evidence of the last start that passed, or None; what cannot be used is none, and is made anew."""
        try:
            kept = self.verified()
        except Unusable:
            return None
        complete = kept and isinstance(kept.evidence, dict) and set(kept.evidence) >= EVIDENCE
        return kept.evidence if complete else None

    def keep(self, verified):
        """The start passed: what was verified before under another plan is `before` now, and no attempt is open."""
        with contextlib.suppress(Unusable):
            last = self.verified()
            if last and last.plan.digest != verified.plan.digest:
                write_json(self._path("before"), last.to_dict())
        write_json(self._path("verified"), verified.to_dict())
        self.close_attempt()

    def reject(self, plan):
        """What passed last was found wrong later: what was verified before it counts again; a next run makes it anew."""
        self._attempt(plan, failed=True)
        try:
            os.replace(self._path("before"), self._path("verified"))
        except FileNotFoundError:
            os.unlink(self._path("verified"))

    def open_attempt(self, plan, back=False):
        """A start of this plan is about to be made, perhaps on the way back; until it passes it may be gone back from, also
        by a later run."""
        self._attempt(plan, back=back)

    def fail_attempt(self, plan):
        """The start of this plan did not pass: the next run makes another one, though the process carries the plan."""
        attempt = self.attempt()
        if attempt["digest"] == plan.digest:
            self._attempt(plan, failed=True, back=attempt["back"])

    def close_attempt(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path("attempt"))

    def attempt(self):
        """{"digest", "failed", "back"} of the plan whose start was made and has not passed; the digest is None without."""
        attempt = read_json(self._path("attempt"))
        return {**NO_ATTEMPT, **(attempt if isinstance(attempt, dict) else {})}

    def loads(self):
        """[{"seconds", "cold"}] of the last starts that passed, newest first; `cold` ones read their weights from disk."""
        loads = read_json(self._path("loads"))
        return loads if isinstance(loads, list) else []

    def add_load(self, seconds, cold):
        write_json(self._path("loads"), [{"seconds": round(seconds), "cold": cold}, *self.loads()][:LOADS])

    def _attempt(self, plan, failed=False, back=False):
        write_json(self._path("attempt"), {"version": VERSION, "digest": plan.digest, "failed": failed, "back": back})

    def _path(self, name):
        return os.path.join(self.directory, f"{name}.json")
