#!/usr/bin/python
"""Decide what makes the declared NVIDIA driver on this host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_plan
short_description: Decide which packages make the declared NVIDIA driver here
description:
  - Compares the declared driver with the installed packages and with what the repository offers, and returns one transaction
    for apt. Refuses systems that are not supported, a mix of sources, held packages and versions that are not offered.
  - A branch is satisfied by any of its versions that is installed as a whole; nothing is upgraded without being asked for.
options:
  facts:
    description: The facts of M(gpu_host_facts).
    type: dict
    required: true
  version:
    description: A branch such as V(580), or a version such as V(580.95.05).
    type: str
    required: true
  repositories:
    description: The directory of the repositories for all distributions.
    type: str
    required: true
  offered:
    description: Versions by name in the repository. Without them only what is installed is judged.
    type: dict
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
notes:
  - Reads only, with C(apt-cache madison).
author: The contributors
"""

EXAMPLES = r"""
- name: Decide
  nvidia_driver_plan:
    facts: "{{ host.facts }}"
    version: "580"
    repositories: https://mirror.example.com/cuda/repos
  register: plan
"""

RETURN = r"""
version:
  description: The driver's version, null where it depends on what the repository offers.
  type: str
  returned: success
complete:
  description: Whether all is installed already.
  type: bool
  returned: success
install:
  description: Packages to install in one transaction, V(NAME=VERSION) or V(NAME).
  type: list
  elements: str
  returned: success
remove:
  description: Installed packages that contradict the declared driver.
  type: list
  elements: str
  returned: success
pin:
  description: Content of the file of apt preferences that keeps the version.
  type: str
  returned: success
repository:
  description: "uri, key (its URL), fingerprint, and packages (globs) of the repository."
  type: dict
  returned: success
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpu_host import apt_source, packages

RUNFILE = Path("/usr/bin/nvidia-uninstall")  # left by NVIDIA's .run installer, and by nothing else
SOURCE = Path("/etc/apt/sources.list.d/nvidia-cuda.sources")  # as the role declared it last, perhaps at another mirror


def check_sources(module, installed, uri):
    """Raises Refused where driver files come from elsewhere than the repository."""
    if RUNFILE.exists():
        raise packages.Refused(f"A driver of NVIDIA's .run installer is here. Next, on the host: {RUNFILE}, then run again.")
    names = sorted(name for name in installed if "nvidia" in name or name.startswith("libcuda"))
    if not names:
        return
    before = apt_source.uri_of(SOURCE.read_text("utf-8")) if SOURCE.exists() else ""
    _, listing, _ = module.run_command(["apt-cache", "madison", *names], environ_update={"LC_ALL": "C"}, check_rc=True)
    mixed = packages.from_elsewhere(installed, listing, [uri, before])
    if mixed:
        named = ", ".join(f"{name} {installed[name]} from {source}" for name, source in mixed.items())
        raise packages.Refused(
            f"driver packages come from another source than {uri}: {named}. A module of one does not work with libraries of "
            f"another. Next, on the host: apt-get purge {' '.join(mixed)}, then run again."
        )


def main():
    module = AnsibleModule(
        {
            "facts": {"type": "dict", "required": True},
            "version": {"type": "str", "required": True},
            "repositories": {"type": "str", "required": True},
            "offered": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    facts, version, offered = (module.params[option] for option in ("facts", "version", "offered"))
    system, kernels = facts["system"], facts["kernels"]
    installed = {package["name"]: package["version"] for package in facts["packages"]}
    held = [package["name"] for package in facts["packages"] if package["held"]]
    try:
        repository = packages.repository(system["id"], system["version"], os.uname().machine)
        uri = f"{module.params['repositories'].rstrip('/')}/{repository.path}"
        check_sources(module, installed, uri)
        plan = packages.plan(system["id"], version, (kernels["running"], kernels["newest"]), installed, held, offered)
    except packages.Refused as refusal:
        module.fail_json(msg=f"{refusal} Nothing was changed.")
    if plan.held:
        module.fail_json(
            msg=f"{', '.join(plan.held)} would have to change for NVIDIA driver {plan.version}, but is held. "
            f"Nothing was changed. Next, on the host: apt-mark unhold {' '.join(plan.held)}; the pin keeps the version."
        )
    module.exit_json(
        changed=False,
        version=plan.version,
        complete=plan.complete,
        install=plan.install,
        remove=plan.remove,
        pin=plan.pin,
        repository={
            "uri": uri,
            "key": f"{uri}/{repository.key_file}",
            "fingerprint": repository.fingerprint,
            "packages": packages.FAMILY.split(),
        },
    )


if __name__ == "__main__":
    main()
