"""Tell the callbacks how a rollout ended on a host.

Arguments:
  host      its name
  outcome   proved, unchanged, gone back or failed
  cause     why, where it failed

Returns them as `rollout_outcome`. It changes nothing and needs no connection.
"""

from __future__ import annotations

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _, told = self.validate_argument_spec(
            {name: {"type": "str", "required": True} for name in ("host", "outcome", "cause")}
        )
        return {"changed": False, "rollout_outcome": told}
