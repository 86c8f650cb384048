#!/usr/bin/python
"""Makes the plan of a rollout from its policy and from what each host needs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_plan
short_description: Plan which hosts change together, and how long that takes
description:
  - Cuts the hosts, in the order of the play, into batches for C(serial), and tells a range of time from the loads that were
    recorded on the hosts. Hosts that need no restart take no place in a batch.
  - Refuses a policy that cannot be kept. It touches no host and runs on the controller. The action plugin of the same name
    prints the plan.
options:
  order:
    description: Names of all hosts of the play in its order. Without it only the policy is checked.
    type: list
    elements: str
  hosts:
    description:
      - Those of them that are alive, each with its C(name), C(domain) (hosts with the same one never restart together) and
        C(instances), each of these with C(instance), C(digest), C(restart), C(why), C(loads) and C(timeout).
    type: list
    elements: dict
    default: []
  policy:
    description: How the rollout may go.
    type: dict
    required: true
    suboptions:
      batches:
        description: Sizes of the batches, hosts that restart or a share of them; the last one is used again.
        type: list
        elements: str
        required: true
      failures_allowed:
        description: How many hosts may fail before the rollout ends.
        type: int
        default: 0
      soak:
        description: Seconds under traffic after each restart.
        type: int
        default: 0
      deadline:
        description: Seconds after which no further batch begins; 0 for none.
        type: int
        default: 0
      approval:
        description: Where a person must approve the plan.
        type: str
        choices: [none, plan, canary]
        default: none
      serving_minimum:
        description: Hosts of the fleet that must go on serving, a number or a share.
        type: str
        default: "0"
      fleet:
        description: Hosts of the fleet, also those that are not in this run.
        type: int
        default: 0
      forks:
        description: Forks of this run.
        type: int
        default: 25
      drain_timeout:
        description: Seconds that a drain may take.
        type: int
        default: 0
      traffic_timeout:
        description: Seconds that a balancer may take, of which engines leave one after the other.
        type: int
        default: 0
      lease_host:
        description: Host of the fleet's lease.
        type: str
        default: ""
      analysis:
        description: What is compared at the end of each soak, C(checks) of the module C(rollout_soak).
        type: list
        elements: dict
        default: []
      prometheus:
        description: URL of the Prometheus that an analysis with a C(query) asks.
        type: str
        default: ""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Plan
  rollout_plan:
    order: "{{ ansible_play_hosts_all }}"
    hosts: "{{ ansible_play_hosts | map('extract', hostvars, 'rollout_host') }}"
    policy: {batches: [1, "25%", "100%"]}
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
rollout_plan:
  description: The plan, C(id), C(hosts), C(batches), C(sizes), C(seconds) and C(policy).
  type: dict
  returned: when O(order) was given
text:
  description: The plan as lines for people.
  type: list
  elements: str
  returned: when O(order) was given
"""

import time

from ansible.module_utils import rollout, rollout_analysis
from ansible.module_utils.basic import AnsibleModule

POLICY = {
    "batches": {"type": "list", "elements": "str", "required": True},
    "failures_allowed": {"type": "int", "default": 0},
    "soak": {"type": "int", "default": 0},
    "deadline": {"type": "int", "default": 0},
    "approval": {"type": "str", "choices": ["none", "plan", "canary"], "default": "none"},
    "serving_minimum": {"type": "str", "default": "0"},
    "fleet": {"type": "int", "default": 0},
    "forks": {"type": "int", "default": 25},
    "drain_timeout": {"type": "int", "default": 0},
    "traffic_timeout": {"type": "int", "default": 0},
    "lease_host": {"type": "str", "default": ""},
    "analysis": rollout_analysis.CHECKS,
    "prometheus": {"type": "str", "default": "", "no_log": True},
}


def main():
    module = AnsibleModule(
        {
            "order": {"type": "list", "elements": "str"},
            "hosts": {"type": "list", "elements": "dict", "default": []},
            "policy": {"type": "dict", "required": True, "options": POLICY},
        },
        supports_check_mode=True,
    )
    order, hosts, policy = (module.params[name] for name in ("order", "hosts", "policy"))
    try:
        if order is None:
            rollout.check(policy)
            module.exit_json(changed=False)
        plan = rollout.make(order, hosts, policy)
    except rollout.Refused as refused:
        problems = "\n".join(f"  {problem}" for problem in refused.problems)
        module.fail_json(msg=f"This rollout cannot be made. Nothing was changed.\n{problems}")
    module.exit_json(changed=False, rollout_plan={**plan, "since": time.time()}, text=rollout.text(plan))


if __name__ == "__main__":
    main()
