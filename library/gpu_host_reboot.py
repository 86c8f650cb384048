#!/usr/bin/python
"""Decide whether a GPU host must reboot, and whether it may."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_reboot
short_description: Decide whether a GPU host must reboot, and whether it may
description:
  - The one reboot decision. It compares the running boot with what is declared, whoever changed what and when, so that a run
    that was aborted between installing and rebooting is finished by the next one.
  - It gives the same answer before the packages are changed, because the declared driver is compared with the loaded one; a
    reboot that must not be is refused before it is needed.
  - Refuses (fails) where a reboot is needed and must not be. Reads only.
options:
  facts:
    description: The facts of M(gpu_host_facts).
    type: dict
    required: true
  driver_version:
    description: The full version of the declared driver.
    type: str
    required: true
  kernel_parameters:
    description: Words that the kernel command line must have.
    type: list
    elements: str
    default: []
  module_options:
    description: "Declared parameters by module: V({nvidia_uvm: {uvm_disable_hmm: 1}})."
    type: dict
    default: {}
  allowed:
    description: Whether a reboot is allowed.
    type: bool
    default: false
  stop_services:
    description: Whether services that use the GPUs may be stopped for it.
    type: bool
    default: false
  stage:
    description:
      - V(planned) before anything is changed. V(installed) afterwards, when the newest kernel must have the declared module.
        V(rebooted) after the reboot, when no reason may be left.
    type: str
    choices: [planned, installed, rebooted]
    default: planned
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Decide
  gpu_host_reboot:
    facts: "{{ host.facts }}"
    driver_version: 580.95.05
    allowed: true
  register: reboot
"""

RETURN = r"""
reasons:
  description: Why the host must reboot; empty if it need not.
  type: list
  elements: str
  returned: always
services:
  description: Active services that use the GPUs.
  type: list
  elements: str
  returned: always
record:
  description: What to keep before the reboot, so that one that does not help is not repeated.
  type: dict
  returned: always
record_path:
  description: The file to keep it in.
  type: str
  returned: always
recorded:
  description: Whether one is there.
  type: bool
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpu_host import reboot
from ansible.module_utils.sglang_host import read_json


def active_units(module):
    """Services of SGLang that run, come or go."""
    states = "--state=active,activating,deactivating,reloading"
    argv = ["systemctl", "list-units", "--type=service", states, "--plain", "--no-legend", "sglang*"]
    _, listing, _ = module.run_command(argv, environ_update={"LC_ALL": "C"}, check_rc=True)
    return [line.split()[0] for line in listing.splitlines() if line.strip()]


def main():
    module = AnsibleModule(
        {
            "facts": {"type": "dict", "required": True},
            "driver_version": {"type": "str", "required": True},
            "kernel_parameters": {"type": "list", "elements": "str", "default": []},
            "module_options": {"type": "dict", "default": {}},
            "allowed": {"type": "bool", "default": False},
            "stop_services": {"type": "bool", "default": False},
            "stage": {"type": "str", "choices": ["planned", "installed", "rebooted"], "default": "planned"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    facts, version = asked["facts"], asked["driver_version"]
    why = reboot.reasons(facts, version, asked["kernel_parameters"], asked["module_options"])
    services, others = reboot.holders(active_units(module), facts["processes"])
    last = read_json(reboot.RECORD) or {}
    result = {
        "reasons": why,
        "services": services,
        "record": reboot.record(facts, version, why),
        "record_path": reboot.RECORD,
        "recorded": bool(last),
    }
    if asked["stage"] != "planned":
        unready = reboot.unready(facts, version)
        if unready:
            module.fail_json(msg=unready, **result)
    if why:
        against = reboot.obstacles(
            facts,
            holders=[*([] if asked["stop_services"] else services), *others],
            allowed=asked["allowed"],
            tried=asked["stage"] == "rebooted" or reboot.was_tried(last, facts, version, why),
        )
        if against:
            module.fail_json(msg=f"A reboot is needed: {'; '.join(why)}. But {'; but '.join(against)}.", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
