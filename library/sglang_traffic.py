#!/usr/bin/python
"""Takes an engine out of the traffic of its gateways, or in again when its running start is proved."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_traffic
short_description: Take an engine out of traffic, or in again when it is proved
description:
  - C(state=out) notes on the host that the instance is kept out on purpose, and takes it out of all gateways, until none of
    them gives it new requests. It is refused where fewer hosts than declared would go on serving. C(sglang_drain) waits for
    the requests in flight then.
  - C(state=in) is refused unless the start that runs now is the one that was proved. It registers the engine at all gateways
    until each of them lists it as ready, and removes the note. Where a gateway is away it fails, and the note is removed all
    the same, so that the host itself tells that gateway when it is back. What was taken out by hand, with
    C(sglang-deploy out), stays out, with a warning.
  - Runs on the engine's host, which must reach the gateways. Gateways are those of smg (C(model_gateway)); an older
    sglang-router has the same calls. Without gateways the note and the proof are all, as other balancers need them.
options:
  instance:
    description: Name of the instance; its unit is C(sglang-<instance>.service).
    type: str
    required: true
  state:
    description: Whether it shall get requests.
    choices: [in, out]
    type: str
    required: true
  state_dir:
    description: Directory on the host of the verified state of the instance.
    type: path
    required: true
  address:
    description: Host name or address under which the gateways reach this host, and list it.
    type: str
    required: true
  gateways:
    description: URLs of the gateways.
    type: list
    elements: str
    default: []
  gateway_key_file:
    description: File on the host with the admin key of the gateways, for C(Authorization).
    type: path
  port:
    description: Port of an engine that this project did not start, and that is taken out; no start of it was ever proved.
    type: int
  untouched:
    description:
      - With C(state=in), that it was in traffic before, as RV(served) said, was taken out and not touched since.
      - It goes back without a proof.
    type: bool
    default: false
  minimum:
    description: Hosts that must go on serving the same model, a number, or a percentage of O(fleet).
    type: str
    default: "0"
  fleet:
    description: Number of hosts that a percentage speaks of.
    type: int
    default: 1
  timeout:
    description: Seconds until all gateways must have done what they were asked for.
    type: int
    default: 60
  why:
    description: Why it is kept out, for who finds it so.
    type: str
    default: taken out by ansible
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Take it out
  sglang_traffic:
    instance: k26
    state: out
    state_dir: /var/lib/sglang-deploy/k26
    address: 192.0.2.11
    gateways: ["http://192.0.2.9:8000"]
    minimum: 75%
    fleet: 8
"""

RETURN = r"""
url:
  description: The engine as the gateways list it; null where nothing of this project was ever started and no port is given.
  type: str
  returned: success
served:
  description: With C(state=out), whether it got requests until now; without gateways, whether it was not held out.
  type: bool
  returned: once the gateways were read, also where it is refused
left:
  description: With C(state=out), whether it was allowed to leave; what was refused before is as it was.
  type: bool
  returned: once the gateways were read, also where it fails
held:
  description: With C(state=in), whether it stays out because a person took it out.
  type: bool
  returned: success
"""

from ansible.module_utils import sglang_traffic
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotKeep, CannotRead, Host
from ansible.module_utils.sglang_state import State, Unusable

ARGUMENTS = {
    "instance": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["in", "out"], "required": True},
    "state_dir": {"type": "path", "required": True},
    "address": {"type": "str", "required": True},
    "gateways": {"type": "list", "elements": "str", "default": []},
    "gateway_key_file": {"type": "path", "no_log": False},
    "port": {"type": "int"},
    "untouched": {"type": "bool", "default": False},
    "minimum": {"type": "str", "default": "0"},
    "fleet": {"type": "int", "default": 1},
    "timeout": {"type": "int", "default": 60},
    "why": {"type": "str", "default": "taken out by ansible"},
}


def main():
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    engine = sglang_traffic.Engine(Host(), State(params["state_dir"]), params["instance"], params["address"])
    try:
        gateways = sglang_traffic.gateways(params["gateways"], params["gateway_key_file"])
        if params["state"] == "in":
            changed = engine.take_in(
                gateways, params["timeout"], port=params["port"], untouched=params["untouched"], dry=module.check_mode
            )
        else:
            minimum = sglang_traffic.required(params["minimum"], params["fleet"])
            changed = engine.take_out(
                gateways, params["timeout"], minimum, params["why"], port=params["port"], dry=module.check_mode
            )
    except (sglang_traffic.Refused, CannotRead, CannotKeep, Unusable, ValueError) as error:
        module.fail_json(msg=str(error), served=engine.served, left=engine.left)
    except OSError as error:
        module.fail_json(
            msg=f"{error.filename}: {error.strerror}. Nothing was changed", served=engine.served, left=engine.left
        )
    if changed is None:
        held = engine.hold.read()
        module.warn(
            f"{engine.unit} stays out of traffic: {held['why']}. Next: sglang-deploy in {engine.instance} on the host"
        )
    module.exit_json(changed=bool(changed), url=engine.outer, served=engine.served, left=engine.left, held=changed is None)


if __name__ == "__main__":
    main()
