#!/usr/bin/python
"""Reads, or proves, that the gateway runs as it is declared."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_gateway_state
short_description: Read what a gateway runs with, or assert that it is up
description:
  - Tells whether the process of the unit was started with a digest, and which workers it has ready.
  - With O(timeout) it waits until that is so, the unit's own process listens on the port, its API answers with the key and
    refuses without, and it has O(workers); and fails otherwise.
options:
  unit:
    description: Name of the unit.
    type: str
    required: true
  digest:
    description: What C(MODEL_GATEWAY_DIGEST) must be in the environment of the process.
    type: str
    required: true
  address:
    description: Address that it listens on.
    type: str
    required: true
  port:
    description: Port that it listens on.
    type: int
    required: true
  key_file:
    description: File on the host with the admin key.
    type: path
  workers:
    description: URLs that it must list as ready.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds to wait; 0 only reads.
    type: int
    default: 0
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Prove that it is up
  model_gateway_state:
    unit: model-gateway.service
    digest: "{{ digest }}"
    address: 0.0.0.0
    port: 8000
    timeout: 60
"""

RETURN = r"""
carries:
  description: Whether the process was started with the digest.
  type: bool
  returned: success
workers:
  description: URLs of the workers that it has ready.
  type: list
  elements: str
  returned: success
"""

from ansible.module_utils import sglang_traffic
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotRead, Host

ARGUMENTS = {
    "unit": {"type": "str", "required": True},
    "digest": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
    "key_file": {"type": "path", "no_log": False},
    "workers": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "int", "default": 0},
}


def main():
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params, host = module.params, Host()
    url = f"http://{host.reachable(params['address'])}:{params['port']}"
    until = host.clock() + params["timeout"]
    try:
        (gateway,), (stranger,) = (sglang_traffic.gateways([url], key) for key in (params["key_file"], None))
        while True:
            carries, workers = carried(host, params), ready(gateway)
            problem = wanting(host, params, carries, workers, stranger)
            if not params["timeout"] or not problem:
                if workers is None and host.unit(params["unit"]).main_pid:
                    module.warn(f"{params['unit']} runs and does not answer: which engines it had is not known")
                module.exit_json(changed=False, carries=carries, workers=workers or [])
            if host.clock() >= until:
                module.fail_json(
                    msg=f"{params['unit']} {problem}, {params['timeout']} s after it was asked for "
                    f"(model_gateway_start_timeout).\n  next     journalctl -u {params['unit']} -n 50 on the host"
                )
            host.sleep(0.5)
    except (CannotRead, ValueError) as error:
        module.fail_json(msg=str(error))


def carried(host, params):
    process = host.process(host.unit(params["unit"]).main_pid)
    return bool(process) and process[1].get("MODEL_GATEWAY_DIGEST") == params["digest"]


def ready(gateway):
    """URLs of its ready workers, None where it does not answer."""
    try:
        return sorted(worker.url for worker in gateway.workers() if worker.ready)
    except CannotRead:
        return None


def wanting(host, params, carries, workers, stranger):
    """What is not as it should be, as the rest of a sentence; nothing where all is."""
    unit = host.unit(params["unit"])
    if not unit.main_pid:
        return f"does not run ({unit.active_state}, {unit.result})"
    if not carries:
        return "runs with another configuration than is declared"
    owner = host.listener(params["port"], unit.control_group, params["address"])
    if owner is None or not owner.ours:
        return f"does not listen on port {params['port']}" + (f", which {owner.name} holds" if owner else "")
    if workers is None:
        return "does not answer GET /workers"
    if params["key_file"] and ready(stranger) is not None:
        return "answers GET /workers without the admin key"
    missing = sorted(set(params["workers"]) - set(workers))
    return f"has lost {', '.join(missing)}, which no host has registered again" if missing else ""


if __name__ == "__main__":
    main()
