"""Make the plan of a rollout from its policy and from what each host needs, and print it.

Arguments:
  policy    how the rollout may go: the keys of POLICY
  order     names of all hosts of the play in its order; without it only the policy is checked
  hosts     those of them that are alive: {name, instances}, and each instance is
            {instance, digest, restart, why, loads, timeout}

Cuts the hosts into batches for `serial`, and tells a range of time from the loads that were recorded on them. Hosts that
need no restart take no place in a batch. A policy that cannot be kept is refused.

Returns `rollout_plan`: what module_utils/rollout.make returns, and `since`, when it was made, in Unix seconds. It changes
nothing and needs no connection.
"""

from __future__ import annotations

import time

import ansible.module_utils
from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

# Ansible gives its modules this path, and its plugins not.
ansible.module_utils.__path__.extend(C.DEFAULT_MODULE_UTILS_PATH)
from ansible.module_utils import rollout, rollout_analysis  # noqa: E402  found by the line above

POLICY = {
    # Hosts that restart together, or a share of them; the last is used again.
    "batches": {"type": "list", "elements": "str", "required": True},
    "failures_allowed": {"type": "int", "default": 0},  # hosts
    "soak": {"type": "int", "default": 0},  # seconds under traffic after each restart
    "deadline": {"type": "int", "default": 0},  # seconds after which no further batch begins; 0 for none
    "apart": {"type": "dict", "default": {}},  # host: what it has in common with those that never restart with it
    "approval": {"type": "str", "choices": ["none", "plan", "canary"], "default": "none"},
    "serving_minimum": {"type": "str", "default": "0"},  # hosts of the fleet that must go on serving, or a share
    "fleet": {"type": "int", "default": 0},  # hosts, also those that are not in this run
    "forks": {"type": "int", "default": 25},
    "drain_timeout": {"type": "int", "default": 0},  # seconds
    "traffic_timeout": {"type": "int", "default": 0},  # seconds that a balancer may take; one engine leaves after the other
    "lease_host": {"type": "str", "default": ""},
    "analysis": rollout_analysis.CHECKS,  # what is compared at the end of each soak
    "prometheus": {"type": "str", "default": ""},  # URL that an analysis with a query asks
}

display = Display()


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(
            {
                "policy": {"type": "dict", "required": True, "options": POLICY},
                "order": {"type": "list", "elements": "str"},
                "hosts": {"type": "list", "elements": "dict", "default": []},
            }
        )
        try:
            if given["order"] is None:
                rollout.check(given["policy"])
                return {"changed": False}
            plan = rollout.make(given["order"], given["hosts"], given["policy"])
        except rollout.Refused as refused:
            problems = "\n".join(f"  {problem}" for problem in refused.problems)
            raise AnsibleActionFail(f"This rollout cannot be made. Nothing was changed.\n{problems}") from None
        display.display("\n" + "\n".join(rollout.text(plan)) + "\n")
        return {"changed": False, "rollout_plan": {**plan, "since": time.time()}}
