"""Print what was proved on each host, and end the run with a failure where a promised proof is missing."""

from __future__ import annotations

import traceback

from ansible import context
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
    stopped in the middle.
  - A play with C(verdict_required) set to true in its C(vars) promises a passed table for each host of its
    pattern within C(--limit). Each host that ends the run without one is named with the reason, and the exit
    status is 2, or 4 where a host was unreachable. A pattern that matches no host is such a failure too.
requirements:
  - enabled in C(callbacks_enabled), as the last one, because it may end the process
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "verdict_table"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook):
        self._plays = playbook.get_plays()
        self._begun = set()  # hosts whose batch of a promising play began
        self._tables = {}  # host: {key: table}
        self._stopped = {}  # host: why it went no further

    def v2_playbook_on_play_start(self, play):
        if promises(play):
            self._begun.update(h.name for h in inventory_of(play).get_hosts(play.hosts))

    def v2_runner_on_ok(self, result):
        table = result.result.get("verdict_table")
        if table:
            self._tables.setdefault(result.host.name, {})[table.get("key")] = table

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if not ignore_errors:
            self._stopped[result.host.name] = f'failed in task "{result.task.get_name()}"'
        self.v2_runner_on_ok(result)

    def v2_runner_on_unreachable(self, result):
        self._stopped[result.host.name] = "unreachable"

    v2_runner_item_on_ok = v2_runner_on_ok
    v2_runner_item_on_failed = v2_runner_on_ok

    def v2_playbook_on_stats(self, stats):
        try:
            for host in self._hosts_in_order():
                for table in self._tables[host].values():
                    self._display.display(f"\n{host}  {render(table)}")
            unproved = self._unproved()
        except Exception:
            # Ansible turns an exception of a callback into a warning, and the run would end well.
            unproved = ["verdict_table itself failed:\n" + traceback.format_exc()]
        if unproved:
            self._display.display("\nNOT PROVED\n" + "\n".join(f"  {line}" for line in unproved), color="red")
            raise SystemExit(4 if stats.dark else 2)

    def _hosts_in_order(self):
        """The hosts that have tables, as the inventory lists them: results come in any order."""
        place = {name: number for number, name in enumerate(inventory_of(self._plays[0]).hosts)}
        return sorted(self._tables, key=lambda name: place.get(name, -1))

    def _unproved(self):
        """Print which hosts --limit left out; return a line for each promise that was not kept."""
        unproved, inside, outside = [], {}, {}
        promising = [play for play in self._plays if promises(play)]
        for play in promising:
            inventory, pattern = inventory_of(play), pattern_of(play)
            everywhere = inventory.get_hosts(pattern, ignore_limits=True, ignore_restrictions=True)
            if not everywhere:
                unproved.append(
                    f'no host matches "{readable(pattern)}" (play "{play.get_name()}"). Next: ansible-inventory --graph'
                )
            limited = {h.name for h in inventory.get_hosts(pattern, ignore_restrictions=True)}
            for host in everywhere:
                (inside if host.name in limited else outside)[host.name] = play
        if outside:
            self._display.display("\nnot in this run (--limit): " + ", ".join(outside))
        if outside and not inside:
            unproved.append("no host that must be proved is within --limit")
        for host, play in inside.items():
            reason = self._reason(host)
            if reason:
                unproved.append(f'{host}: {reason} (play "{play.get_name()}")')
        return unproved

    def _reason(self, host):
        """Say why this host is not proved; None if it is."""
        tables = self._tables.get(host, {}).values()
        if any(table.get("passed") is False for table in tables):
            return "its table did not pass"
        if any(table.get("passed") is None for table in tables) and not context.CLIARGS["check"]:
            return "its table claims nothing, and this was no check mode"
        if tables:
            return None
        if host in self._stopped:
            return self._stopped[host] + ", no verdict"
        if host not in self._begun:
            return "the run ended before its turn, no verdict"
        chosen = [
            f"--{option.replace('_', '-')}"
            for option, default in (("tags", "all"), ("skip_tags", None), ("start_at_task", None))
            if set(listed(context.CLIARGS.get(option))) - {default}
        ]
        if chosen:
            return f"what verifies was left out by {' and '.join(chosen)}, no verdict"
        return "no task gave a verdict"


def promises(play):
    """A value that is not plainly false promises: "{{ … }}" must not switch the check off by accident."""
    return play.vars.get("verdict_required", False) is not False


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


def render(table):
    """Lay out one table: columns padded to their widest cell, the title above, the notes below."""
    lines = [["-" if cell is None else str(cell) for cell in row] for row in [table["columns"], *table["rows"]]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([table["title"], *(f"  {line}" for line in [*body, *table.get("notes", ())])])
