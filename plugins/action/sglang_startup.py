"""Calls the module of the same name in slices, so that a load of ten minutes is seen to go on and survives a lost SSH."""

from __future__ import annotations

import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

SLICE = 20  # seconds; the module itself returns at once when something decisive is said
LOST_CONNECTION_SECONDS = 120  # sshd may restart, or the network pause, while the engine loads

display = Display()


class ActionModule(ActionBase):
    """Knows nothing of the engine: repeats until `finished`, and prints `phase` when it changes."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        host = task_vars["inventory_hostname"]
        arguments = {"slice": SLICE, **self._task.args}
        shown, lost_since = None, None
        while True:
            try:
                result = self._execute_module(module_args=arguments, task_vars=task_vars)
            except AnsibleConnectionFailure:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LOST_CONNECTION_SECONDS:
                    raise
                display.display(f"[{host}] connection lost, trying again")
                time.sleep(2)
                self._connection.reset()
                continue
            lost_since = None
            if result.get("failed") or result.get("finished", True):
                return result
            if result["phase"] != shown:
                shown = result["phase"]
                display.display(f"[{host}] {result['seconds']:4d} s  {shown}")
