#!/usr/bin/python
"""Waits until an engine that gets no new requests has none in flight."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_drain
short_description: Wait until an engine has no requests in flight
description:
  - Counts the requests of the engine that runs, running and waiting, in its own scheduler (C(/v1/loads), which SGLang has
    since 0.5.11 and which needs no C(--enable-metrics)), until there are none and nothing moves any more. A gateway cannot
    be asked: it forgets a worker that it gives no more requests.
  - An engine that does not run has none.
options:
  instance:
    description: Name of the instance; its unit is C(sglang-<instance>.service).
    type: str
    required: true
  state_dir:
    description: Directory on the host of the verified state of the instance.
    type: path
    required: true
  port:
    description: Port of an engine that this project did not start.
    type: int
  timeout:
    description: Seconds after which requests are overdue.
    type: int
    default: 300
  overdue:
    description:
      - What overdue requests mean, or an engine that does not say how many it has. V(fail) ends the change; V(proceed) goes
        on, and the engine has until its stop timeout to finish them.
    choices: [fail, proceed]
    type: str
    default: fail
attributes:
  check_mode:
    support: full
    details: Nothing is waited for.
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Wait for its requests
  sglang_drain:
    instance: k26
    state_dir: /var/lib/sglang-deploy/k26
"""

RETURN = r"""
requests:
  description: Requests in flight when it began to wait.
  type: int
  returned: when the engine said so
seconds:
  description: How long it waited.
  type: int
  returned: success
overdue:
  description: What was left, where O(overdue=proceed) went on.
  type: str
  returned: when something was left
"""

from ansible.module_utils import sglang_traffic
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotRead, Host
from ansible.module_utils.sglang_state import State, Unusable

ARGUMENTS = {
    "instance": {"type": "str", "required": True},
    "state_dir": {"type": "path", "required": True},
    "port": {"type": "int"},
    "timeout": {"type": "int", "default": 300},
    "overdue": {"type": "str", "choices": ["fail", "proceed"], "default": "fail"},
}


def main():
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    if module.check_mode:
        module.exit_json(changed=False, seconds=0)
    try:
        engine = sglang_traffic.Engine(Host(), State(params["state_dir"]), params["instance"])
        requests, seconds = engine.drain(params["timeout"], params["port"])
    except sglang_traffic.Overdue as error:
        if params["overdue"] == "fail":
            module.fail_json(msg=f"{error}.\n  next     {NEXT}")
        module.warn(f"{error}: the engine has until its stop timeout to finish them")
        module.exit_json(changed=False, seconds=params["timeout"], overdue=str(error))
    except (CannotRead, Unusable, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, requests=requests, seconds=round(seconds))


NEXT = "wait and run again, raise traffic_drain_timeout, or give them up: -e traffic_drain_overdue=proceed"


if __name__ == "__main__":
    main()
