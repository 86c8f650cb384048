#!/usr/bin/python
"""A lock on a host that expires: one run at a time changes it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_lease
short_description: Let one run at a time change a host
description:
  - Takes a lease on the host, a small file that says who changes it and until when at the latest, or gives it back. A lease
    that is not renewed ends by itself, so a controller that vanished blocks nobody for long.
  - The action plugin of the same name names the run. Of two runs the second is refused with holder and time, or waits; a
    run whose controller is this one and whose process is gone is replaced at once.
options:
  path:
    description: The file on the host.
    type: path
    required: true
  state:
    description: V(held) takes the lease or renews it, V(free) gives it back.
    choices: [held, free]
    default: held
    type: str
  seconds:
    description: How long it is valid without being renewed.
    type: int
    default: 900
  wait:
    description: Seconds to wait for a lease of another run before it is a failure.
    type: int
    default: 0
  purpose:
    description: What the run does, for the other that is refused.
    type: str
    default: a change
  token:
    description: Names the run. The action plugin sets it.
    type: str
  holder:
    description: Names the run for people. The action plugin sets it.
    type: str
  instead_of:
    description: Token of a run that is known to be gone. The action plugin sets it.
    type: str
attributes:
  check_mode:
    support: full
    details: Nothing is taken, and what another run does is no failure.
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Change the host alone
  host_lease:
    path: /var/lib/sglang-deploy/lease.json
    purpose: deploys sglang-k26.service
"""

RETURN = r"""
token:
  description: Names the run that holds the lease now.
  type: str
  returned: success
unreadable:
  description: That nothing is known of what runs, so that nobody goes back because of it.
  type: bool
  returned: failure
held_by:
  description: The lease of another run (token, holder, purpose, since, until) that is in force.
  type: dict
  returned: when there is one
"""

import os

from ansible.module_utils import host_lease
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotKeep

ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["held", "free"], "default": "held"},
    "seconds": {"type": "int", "default": host_lease.SECONDS},
    "wait": {"type": "int", "default": 0},
    "purpose": {"type": "str", "default": "a change"},
    "token": {"type": "str", "no_log": False},
    "holder": {"type": "str"},
    "instead_of": {"type": "str"},
}


def main():
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    result = {"changed": False, "token": params["token"]}
    if module.check_mode:
        module.exit_json(**result)
    try:
        if params["state"] == "free":
            host_lease.give_back(params["path"], params["token"])
            module.exit_json(**result)
        names = ("path", "token", "holder", "purpose", "seconds", "instead_of")
        held_by = host_lease.take(**{name: params[name] for name in names})
    except CannotKeep as error:
        module.fail_json(msg=f"{error}. Nothing was changed. Next: df -h {os.path.dirname(params['path'])} on the host")
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}. Nothing was changed")
    if held_by:
        sentence = host_lease.refusal(held_by, os.uname().nodename, "the same command again")
        module.fail_json(msg=sentence, held_by=held_by, unreadable=True, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
