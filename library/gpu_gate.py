#!/usr/bin/python
"""Refuse a GPU host that is not fit for an engine, before anything of the engine is touched."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_gate
short_description: Fails where a GPU host is not as declared
description:
  - Reads the host as M(gpu_host_facts) does, compares it with what is declared and with the cards that were there when the
    gate last passed, and fails with every critical finding, each with what was declared and found, where it was read and
    what to type next. Warnings and waived findings are printed each time.
  - A healthy host raises nothing. The link of an idle card slows down, correctable PCI Express errors happen, an
    application's Xid is its own affair, and what the service's own units hold of the cards is no finding, because a
    deployment happens while the old engine serves.
  - Where all else is well, an engine's environment is named and nothing uses the cards, they do a timed all-reduce at each
    of the given numbers of ranks, once for each boot and driver. It is killed at its deadline with all that it started.
options:
  count:
    description: Cards that the host has. With 0 nothing is looked at, and the module says so.
    type: int
    required: true
  uuids:
    description: Their UUIDs. Without them those from when the gate last passed are expected.
    type: list
    elements: str
    default: []
  accept_gpus:
    description: Take the cards that are there for the right ones, because some were replaced.
    type: bool
    default: false
  link_width:
    description: Lanes of each card's link. 0 means as many as card and slot can both do.
    type: int
    default: 0
  link_gen:
    description: PCIe generation that card and slot must be able to do. 0 asks for none.
    type: int
    default: 0
  iommu:
    description: Accepted ways in which the IOMMU maps the cards.
    type: list
    elements: str
    choices: [disabled, passthrough, translated]
    default: [disabled, passthrough]
  acs_redirect:
    description: Whether bridges above the cards may send peer-to-peer traffic up to the root complex.
    type: bool
    default: false
  kernel_parameters:
    description: Parameters that the running kernel must have been started with.
    type: list
    elements: str
    default: []
  modprobe_options:
    description: "Options that loaded modules must have, by module: V({nvidia_uvm: {uvm_disable_hmm: 1}})."
    type: dict
    default: {}
  power_limit:
    description: Watts that each card must be limited to. 0 asks for nothing.
    type: int
    default: 0
  memory_mib:
    description: MiB of each card that others than the service may hold.
    type: int
    default: 1024
  service_units:
    description: Patterns of the systemd units whose use of the cards is no finding.
    type: list
    elements: str
    default: ["sglang*.service"]
  waivers:
    description: >-
      Findings that are accepted. Each has C(finding), C(reason), the last day C(until) (YYYY-MM-DD), and, where it is for
      one card alone, its PCI address C(gpu). One whose day is over is an error.
    type: list
    elements: dict
    default: []
  state:
    description: File on the host that keeps the cards, and the all-reduce, of when the gate last passed.
    type: path
  all_reduce:
    description: How the cards are tried.
    type: dict
    suboptions:
      python:
        description: Interpreter of an environment with PyTorch. Where it is not there, nothing is tried.
        type: path
        required: true
      backend:
        description: V(gloo) tries the processors instead, for a host without real cards.
        type: str
        choices: [nccl, gloo]
        default: nccl
      ranks:
        description: Numbers of ranks; those above the number of cards are left out.
        type: list
        elements: int
        default: [2, 4, 8]
      timeout:
        description: Seconds for each number of ranks, with the start of Python.
        type: int
        default: 120
      environment:
        description: Variables for the ranks, those of the service for one, so that they communicate as it will.
        type: dict
        default: {}
attributes:
  check_mode:
    support: partial
    details: Reads and judges as always; tries no all-reduce and keeps nothing.
  diff_mode:
    support: full
author: The contributors
"""

EXAMPLES = r"""
- name: Refuse a host whose cards are not as declared
  gpu_gate:
    count: 8
    modprobe_options: {nvidia_uvm: {uvm_disable_hmm: 1}}
    waivers:
      - {finding: link_width, gpu: "0000:41:00.0", reason: riser is ordered, until: 2027-01-15}
    state: /var/lib/sglang-deploy/gpu_host.json
  become: true
"""

RETURN = r"""
findings:
  description: >-
    Warnings and waived findings: name, severity, declared, found, where, next, gpu (address), waived (until and why).
  type: list
  elements: dict
  returned: success, unless count is 0
all_reduce:
  description: "For each number of ranks, measured in this boot: ranks, seconds, latency_us, bus_gb_per_s."
  type: list
  elements: dict
  returned: success, unless count is 0
notes:
  description: What the gate did not look at, and why.
  type: list
  elements: str
  returned: success
"""

import datetime
import json
import os
import platform
from dataclasses import dataclass, field

from ansible.module_utils import gpu_host_ranks, gpu_host_reading
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpu_host import gate
from ansible.module_utils.sglang_host import CannotKeep, read_json, write_json

STATE_VERSION = 1
ALL_REDUCE = {
    "python": {"type": "path", "required": True},
    "backend": {"type": "str", "choices": ["nccl", "gloo"], "default": "nccl"},
    "ranks": {"type": "list", "elements": "int", "default": [2, 4, 8]},
    "timeout": {"type": "int", "default": 120},
    "environment": {"type": "dict", "default": {}},
}
ARGUMENTS = {
    "count": {"type": "int", "required": True},
    "uuids": {"type": "list", "elements": "str", "default": []},
    "accept_gpus": {"type": "bool", "default": False},
    "link_width": {"type": "int", "default": 0},
    "link_gen": {"type": "int", "default": 0},
    "iommu": {
        "type": "list",
        "elements": "str",
        "choices": ["disabled", "passthrough", "translated"],
        "default": ["disabled", "passthrough"],
    },
    "acs_redirect": {"type": "bool", "default": False},
    "kernel_parameters": {"type": "list", "elements": "str", "default": []},
    "modprobe_options": {"type": "dict", "default": {}},
    "power_limit": {"type": "int", "default": 0},
    "memory_mib": {"type": "int", "default": 1024},
    "service_units": {"type": "list", "elements": "str", "default": ["sglang*.service"]},
    "waivers": {"type": "list", "elements": "dict", "default": []},
    "state": {"type": "path"},
    "all_reduce": {"type": "dict", "options": ALL_REDUCE},
}


@dataclass
class State:
    """What the gate knew when it last passed: the cards (address → UUID), and the all-reduce with what it stands for."""

    gpus: dict = field(default_factory=dict)
    all_reduce: dict = field(default_factory=dict)

    @classmethod
    def read(cls, path):
        kept = read_json(path) if path else None
        is_ours = isinstance(kept, dict) and kept.get("version") == STATE_VERSION
        return cls(kept["gpus"], kept["all_reduce"]) if is_ours else cls()

    def to_dict(self):
        return {"version": STATE_VERSION, "gpus": self.gpus, "all_reduce": self.all_reduce}


def main():
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    try:
        waivers = gate.read_waivers(params["waivers"], datetime.date.today())
    except ValueError as error:
        module.fail_json(msg=f"{error}. Nothing was changed.")
    facts = gpu_host_reading.read()
    if params["count"] == 0:
        without_cards(module, facts)
    declared = gate.Declared(**{name: params[name] for name in gate.Declared._fields})
    state = State.read(params["state"])
    findings = gate.judge(facts, declared, {} if params["accept_gpus"] else state.gpus)
    standing, waived = gate.waive(findings, waivers)
    notes = []
    after = State(gate.identity(facts) or state.gpus, state.all_reduce)
    if not any(finding.severity == gate.CRITICAL for finding in standing):
        found, note, after.all_reduce = all_reduce(module, facts, declared, state)
        notes += [note] if note else []
        more, more_waived = gate.waive(found, waivers)
        standing, waived = standing + more, waived + more_waived
    report(module, standing, waived, notes)
    critical = [finding for finding in standing if finding.severity == gate.CRITICAL]
    if critical:
        names = ", ".join(dict.fromkeys(finding.name for finding in critical))
        text = "\n".join(finding.sentence() for finding in critical)
        waiver = f"gpu_host_waivers: [{{finding: {critical[0].name}, reason: …, until: YYYY-MM-DD}}]"
        module.fail_json(msg=f"This host is not fit for an engine: {names}.\n{text}\nTo accept one until a day: {waiver}")
    result = {
        "findings": [{**finding._asdict(), "waived": None} for finding in standing]
        + [{**f._asdict(), "waived": f"until {w.until}: {w.reason}"} for f, w in waived],
        "all_reduce": after.all_reduce.get("measured", []),
        "notes": notes,
    }
    keep(module, state, after, result)


def without_cards(module, facts):
    """A host that declares no cards is let through; where there are some, that is said aloud."""
    note = "no GPUs declared (gpu_host_count: 0): nothing was looked at"
    if facts["gpus"]:
        there = ", ".join(gpu["address"] for gpu in facts["gpus"])
        module.warn(f"{platform.node()}: {note}, but there are {len(facts['gpus'])}: {there}. Next: declare gpu_host_count")
    module.exit_json(changed=False, msg=note, notes=[note])


def report(module, standing, waived, notes):
    """Print what does not fail the play: Ansible shows a module's warnings each time."""
    for finding in standing:
        if finding.severity == gate.WARNING:
            module.warn(f"{platform.node()}: {finding.sentence()}")
    for finding, waiver in waived:
        module.warn(f"{platform.node()}: waived until {waiver.until}, {waiver.reason}: {finding.sentence()}")
    for note in notes:
        module.warn(f"{platform.node()}: {note}")


def all_reduce(module, facts, declared, state):
    """(findings, note or None, what to keep) of trying the cards, if that is possible and was not done in this boot."""
    given, kept = module.params["all_reduce"], state.all_reduce
    if not given:
        return [], None, kept
    ranks = [number for number in given["ranks"] if 2 <= number <= declared.count]
    if not ranks:
        return [], None, kept
    stands_for = {
        "boot": facts["boot"]["id"],
        "driver": facts["smi"]["driver_version"],
        "gpus": gate.identity(facts),
        "backend": given["backend"],
        "ranks": ranks,
        "environment": given["environment"],
    }
    if kept.get("stands_for") == stands_for:
        return [], None, kept
    if module.check_mode:
        return [], None, kept
    if not os.path.exists(given["python"]):
        return [], f"all-reduce not tried: {given['python']} is not there", kept
    holder = next(gate.holders(facts, declared), None)
    if holder:
        return [], f"all-reduce not tried in this boot: {gate.name_of(holder)} uses the cards", kept
    measured = []
    for number in ranks:
        environment = {name: str(value) for name, value in given["environment"].items()}
        outcome = gpu_host_ranks.run(given["python"], given["backend"], number, given["timeout"], environment, module.tmpdir)
        if outcome.failed:
            return [unreachable(facts, outcome)], None, {}
        measured.append({"ranks": number, "seconds": round(outcome.seconds, 1), **outcome.measured})
    return [], None, {"stands_for": stands_for, "measured": measured}


def unreachable(facts, outcome):
    modes = ", ".join(sorted({gpu["iommu"] for gpu in facts["gpus"]}))
    bits = sorted({bit for bridge in facts["bridges"] if isinstance(bridge["acs"], list) for bit in bridge["acs"]})
    hmm = (facts["driver"]["parameters"].get("nvidia_uvm") or {}).get("uvm_disable_hmm", "unknown")
    return gate.Finding(
        "all_reduce",
        gate.CRITICAL,
        f"an all-reduce among {outcome.ranks} cards",
        outcome.failed,
        f"a run of {outcome.seconds:.0f} s; IOMMU {modes}, ACS {' '.join(bits) or 'off'}, uvm_disable_hmm {hmm}",
        "IOMMU and ACS off in the firmware, gpu_host_modprobe_options: {nvidia_uvm: {uvm_disable_hmm: 1}}; to see "
        "whether peer-to-peer is the cause: NCCL_P2P_DISABLE: '1' in gpu_host_all_reduce_environment",
    )


def keep(module, before, after, result):
    """Keep what a later gate compares with. It is changed only where the cards are others, or the all-reduce is newer."""
    path = module.params["state"]
    changed = bool(path) and before != after
    if changed:
        shown = [json.dumps(state.to_dict(), indent=1, sort_keys=True) + "\n" for state in (before, after)]
        result["diff"] = {"before_header": path, "after_header": path, "before": shown[0], "after": shown[1]}
    if changed and not module.check_mode:
        try:
            write_json(path, after.to_dict())
        except CannotKeep as error:
            module.fail_json(msg=f"The host is fit, but that cannot be kept: {error}. Next: make its directory", **result)
    module.exit_json(changed=changed, **result)


if __name__ == "__main__":
    main()
