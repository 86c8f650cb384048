"""Say when a host changes its phase, and keep the run as one HTML page and as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path

from ansible import context
from ansible.plugins.loader import callback_loader
from jinja2 import Environment

DOCUMENTATION = """
name: rollout_report
type: aggregate
short_description: Prints a line when a host changes its phase, and writes a report of the run
description:
  - A task, block or include may carry C(rollout_phase) in its C(vars), a word of C(plan), C(drain), C(change), C(load),
    C(prove), C(prompts), C(soak), C(analyse), C(back), C(admit) and C(done), or another. When a host begins another phase,
    a line with the time says so, and how long the phase before took. What is skipped begins none. With a condition it is
    seen when the task ends, so what takes long under a condition has the phase on an include.
  - A result may carry C(rollout_plan), a dictionary with C(id), C(batches) (lists of hosts), C(hosts) (a list of C(name),
    C(batch), C(restart), C(why) and C(seconds), the range in which it should be done), C(seconds) of the whole, C(policy)
    and what else should be kept of it.
  - What was planned, the phases, the outcomes, the tables of P(verdict_table#callback) and what they lack become one HTML
    page that needs nothing beside it, and JSON with the same content. A run with a plan is written as
    C(rollout-TIME-ID), when the plan is made and anew every few seconds while it goes on, and kept; any other under the
    name of its playbook when it ends, and replaces the one before. A run that concerns no host is not written.
  - Check mode claims nothing and knows no phases, because none of them happens.
options:
  directory:
    description: Where to write, relative to the current directory. Empty writes nothing.
    type: str
    default: ""
    env: [{name: ROLLOUT_REPORT_DIRECTORY}]
    ini: [{section: callback_rollout_report, key: directory}]
requirements:
  - enabled in C(callbacks_enabled), together with P(verdict_table#callback)
"""

PHASES = ("plan", "drain", "change", "load", "prove", "prompts", "soak", "analyse", "back", "admit", "done")
REFRESH = 10  # seconds between two writes of a run that goes on
PROVED = {"proved": True, "not proved": False, "interrupted": False, "check failed": False}  # other states claim nothing
PAGE = Path(__file__).with_suffix(".html.j2")
VerdictTable = callback_loader.get("verdict_table", class_only=True)  # a plugin beside this one can't be imported by name
tables = sys.modules[VerdictTable.__module__]


class CallbackModule(VerdictTable):
    """Knows what the tables' callback knows, and when it happened."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "rollout_report"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook):
        super().v2_playbook_on_start(playbook)
        self._playbook = Path(playbook._file_name).stem
        self._began = self._written = time.time()
        self._plan = None
        self._phases = {}  # host: [[phase, began, ended]], in Unix seconds
        self._waits = {}  # (host, task): when it began; whether it is in a phase, its condition decides

    def v2_playbook_on_play_start(self, play):
        super().v2_playbook_on_play_start(play)
        self._waits.clear()

    def v2_runner_on_start(self, host, task):
        phase = phase_of(task)
        if phase and task.when:
            self._waits[host.name, task._uuid] = time.time()
        elif phase:
            self._enter(host.name, phase, time.time())

    def v2_runner_on_ok(self, result):
        super().v2_runner_on_ok(result)
        self._leave(result)
        if plan := result.result.get("rollout_plan"):
            self._plan = plan
            self._write(self._report())

    def v2_runner_on_skipped(self, result):
        self._waits.pop((result.host.name, result.task._uuid), None)

    def v2_runner_on_unreachable(self, result):
        super().v2_runner_on_unreachable(result)
        self._leave(result)

    def _conclude(self, stats):
        report = self._report(ended=time.time())
        if report["hosts"] and context.CLIARGS["check"]:
            self._display.display(f"\nchecked, nothing was changed and nothing is claimed\n{summary(report)}")
        elif report["hosts"] and self._phases:
            self._display.display("\n" + summary(report))
        self._keep(report)

    def _interrupted(self):
        self._keep(self._report(ended=time.time(), interrupted=True))

    def _keep(self, report):
        path = self._write(report)
        if path:
            self._display.display(f"\nreport  {readable(path)}")

    def _enter(self, host, phase, began):
        phases = self._phases.setdefault(host, [])
        if phases and phases[-1][0] == phase:
            return
        before = f"  (after {phases[-1][0]}, {span(phases[-1][2] - phases[-1][1])})" if phases else ""
        phases.append([phase, began, began])
        self._display.display(f"[{host}] {clock(began)}  {phase}{before}")
        if self._plan and time.time() - self._written >= REFRESH:
            self._write(self._report())

    def _leave(self, result):
        """What a result ended belongs to its phase; with a condition the phase is seen only now."""
        host, phase = result.host.name, phase_of(result.task)
        began = self._waits.pop((host, result.task._uuid), None)
        if phase:
            self._enter(host, phase, began or time.time())
            self._phases[host][-1][2] = time.time()

    def _report(self, ended=None, interrupted=False):
        """The run as plain JSON data; without `ended` as it stands now."""
        in_order = self._tables_in_order()
        drift = tables.drifts(in_order)
        problems = [] if not ended else [self._interruption()] if interrupted else self._problems(drift)
        state = "under way" if not ended else "interrupted" if interrupted else judged(problems)
        of_host = {problem.host: problem for problem in problems}
        planned = {host["name"]: host for host in (self._plan or {}).get("hosts", ())}
        names = dict.fromkeys([*planned, *self._inside(), *(host for host, _ in in_order)])
        return {
            "playbook": self._playbook,
            "began": iso(self._began),
            "ended": iso(ended) if ended else None,
            "seconds": round((ended or time.time()) - self._began, 1),
            "state": state,
            "proved": PROVED.get(state),
            "problems": [problem._asdict() for problem in problems],
            "neighbours": [drift._asdict() for drift in drift],
            "not_in_this_run": self._outside(),
            "plan": self._plan,
            "hosts": [self._host(name, planned.get(name, {}), of_host.get(name), state) for name in names],
        }

    def _host(self, name, planned, problem, state):
        told = self._outcomes.get(name, {})
        said = [
            {key: value for key, value in table.items() if key != "runs"} for table in self._tables.get(name, {}).values()
        ]
        outcome = self._outcome(name, problem, state)
        if outcome == "failed" and (failure := self._failure(name)):
            problem = tables.Problem(name, failure.what, failure.cause)
        proved = True if outcome == "proved" else None
        if problem or any(table.get("passed") is False for table in said):
            proved = False
        phases = self._phases.get(name, [])
        if phases and state == "under way":
            phases = [*phases[:-1], [*phases[-1][:2], time.time()]]
        return {
            **planned,
            "name": name,
            "outcome": outcome if context.CLIARGS["check"] else told.get("outcome") or outcome,
            "proved": proved,
            "cause": told.get("cause") or (problem and (problem.cause or problem.reason)) or "",
            "phases": [{"phase": p, "began": iso(began), "seconds": round(end - began, 1)} for p, began, end in phases],
            "tables": said,
        }

    def _outcome(self, name, problem, state):
        """What became of a host of which no result told it."""
        passed = [table.get("passed") for table in self._tables.get(name, {}).values()]
        if state == "under way":
            return "under way" if name in self._phases else "waits"
        if state == "interrupted":
            return self._stands(name)
        if problem or False in passed:
            failure = self._failure(name)
            if failure and failure.what == "unreachable":
                return "unreachable"
            return "not proved" if failure or name in self._begun else "not reached"
        if not passed:
            return "claims nothing"
        if context.CLIARGS["check"]:
            return "unchanged" if all(passed) else "would change"
        return "proved" if all(passed) else "claims nothing"

    def _write(self, report):
        """Both files, each as a whole; the path of the page, or None where nothing is asked for or it cannot be written."""
        self._written = time.time()
        directory = self.get_option("directory")
        if not directory or not report["hosts"]:
            return None
        stem = self._playbook
        if self._plan:
            stem = f"rollout-{datetime.fromtimestamp(self._began):%Y%m%dT%H%M%S}-{self._plan['id']}"
        try:
            os.makedirs(directory, exist_ok=True)
            for suffix, text in ((".json", json.dumps(report, indent=1)), (".html", page(report))):
                path = Path(directory, stem + suffix)
                new = path.with_suffix(f"{suffix}.new")
                new.write_text(text, encoding="utf-8")
                new.replace(path)
        except OSError as error:
            self._display.warning(f"the report is not written: {error}. Next: set ROLLOUT_REPORT_DIRECTORY, empty for none")
            return None
        return path


def judged(problems):
    """The state of a run that came to its end."""
    if context.CLIARGS["check"]:
        return "check failed" if problems else "checked"
    return "not proved" if problems else "proved"


def phase_of(task):
    """The phase of a task, None of one that has none, and in check mode, where nothing is drained, changed or loaded."""
    if context.CLIARGS["check"]:
        return None
    phase = task.get_vars().get("rollout_phase")
    return phase if isinstance(phase, str) and "{{" not in phase else None


def page(report):
    """The report as HTML that needs nothing beside it."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(span=span, clock=lambda text: text[11:19], few=tables.few)
    members = [(host["name"], table) for host in report["hosts"] for table in host["tables"]]
    return environment.from_string(PAGE.read_text(encoding="utf-8")).render(
        **report,
        groups=tables.alike(members),
        timeline=timeline(report),
        causes=causes(report),
        sentences=[str(tables.Drift(**drift)) for drift in report["neighbours"]],
    )


def causes(report):
    """[(cause, its hosts)], and what the whole run lacks with no host: [(reason and cause, [])]."""
    found = {"\n".join([p["reason"], p["cause"]]).strip(): [] for p in report["problems"] if p["host"] is None}
    for host in report["hosts"]:
        if host["proved"] is False:
            found.setdefault(host["cause"], []).append(host)
    return list(found.items())


def phases_of(report):
    """The phases that occurred, those of PHASES in that order, others behind."""
    seen = dict.fromkeys(p["phase"] for host in report["hosts"] for p in host["phases"])
    return [*(p for p in PHASES if p in seen), *(p for p in seen if p not in PHASES)]


def timeline(report):
    """What to draw: the names of the phases, from when to when, and (host, [(phase, left %, width %, seconds)])."""
    spans = [(datetime.fromisoformat(p["began"]).timestamp(), p) for host in report["hosts"] for p in host["phases"]]
    if not spans:
        return None
    first = min(began for began, _ in spans)
    whole = max(began + p["seconds"] for began, p in spans) - first or 1
    return {
        "phases": phases_of(report),
        "began": iso(first),
        "ended": iso(first + whole),
        "hosts": [
            (
                host,
                [
                    (p, 100 * (datetime.fromisoformat(p["began"]).timestamp() - first) / whole, 100 * p["seconds"] / whole)
                    for p in host["phases"]
                ],
            )
            for host in report["hosts"]
        ],
    }


def summary(report):
    """The hosts as one table for the terminal: what became of each, and how long each phase took."""
    phases = phases_of(report)
    columns = ["host", *(["batch"] if report["plan"] else []), "outcome", *phases]
    rows = []
    for host in report["hosts"]:
        took = {p: sum(one["seconds"] for one in host["phases"] if one["phase"] == p) for p in phases}
        told = {"host": host["name"], "batch": host.get("batch"), "outcome": host["outcome"]}
        rows.append([told[c] if c in told else span(took[c]) if took[c] else None for c in columns])
    return tables.laid_out(columns, rows)


def iso(seconds):
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def clock(seconds):
    return f"{datetime.fromtimestamp(seconds):%H:%M:%S}"


def span(seconds):
    """Seconds for people: 0.4 s, 93 s, 4 min 30 s, 1 h 05 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def readable(path):
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
