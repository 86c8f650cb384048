"""Stands for any module: returns what it is given, after as many seconds as `takes` says. Needs no connection."""

from __future__ import annotations

import time

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        time.sleep(float(self._task.args.get("takes", 0)))
        return dict(self._task.args)
