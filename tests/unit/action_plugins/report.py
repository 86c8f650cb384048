"""Stands for any module: returns what it is given, after as many seconds as `takes` says. Needs no connection.

With `tells` it tells the test that it is under way, and not through Ansible's queue of results: a worker that is killed
while it holds the lock of that queue makes Ansible wait for ever (ansible-core 2.19).
"""

from __future__ import annotations

import os
import time

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        if self._task.args.get("tells") and "TELLS" in os.environ:
            os.write(int(os.environ["TELLS"]), b".")
        time.sleep(float(self._task.args.get("takes", 0)))
        return dict(self._task.args)
