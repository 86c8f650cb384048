"""Print what was proved on each host, and end the run with a failure where a promised proof is missing."""

from __future__ import annotations

import atexit
import contextlib
import json
import traceback
from collections import Counter
from typing import NamedTuple

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.callback import CallbackBase
from ansible.template import Templar

DOCUMENTATION = """
name: verdict_table
type: aggregate
short_description: Prints verdict tables at the end, and fails a run that proved less than it promised
description:
  - A task result, or one item of a loop, may carry C(verdict_table), a dictionary with C(title) (text),
    C(columns) (list of text), C(rows) (list of lists), C(notes) (list of text), C(passed) (true, false, or
    null in check mode) and C(key) (text; the tables of one host differ by it, the last of each key counts).
    The tables appear after the recap, each behind the name of its host, also when the run failed or was
    stopped in the middle. Tables that differ only in their titles, in the column C(read in) and in rows that C(own)
    (list of first cells) names as the host's own (there the column C(verdict) counts) appear as one.
  - A result may carry C(left_out), a list of the instances of the host that the run is not for. They are named.
  - A play with C(verdict_required) set to true in its C(vars) promises a passed table for each host of its
    pattern within C(--limit). Each host that ends the run without one, or that fails and is not rescued, whatever
    its tables say, is named with where it failed first, and with what it said there and last. The exit status is 2,
    or 4 where a host was unreachable. A pattern that matches no host is such a failure too.
  - A result may carry C(rollout_outcome), a dictionary of C(host), its C(outcome) (a word) and C(cause). Without a cause
    the host is done, and what fails on it later ends the run and says nothing of the host.
  - A run that does not come to its end, because of Ctrl-C or of an error of Ansible itself, says which hosts are proved,
    which were interrupted and which were not reached. Its exit status is Ansible's own.
  - A table may carry C(runs), a dictionary of dictionaries of text, subject to name to value. Hosts that speak of
    the same subject are neighbours in it, and each name under which they differ is drift and is named. A play with
    C(verdict_alike) set to true in its C(vars) promises that there is none; otherwise the exit status is 2. A host
    whose column C(declared) has another value than most of its neighbours is named too, and that is no failure.
requirements:
  - enabled in C(callbacks_enabled), as the last one, because it may end the process
"""

WHERE = "read in"  # the column that says where, and differs on hosts that are alike
SHOWN = 8  # differences of one subject on the terminal; an engine installed otherwise has hundreds


STANDS = ("proved", "failed", "interrupted", "not reached")


class Failure(NamedTuple):
    """A failure of a host: `what` happened in which play, and the cause as it was said there."""

    what: str
    play: str
    cause: str


class Problem(NamedTuple):
    """Why the run did not prove what it promised: of a host, or (None) of the run; and what was said of the cause."""

    host: str | None
    reason: str
    cause: str = ""


class Drift(NamedTuple):
    """What neighbours do not have in common: {value: hosts}, the fewest hosts first."""

    subject: str
    name: str
    values: dict
    fails: bool

    def __str__(self):
        values = ", ".join(f"{value} on {few(hosts)}" for value, hosts in self.values.items())
        return f"{self.subject}: {self.name} {values}"


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "verdict_table"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook):
        self._plays = playbook.get_plays()
        self._playing = ""  # the play that goes on
        self._batch = set()  # its hosts, if it promises
        self._begun = set()  # hosts whose batch of a promising play began
        self._tables = {}  # host: {key: table}
        self._failures = {}  # host: [Failure], also those that were rescued
        self._outcomes = {}  # host: {host, outcome, cause}
        self._ended_by = []  # (host, Failure) of hosts that were done
        self._left_out = {}  # host: instances that the run was not for
        self._lost = set()  # hosts that failed or were unreachable, and were not rescued
        self._over = False
        atexit.register(self._end)  # ansible-core 2.19 tells no callback of Ctrl-C

    def v2_playbook_on_play_start(self, play):
        self._playing = play.get_name()
        self._batch = {h.name for h in inventory_of(play).get_hosts(play.hosts)} if promises(play) else set()
        self._begun |= self._batch

    def v2_runner_on_ok(self, result):
        table = result.result.get("verdict_table")
        if table:
            self._tables.setdefault(result.host.name, {})[table.get("key")] = table
        if left_out := result.result.get("left_out"):
            self._left_out[result.host.name] = left_out
        if outcome := result.result.get("rollout_outcome"):
            self._outcomes[outcome["host"]] = outcome
            if not outcome["cause"]:
                self._failures.pop(outcome["host"], None)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if not ignore_errors:
            self._fail(result, f'failed in task "{result.task.get_name()}"')
        self.v2_runner_on_ok(result)

    def v2_runner_on_unreachable(self, result):
        self._fail(result, "unreachable")

    v2_runner_item_on_ok = v2_runner_on_ok
    v2_runner_item_on_failed = v2_runner_on_ok

    def _fail(self, result, what):
        host, failure = result.host.name, Failure(what, self._playing, cause_of(result.result))
        if self._is_done(host):
            self._ended_by.append((host, failure))
        else:
            self._failures.setdefault(host, []).append(failure)

    def _is_done(self, host):
        return host in self._outcomes and not self._outcomes[host]["cause"]

    def _end(self, stats=None):
        """Once, at the end of the run, or without `stats` of a process whose run does not come to its end."""
        if self._over:
            return
        self._over = True
        if stats:
            self._lost = {host for count in (stats.failures, stats.dark) for host in count if count[host]}
            self._conclude(stats)
        else:
            # What made Ansible end, such as a pattern that cannot be read, may be met again here, and was told already.
            with contextlib.suppress(AnsibleError):
                self._interrupted()

    def v2_playbook_on_stats(self, stats):
        self._end(stats)

    def _interrupted(self):
        if self._inside():
            self._display.display(not_proved([self._interruption()]), color="red")

    def _conclude(self, stats):
        try:
            tables = self._tables_in_order()
            for members in alike(tables):
                self._display.display("\n" + render(members))
            if outside := self._outside():
                self._display.display("\nnot in this run (--limit): " + ", ".join(outside))
            for left_out, hosts in by_value({host: ", ".join(names) for host, names in self._left_out.items()}).items():
                self._display.display(f"\nnot in this run (instance): {left_out} on {few(hosts)}")
            found = drifts(tables)
            if found:
                self._display.display("\n".join(["\nOTHERWISE THAN THEIR NEIGHBOURS", *indented(brief(found))]))
            problems = self._problems(found)
        except Exception:
            # Ansible turns an exception of a callback into a warning, and the run would end well.
            problems = [Problem(None, "verdict_table itself failed:\n" + traceback.format_exc())]
        if problems:
            self._display.display(not_proved(problems), color="red")
            raise SystemExit(4 if stats.dark else 2)

    def _tables_in_order(self):
        """[(host, table)], the hosts as the inventory lists them: results come in any order."""
        place = {name: number for number, name in enumerate(inventory_of(self._plays[0]).hosts)}
        hosts = sorted(self._tables, key=lambda name: place.get(name, -1))
        return [(host, table) for host in hosts for table in self._tables[host].values()]

    def _promised(self):
        """(play, its hosts) for each play that promises tables, whatever --limit says."""
        for play in self._plays:
            if promises(play):
                yield play, inventory_of(play).get_hosts(pattern_of(play), ignore_limits=True, ignore_restrictions=True)

    def _inside(self):
        """{host: its promising play}, within --limit."""
        return {
            host.name: play
            for play, _ in self._promised()
            for host in inventory_of(play).get_hosts(pattern_of(play), ignore_restrictions=True)
        }

    def _outside(self):
        """The promised hosts that --limit left out."""
        inside = self._inside()
        return list(dict.fromkeys(h.name for _, hosts in self._promised() for h in hosts if h.name not in inside))

    def _problems(self, found):
        """A Problem for each promise that was not kept."""
        problems = [
            Problem(
                None,
                f'no host matches "{readable(pattern_of(play))}" (play "{play.get_name()}"). '
                "Next: ansible-inventory --graph",
            )
            for play, hosts in self._promised()
            if not hosts
        ]
        inside = self._inside()
        if not inside and self._outside():
            problems.append(Problem(None, "no host that must be proved is within --limit"))
        for host, play in inside.items():
            if problem := self._problem(host, play.get_name()):
                problems.append(problem)
        for host, (what, play, cause) in self._ended_by:
            if host in self._lost:
                problems.append(Problem(None, f'the run ended at {host}, {what} (play "{play}")', cause))
        if any(drift.fails for drift in found) and any(promises(play, "verdict_alike") for play in self._plays):
            problems.append(Problem(None, "neighbours do not run the same, see above"))
        return problems

    def _problem(self, host, promising):
        """Why this host is not proved, which the play `promising` promises; None if it is."""
        tables = self._tables.get(host, {}).values()
        failure = self._failure(host)

        def because(reason, play=promising):
            return Problem(host, f'{reason} (play "{play}")', failure.cause if failure else "")

        if any(table.get("passed") is False for table in tables):
            return because("its table did not pass")
        if any(table.get("passed") is None for table in tables) and not context.CLIARGS["check"]:
            return because("its table claims nothing, and this was no check mode")
        if tables:
            return because(failure.what, failure.play) if failure and host in self._lost else None
        if failure:
            return because(f"{failure.what}, no verdict", failure.play)
        if host not in self._begun:
            return because("the run ended before its turn, no verdict")
        chosen = [
            f"--{option.replace('_', '-')}"
            for option, default in (("tags", "all"), ("skip_tags", None), ("start_at_task", None))
            if set(listed(context.CLIARGS.get(option))) - {default}
        ]
        if chosen:
            return because(f"what verifies was left out by {' and '.join(chosen)}, no verdict")
        return because("no task gave a verdict")

    def _failure(self, host):
        """Where the host failed first in the play that it did not finish, with what it said there and last; or None."""
        failures = self._failures.get(host)
        if not failures:
            return None
        last = failures[-1]
        first = next(failure for failure in failures if failure.play == last.play)
        said = [last.cause] if first.cause in last.cause else [first.cause, last.cause]
        return first._replace(cause="\n".join(said))

    def _interruption(self):
        """The Problem of a run that did not come to its end, with what stands."""
        hosts = {}
        for host in self._inside():
            hosts.setdefault(self._stands(host), []).append(host)
        stands = [f"{state:<12}{', '.join(hosts[state])}" for state in STANDS if state in hosts]
        reason = "interrupted. The same command again goes on from there"
        if not self._begun:
            reason = "ended before any host's turn, by Ctrl-C or by the error above"
        return Problem(None, reason, "\n".join(stands))

    def _stands(self, host):
        """How a host stands where the run was interrupted: a word of STANDS."""
        passed = [table.get("passed") for table in self._tables.get(host, {}).values()]
        if host in self._failures or False in passed:
            return "failed"
        # Of a host that is not done, another engine may still be to prove.
        if passed and all(passed) and (self._is_done(host) or host not in self._batch):
            return "proved"
        return "interrupted" if host in self._begun else "not reached"


def promises(play, what="verdict_required"):
    """A value that is not plainly false promises: "{{ … }}" must not switch the check off by accident."""
    return play.vars.get(what, False) is not False


def inventory_of(play):
    return play.get_variable_manager()._inventory


def pattern_of(play):
    """The hosts of a play; one that was not reached may still hold a template."""
    manager = play.get_variable_manager()
    return Templar(loader=play.get_loader(), variables=manager.get_vars(play=play)).template(play.hosts)


def listed(value):
    return [value] if isinstance(value, str) else value or []


def readable(pattern):
    return ",".join(listed(pattern))


def indented(items):
    return [f"  {line}" for item in items for line in str(item).splitlines()]


def few(hosts):
    return ", ".join(hosts) if len(hosts) < 5 else f"{hosts[0]}, {hosts[1]}, {hosts[2]} and {len(hosts) - 3} others"


def not_proved(problems):
    return "\n".join(["\nNOT PROVED", *indented(told(problems))])


def told(problems):
    """Hosts with the same problem together; what has a cause comes last, where it stays on the screen."""
    groups = {}
    for problem in sorted(problems, key=lambda p: bool(p.cause)):
        groups.setdefault((problem.reason, problem.cause), []).extend([problem.host] if problem.host else [])
    for (reason, cause), hosts in groups.items():
        yield "\n".join([f"{', '.join(hosts)}: {reason}" if hosts else reason, *indented([cause])])


def cause_of(result):
    """What a failed result says, of a loop what its failed items say, of a command the end of what it printed."""
    items = [i for i in result.get("results", ()) if isinstance(i, dict) and (i.get("failed") or i.get("unreachable"))]
    said = []
    for one in items or [result]:
        printed = str(one.get("stderr") or "").strip().splitlines()
        said.append("\n".join([str(one.get("msg", "")).strip(), *printed[-5:]]))
    return "\n".join(dict.fromkeys(said))


def drifts(tables):
    """What neighbours among [(host, table)] do not have in common, as Drifts."""
    subjects = {}  # subject: {host: {name: value}}
    for host, table in tables:
        for subject, said in table.get("runs", {}).items():
            subjects.setdefault(subject, {})[host] = said
    found = []
    for subject, hosts in subjects.items():
        for name in dict.fromkeys(name for said in hosts.values() for name in said):
            values = by_value({host: said.get(name, "absent") for host, said in hosts.items()})
            if len(values) > 1:
                found.append(Drift(subject, name, values, True))
    return [*found, *declared_otherwise(tables)]


def declared_otherwise(tables):
    """Settings for which most hosts declare one value and others another: a forgotten trial, or what was meant."""
    settings = {}  # (key, setting): {host: declared}
    for host, table in tables:
        if "declared" in table["columns"]:
            column = table["columns"].index("declared")
            for row in table["rows"]:
                settings.setdefault((table.get("key"), row[0]), {})[host] = str(row[column])
    for (key, setting), declared in settings.items():
        values = by_value(declared)
        most = list(values.values())[-1]
        if len(values) > 1 and 2 * len(most) > len(declared):
            yield Drift(key, f"{setting} is declared", values, False)


def by_value(said):
    """{value: [hosts]} of {host: value}, the fewest hosts first."""
    values = {}
    for host, value in said.items():
        values.setdefault(value, []).append(host)
    return dict(sorted(values.items(), key=lambda item: len(item[1])))


def brief(found):
    """Not more than SHOWN of one subject."""
    for subject, count in Counter(drift.subject for drift in found).items():
        yield from [drift for drift in found if drift.subject == subject][:SHOWN]
        if count > SHOWN:
            yield f"{subject}: {count - SHOWN} differences more"


def alike(tables):
    """[[(host, table)]]: together what differs only in what is each host's own."""
    groups = {}
    for host, table in tables:
        same = [table.get("key"), table["columns"], list(compared(table)), table.get("notes"), table.get("passed")]
        groups.setdefault(json.dumps(same), []).append((host, table))
    return list(groups.values())


def compared(table):
    """The cells of each row that hosts must share to be alike."""
    columns = table["columns"]
    for row in table["rows"]:
        shared = (columns[0], "verdict") if row[0] in table.get("own", ()) else [c for c in columns if c != WHERE]
        yield [cell for column, cell in zip(columns, row, strict=True) if column in shared]


def render(members):
    """Lay out one table: the titles of its hosts, columns padded to their widest cell, the notes below."""
    host, table = members[0]
    columns = [f"{c} on {host}" if c == WHERE and len(members) > 1 else c for c in table["columns"]]
    body = laid_out(columns, table["rows"]).splitlines()
    titles = [f"{host}  {table['title']}" for host, table in members]
    return "\n".join([*titles, *indented([*body, *table.get("notes", ())])])


def laid_out(columns, rows):
    """Lines with the columns padded to their widest cell."""
    lines = [["-" if cell is None else str(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
