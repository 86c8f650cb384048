#!/usr/bin/python
"""Puts back the last verified state of one SGLang service; a first start that failed is stopped and disabled."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_restore
short_description: Go back to the last verified state of an SGLang service
description:
  - Puts back the unit file that was kept when its start was proved, and restarts the service exactly where the running
    process does not carry that plan, on free GPUs as C(sglang_restart) does. C(sglang_startup) with RV(plan) proves it then.
  - Where no start was ever verified, the service is stopped and disabled, so that it does not fail again and again.
  - It puts back how the engine is started, not its files. A package or model that was replaced in place stays replaced.
options:
  instance:
    description: Name of the instance; its unit is C(sglang-<instance>.service).
    type: str
    required: true
  unit_path:
    description: Where the unit file lies.
    type: path
    required: true
  state_dir:
    description: Directory on the host of the verified state.
    type: path
    required: true
  failed:
    description: >-
      The digest of the plan whose start failed. If it is the verified one, there is nothing to go back to.
      Without it, as on demand, the way goes to the last verified plan, or to the one before it if that is what runs.
    type: str
  proved:
    description: >-
      Whether the start of O(failed) had been proved and was found wrong later. The way goes to what was verified before it,
      and that counts as verified last again.
    type: bool
    default: false
  patience:
    description: Seconds until port and GPU memory must be free.
    type: int
    default: 120
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author: The contributors
"""

EXAMPLES = r"""
- name: Go back
  sglang_restore:
    instance: k26
    unit_path: /etc/systemd/system/sglang-k26.service
    state_dir: /var/lib/sglang-deploy/k26
  register: restored

- name: Prove what runs again
  sglang_startup:
    plan: "{{ restored.plan }}"
    unit_path: /etc/systemd/system/sglang-k26.service
"""

RETURN = r"""
plan:
  description: The plan that runs again, the argument of C(sglang_startup); null where there is none.
  type: dict
  returned: success
restarts:
  description: Whether a running service was stopped for it, in check mode whether it would be.
  type: bool
  returned: success
did:
  description: What was done, as a sentence.
  type: str
  returned: success
"""

from ansible.module_utils import sglang_control
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotKeep, CannotRead, Host
from ansible.module_utils.sglang_state import State, Unusable

ARGUMENTS = {
    "instance": {"type": "str", "required": True},
    "unit_path": {"type": "path", "required": True},
    "state_dir": {"type": "path", "required": True},
    "failed": {"type": "str"},
    "proved": {"type": "bool", "default": False},
    "patience": {"type": "int", "default": sglang_control.PATIENCE},
}


def main():
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    try:
        back = sglang_control.go_back(
            Host(),
            State(params["state_dir"]),
            f"sglang-{params['instance']}.service",
            params["unit_path"],
            failed=params["failed"],
            proved=params["proved"],
            patience=params["patience"],
            dry=module.check_mode,
        )
    except (sglang_control.Held, CannotKeep, CannotRead, Unusable) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=back.changed,
        did=back.did,
        restarts=back.restarts,
        plan=back.plan and back.plan.to_dict(),
        diff={"before": back.unit_before, "after": back.unit_after, "before_header": params["unit_path"]},
    )


if __name__ == "__main__":
    main()
