#!/usr/bin/python
"""Read what a GPU host is and has: cards, links, IOMMU, driver in its four places, records of the kernel."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_facts
short_description: Read the state of a GPU host, with or without a driver
description:
  - Reads PCI cards, links and bridges, the driver as loaded, on disk, for the next boot and in user space, kernels and
    headers, packages and pins, Secure Boot, the kernel's Xid and AER records of this boot, and what C(nvidia-smi) says.
  - Reads files, and calls C(nvidia-smi), C(dkms), C(modinfo), C(mokutil), C(dpkg-query) and C(journalctl) where they are
    installed; C(nvidia-smi) once for all cards, the others once or twice. It writes nothing.
  - Works on a bare host. What is not there is null or empty. What may not be read is V(unknown), never guessed, and named
    with the reason in RV(facts.unknown).
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Read the host
  gpu_host_facts:
  register: host
  become: true

- name: Refuse a host without the cards
  ansible.builtin.assert:
    that: host.facts.gpus | length == 8
"""

RETURN = r"""
facts:
  description: What was read.
  type: dict
  returned: success
  contains:
    system:
      description: "The release: id, version (V(debian), V(12)), name for people, and whether these roles support it."
      type: dict
    boot:
      description: "The running boot: its id, its kernel command line (cmdline) and that in words (parameters)."
      type: dict
    kernels:
      description:
        - running, the kernel that runs; newest, which the next boot takes; installed, all with an image in /boot, oldest
          first; headers, those with headers to build modules from.
      type: dict
    secure_boot:
      description:
        - "state: V(enabled), V(disabled), V(none) (no UEFI) or V(unknown)."
        - "dkms_key: V(enrolled), V(not enrolled), V(unknown), or null where DKMS has made no signing key yet."
      type: dict
    driver:
      description: The NVIDIA driver in its places.
      type: dict
      contains:
        loaded:
          description: "version, and open (whether it is the open module), of the loaded module; null if none is."
          type: dict
        on_disk:
          description: >-
            version, open, licence, file and signer of the module that the running kernel would load now; null if there is
            none.
          type: dict
        next_boot:
          description: The same for RV(facts.kernels.newest).
          type: dict
        library:
          description: Version of the user-space library libnvidia-ml on disk, or null.
          type: str
          sample: 580.126.20
        modules:
          description: Which of nvidia, nvidia_uvm, nvidia_modeset, nvidia_drm and nouveau are loaded.
          type: list
          elements: str
        parameters:
          description: >-
            The parameters in effect of each of them, as texts: V({nvidia_uvm: {uvm_disable_hmm: 'Y'}}); those of nvidia that
            sysfs does not show as /proc/driver/nvidia/params has them.
          type: dict
        dkms:
          description: >-
            Lines of C(dkms status): module, version, kernel, arch, state (V(added), V(built), V(installed), V(broken)),
            note. kernel and arch are null where it is only added.
          type: list
          elements: dict
    gpus:
      description: >-
        The NVIDIA GPUs on the PCI bus, by address, whether a driver sees them or not: address, device (V(2bb5)),
        subsystem, model, numa_node, kernel_driver, iommu (V(disabled), V(passthrough), V(translated), V(unknown)),
        bar1_mib, kind (V(endpoint), or V(lost) where it has fallen off the bus), link (speed, speed_max in GT/s, width,
        width_max in lanes; speed falls when the card is idle), acs, aer (correctable, nonfatal, fatal since boot), bridges
        (addresses, root port first), and smi.
      type: list
      elements: dict
      contains:
        smi:
          description: >-
            What nvidia-smi says of it, null where it does not see it: uuid, serial, name, memory_total_mib,
            memory_used_mib, bar1_total_mib, persistence, addressing (V(HMM) where that is on), mig, compute_mode,
            performance_state, link_gen, link_gen_max, link_width, link_width_max, power_limit_w, power_limit_min_w,
            power_limit_max_w, power_limit_default_w, ecc, remap_pending, remap_failure, recovery_action.
          type: dict
    bridges:
      description: >-
        Every bridge above one of the GPUs: address, kind (V(root port), V(upstream port), V(downstream port), …), link,
        aer, and acs, the names of the ACS control bits that are set (V(ReqRedir), …); null where it has no ACS,
        V(unknown) without root.
      type: list
      elements: dict
    smi:
      description: >-
        How nvidia-smi went: state (V(ok), V(absent), V(no driver), V(mismatch), V(no devices), V(lost), V(denied),
        V(failed)), message (what it said), driver_version, cuda_version, library_version (of a mismatch).
      type: dict
    processes:
      description: "Who holds memory of a GPU: gpu (address), pid, name, memory_mib, unit (service or scope, or null)."
      type: list
      elements: dict
    kernel_log:
      description: >-
        Of this boot: sources that were read, and in order xids (seconds since boot, address, code, action, text), aer
        (seconds, address, severity, text) and others (seconds, address, kind V(fallen), V(init failed), V(needs open
        module), V(contained), text).
      type: dict
    packages:
      description: "Packages of drivers, CUDA, kernels and headers: name, version, state (dpkg's two letters), held, source."
      type: list
      elements: dict
    pins:
      description: "Stanzas of apt's preferences: file, packages (patterns), pin, priority."
      type: list
      elements: dict
    governors:
      description: CPU frequency governors in effect; empty where the kernel has none.
      type: list
      elements: str
    disk:
      description: Free MiB of the file systems behind /, /boot, /usr, /var, /srv and /opt, each once.
      type: dict
    unknown:
      description: What could not be read, and why.
      type: dict
"""

from ansible.module_utils import gpu_host_reading
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule({}, supports_check_mode=True)
    module.exit_json(changed=False, facts=gpu_host_reading.read())


if __name__ == "__main__":
    main()
