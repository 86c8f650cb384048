"""Runs the module of the same name and prints the plan that it made."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        result = self._execute_module(module_args=self._task.args, task_vars=task_vars)
        if result.get("text"):
            display.display("\n" + "\n".join(result.pop("text")) + "\n")
        return result
