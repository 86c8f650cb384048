"""Calls the module of the same name in slices, so that a load of ten minutes is seen to go on and survives a lost SSH."""

from __future__ import annotations

import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

SLICE = 20  # seconds; the module itself returns at once when something decisive is said
AGAIN = 60  # seconds until the same phase is printed again: many hosts load at once
LOST_CONNECTION_SECONDS = 120  # sshd may restart, or the network pause, while the engine loads

display = Display()


class ActionModule(ActionBase):
    """Knows nothing of the engine: repeats until `finished`, and prints how it goes on.

    A host that answered before is waited for when its connection is lost; one that never did is unreachable at once.
    """

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        arguments = {"slice": SLICE, **self._task.args}
        shown, shown_at, lost_since, answered = None, 0.0, None, "plan" in arguments
        while True:
            try:
                result = self._execute_module(module_args=arguments, task_vars=task_vars)
            except AnsibleConnectionFailure:
                if not answered:
                    raise
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LOST_CONNECTION_SECONDS:
                    raise
                display.display(f"[{host}] connection lost, trying again")
                time.sleep(2)
                self._connection.reset()
                continue
            lost_since, answered = None, True
            if result.get("failed") or result.get("finished", True):
                return result
            arguments["resume"] = result["resume"]
            if result["phase"] != shown or time.monotonic() - shown_at >= AGAIN:
                shown, shown_at = result["phase"], time.monotonic()
                display.display(f"[{host}] {progress(result)}")


def progress(result):
    """`  42 s  loading weights, 312 MB read in 20 s (last time 61 s)`"""
    moves = f", {result['moves']}" if result["moves"] else ""
    usual = f" (last time {result['usual']} s)" if "usual" in result else ""
    return f"{result['seconds']:4d} s  {result['phase']}{moves}{usual}"
