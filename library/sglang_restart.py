#!/usr/bin/python
"""Restarts one SGLang service: stop, wait until its port and GPUs are free, start."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_restart
short_description: Restart an SGLang service on free GPUs
description:
  - Stops the plan's unit, waits until nobody holds its port or its GPUs, and starts it. A rank that was left over keeps GPU
    memory for good; who holds it is named, and the service is not started then.
  - Does not wait for the service to be ready, which C(sglang_startup) does.
options:
  plan:
    description: What C(sglang_plan) returned as RV(sglang_plan#module:plan).
    type: dict
    required: true
  state_dir:
    description: >-
      Directory on the host of the verified state. It is noted there that a start of this plan was made, until it is proved,
      so that also a later run can go back from it.
    type: path
  patience:
    description: Seconds until port and GPU memory must be free.
    type: int
    default: 120
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Restart
  sglang_restart:
    plan: "{{ planned.plan }}"
    state_dir: /var/lib/sglang-deploy/k26
"""

RETURN = r""" # """

from ansible.module_utils import sglang_control
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotKeep, CannotRead, Host
from ansible.module_utils.sglang_proof.plan import Plan
from ansible.module_utils.sglang_state import State

ARGUMENTS = {
    "plan": {"type": "dict", "required": True},
    "state_dir": {"type": "path"},
    "patience": {"type": "int", "default": sglang_control.PATIENCE},
}


def main():
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=True)
    try:
        plan = Plan.from_dict(module.params["plan"])
        if module.params["state_dir"]:
            State(module.params["state_dir"]).open_attempt(plan)
        sglang_control.restart(Host(), plan, module.params["patience"])
    except CannotKeep as error:
        module.fail_json(msg=f"{error}. The service was not touched: a start that nobody could go back from is not made")
    except (sglang_control.Held, CannotRead, ValueError) as error:
        module.fail_json(msg=str(error), changed=True)
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
