"""Is this host fit for an engine? Findings from its facts, each with what to type next; and waivers of findings.

Pure: `facts` as gpu_host_facts returns them, `Declared`, and the cards that were seen when the gate last passed.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from types import MappingProxyType
from typing import Any, NamedTuple

from . import pci
from .driver import MODULES

CRITICAL, WARNING = "critical", "warning"
UNKNOWN = "unknown"
PROVISION = "ansible-playbook playbooks/provision.yml"

# What each finding is about, by the name under which it can be waived.
FINDINGS = {
    "unreadable": "what the gate had to read and could not",
    "gpu_count": "cards on the PCI bus",
    "gpu_unseen": "cards on the bus that the driver does not get to work",
    "gpu_identity": "other cards than declared, or than when the gate last passed",
    "gpu_lost": "the kernel lost a card, or the link above it",
    "xid": "errors that the driver reported since boot",
    "recovery": "a card asks for a reset or a reboot",
    "row_remap": "memory rows that could not be replaced, or wait for a reset to be",
    "aer": "uncorrected PCI Express errors since boot",
    "link_width": "lanes in use on the way to a card",
    "link_speed": "speed of the link that card and slot can do; in use only under load, an idle card slows down",
    "bar1": "BAR1 covers the card's memory (resizable BAR)",
    "iommu": "how the IOMMU maps the cards",
    "acs": "bridges that send peer-to-peer traffic up to the root complex",
    "kernel_parameters": "declared parameters on the running kernel's command line",
    "module_options": "declared module options in effect",
    "nouveau": "the module that takes the cards away from NVIDIA's",
    "driver_missing": "NVIDIA's kernel module is loaded",
    "driver_closed": "the open module, the only one for these cards",
    "driver_mismatch": "one version of the driver: loaded, on disk and in user space",
    "next_boot": "a module of the same driver for the kernel of the next boot",
    "headers": "headers of the newest kernel, to build its module with",
    "secure_boot": "the firmware accepts the module",
    "uvm": "nvidia-uvm is loaded, so that a service without privileges finds its device",
    "nvidia_smi": "nvidia-smi answers",
    "mig": "whole cards",
    "compute_mode": "cards that several processes can use",
    "persistence": "the driver stays up between processes",
    "power_limit": "declared power limit in effect",
    "memory": "memory of the cards is free, but for the service's own",
    "all_reduce": "the cards reach each other, in time and with the right sum",
}

# Xids that make a host unfit, or suspicious; all others come from applications. NVIDIA's catalogue of Xid errors.
XIDS = {
    8: (WARNING, "the card's watchdog ended a task"),
    48: (CRITICAL, "uncorrectable memory error"),
    62: (CRITICAL, "one of its microcontrollers halted"),
    63: (WARNING, "a memory row waits to be replaced"),
    64: (CRITICAL, "a memory row could not be replaced"),
    79: (CRITICAL, "fallen off the bus"),
    94: (WARNING, "contained memory error"),
    95: (CRITICAL, "uncontained memory error"),
    109: (WARNING, "a context switch timed out"),
    119: (CRITICAL, "its firmware (GSP) does not answer"),
    120: (CRITICAL, "its firmware (GSP) failed"),
    140: (CRITICAL, "unrecovered memory error"),
    143: (CRITICAL, "could not be initialised"),
    154: (CRITICAL, "asks for recovery"),
}
SMI = "nvidia-smi -q -x"


class Declared(NamedTuple):
    """What the operator declared of the host; units in the names, lanes, PCIe generation, watts."""

    count: int
    uuids: tuple[str, ...] = ()
    link_width: int = 0  # 0: what card and slot can do
    link_gen: int = 0
    iommu: tuple[str, ...] = ("disabled", "passthrough")
    acs_redirect: bool = False
    kernel_parameters: tuple[str, ...] = ()
    modprobe_options: Mapping[str, dict[str, Any]] = MappingProxyType({})
    power_limit: int = 0
    memory_mib: int = 1024
    service_units: tuple[str, ...] = ("sglang*.service",)


class Finding(NamedTuple):
    """Something that is not as it must be. `gpu` is the address of the card where it is about one."""

    name: str
    severity: str
    declared: str
    found: str
    where: str
    next: str
    gpu: str = ""

    def title(self) -> str:
        return f"{self.name} ({self.gpu})" if self.gpu else self.name

    def sentence(self) -> str:
        return (
            f"{self.title()}: declared {self.declared}, found {self.found} [{self.severity}]\n"
            f"  read in  {self.where}\n"
            f"  next     {self.next}"
        )


def judge(facts: dict, declared: Declared, known: dict[str, str] | None = None) -> list[Finding]:
    """All findings; `known` maps PCI addresses to UUIDs as they were when the gate last passed."""
    checks = (_unreadable, _cards, _records, _links, _memory_access, _boot, _driver, _smi, _settings, _memory)
    return [finding for check in checks for finding in check(facts, declared, known or {})]


def identity(facts: dict) -> dict[str, str]:
    """Address → UUID of the cards that the driver sees."""
    return {gpu["address"]: gpu["smi"]["uuid"] for gpu in facts["gpus"] if gpu["smi"] and gpu["smi"]["uuid"]}


def holders(facts: dict, declared: Declared) -> Iterator[dict]:
    """The processes that use the cards; a desktop's few MiB do not count."""
    for process in facts["processes"]:
        memory = process["memory_mib"]
        if memory is None or memory > declared.memory_mib or is_own(process, declared.service_units):
            yield process


# ---- the checks ----


def _unreadable(facts, declared, known):
    for what, why in facts["unknown"].items():
        if what != "dkms_key":  # matters under Secure Boot alone, and is named there
            hint = "run it as root (become: true); where root cannot read it either, look by hand and waive it"
            yield Finding("unreadable", CRITICAL, "readable", f"{what}: unknown", why, hint)


def _cards(facts, declared, known):
    there = [gpu["address"] for gpu in facts["gpus"]]
    if len(there) != declared.count:
        missing = [f"{address} ({uuid})" for address, uuid in known.items() if address not in there]
        found = f"{len(there)} on the PCI bus" + (
            f"; gone since the gate last passed: {', '.join(missing)}" if missing else ""
        )
        what = (
            "seat the card, check its power cables and the slot in the BMC" if len(there) < declared.count else "count them"
        )
        hint = f"{what}; then, or if it is meant so: gpu_host_count: {len(there)}"
        yield Finding("gpu_count", CRITICAL, f"{declared.count} cards", found, "/sys/bus/pci/devices", hint)
    # The closed module drives none of them, and is a finding itself.
    if facts["smi"]["state"] in ("ok", "no devices", "lost") and (facts["driver"]["loaded"] or {}).get("open"):
        for gpu in facts["gpus"]:
            if gpu["smi"] is None:
                said = facts["smi"]["message"] or "it is not in the list"
                hint = (
                    f"journalctl -k -b -g 'NVRM|{gpu['address'][5:10]}' on the host; then a power cycle, not a warm reboot"
                )
                yield Finding("gpu_unseen", CRITICAL, "seen by the driver", f"not seen: {said}", SMI, hint, gpu["address"])
    yield from _identity(facts, declared, known)


def _identity(facts, declared, known):
    seen = {uuid: address for address, uuid in identity(facts).items()}
    expected = set(declared.uuids) or set(known.values())
    strangers = sorted(set(seen) - expected)
    if expected and strangers:
        gone = sorted(expected - set(seen))
        if declared.uuids:
            source, hint = "gpu_host_uuids", "correct gpu_host_uuids, or put the declared card in"
        else:
            source = "when the gate last passed"
            hint = "if it was replaced on purpose: ansible-playbook playbooks/gate.yml -e gpu_host_accept_gpus=true"
        found = "; ".join(f"{uuid} at {seen[uuid]}" for uuid in strangers)
        yield Finding("gpu_identity", CRITICAL, f"{', '.join(gone) or 'no other card'} ({source})", found, SMI, hint)


def _records(facts, declared, known):
    log = facts["kernel_log"]
    where = " and ".join(log["sources"])
    yield from _xids(log["xids"], where)
    hints = {
        "fallen": "power-cycle the host; if it comes back, look at power, heat and riser of this card",
        "init failed": "power-cycle the host; if it comes back, replace the card",
        "needs open module": f"{PROVISION} installs the open module",
        "contained": "power-cycle the host; if it comes back, look at the riser or the slot",
    }
    explained = {(record["address"], "fallen") for record in log["xids"] if record["code"] == 79}
    if (facts["driver"]["loaded"] or {}).get("open"):
        explained |= {(record["address"], "needs open module") for record in log["others"]}
    last = {(record["address"], record["kind"]): record for record in log["others"]}
    for (address, kind), record in last.items():
        if (address, kind) not in explained:
            yield Finding("gpu_lost", CRITICAL, "none since boot", f'"{record["text"]}"', where, hints[kind], address)
    for device in [*facts["gpus"], *facts["bridges"]]:
        if device["kind"] == "lost":
            place = f"/sys/bus/pci/devices/{device['address']}/config"
            yield Finding(
                "gpu_lost", CRITICAL, "on the bus", "only ones read from it", place, hints["fallen"], device["address"]
            )
        for severity, level in (("fatal", CRITICAL), ("nonfatal", WARNING)):
            if device["aer"][severity]:
                found = f"{device['aer'][severity]} uncorrected errors ({severity})"
                place = f"/sys/bus/pci/devices/{device['address']}/aer_dev_{severity}"
                hint = (
                    "journalctl -k -b -g AER on the host; reseat card and riser, or set the slot one PCIe generation lower"
                )
                yield Finding("aer", level, "none since boot", found, place, hint, device["address"])


def _xids(xids, where):
    last = {(record["address"], record["code"]): record for record in xids}
    for (address, code), record in last.items():
        severity, meaning = XIDS.get(code, (None, None))
        if severity is None or (code == 154 and record["action"] == "None"):
            continue
        count = sum(1 for other in xids if (other["address"], other["code"]) == (address, code))
        often = "once" if count == 1 else f"{count} times, last"
        found = f'Xid {code}, {meaning}, {often} "{record["text"]}"'
        hint = (
            "reboot the host (79, 119 and 154 may need a power cycle), and read NVIDIA's page on this Xid if it comes back"
        )
        yield Finding("xid", severity, "none since boot", found, where, hint, address)


def _links(facts, declared, known):
    devices = {device["address"]: device for device in [*facts["bridges"], *facts["gpus"]]}
    seen = set()
    for gpu in facts["gpus"]:
        way = [*gpu["bridges"], gpu["address"]]
        for above, below in zip(way, way[1:]):
            upper, lower = devices[above], devices[below]
            if below in seen or not upper["link"] or not lower["link"] or upper["kind"] == "upstream port":
                continue
            seen.add(below)
            yield from _link(upper, lower, declared, is_card=below == gpu["address"])
        yield from _loaded_speed(gpu)
        smi = gpu["smi"] or {}
        bar1, memory = smi.get("bar1_total_mib") or gpu["bar1_mib"], smi.get("memory_total_mib")
        if bar1 and memory and bar1 < memory:
            hint = "switch resizable BAR and decoding above 4G on in the firmware, and look for its update"
            found = f"{bar1} MiB"
            yield Finding("bar1", WARNING, f"at least {memory} MiB", found, SMI, hint, gpu["address"])


def _link(upper, lower, declared, is_card):
    port, card = upper["link"], lower["link"]
    can = min(port["width_max"], card["width_max"])
    wanted = (declared.link_width if is_card else 0) or can
    place = f"/sys/bus/pci/devices/{lower['address']} and {upper['address']}"
    both = f"card can x{card['width_max']}, {upper['kind']} {upper['address']} can x{port['width_max']}"
    if card["width"] < wanted:
        hint = "reseat card and riser, look at the slot's lanes in the firmware; if it is meant so: gpu_host_link_width"
        yield Finding("link_width", CRITICAL, f"x{wanted}", f"x{card['width']} ({both})", place, hint, lower["address"])
    speeds = [speed for speed in (port["speed_max"], card["speed_max"]) if speed]
    can_gen = pci.GEN.get(min(speeds), 0) if speeds else 0
    if is_card and can_gen < declared.link_gen:
        hint = f"set the slot to PCIe {declared.link_gen} in the firmware; if it is meant so: gpu_host_link_gen: {can_gen}"
        found = f"card and slot together can PCIe {can_gen}"
        yield Finding("link_speed", CRITICAL, f"PCIe {declared.link_gen}", found, place, hint, lower["address"])


def _loaded_speed(gpu):
    smi = gpu["smi"] or {}
    now, can = smi.get("link_gen"), smi.get("link_gen_max")
    if smi.get("performance_state") == "P0" and now and can and now < can:
        hint = "look again; if it stays: reseat the card, or set the slot's generation by hand in the firmware"
        yield Finding("link_speed", WARNING, f"PCIe {can} at full clock", f"PCIe {now}", SMI, hint, gpu["address"])


def _memory_access(facts, declared, known):
    for mode, addresses in _by_value(facts["gpus"], lambda gpu: gpu["iommu"]):
        if mode not in declared.iommu and mode != UNKNOWN:
            hint = (
                f"gpu_host_kernel_parameters: [iommu=pt], then {PROVISION}, or IOMMU off in the firmware: "
                f"peer-to-peer through a translating IOMMU hangs. If it is meant so: gpu_host_iommu: [{mode}]"
            )
            found = f"{mode}, for {', '.join(addresses)}"
            place = "/sys/bus/pci/devices/…/iommu_group/type"
            yield Finding("iommu", CRITICAL, " or ".join(declared.iommu), found, place, hint)
    if declared.acs_redirect or len(facts["gpus"]) < 2:
        return
    bad = {
        b["address"]: [bit for bit in b["acs"] if bit in pci.REDIRECTING]
        for b in facts["bridges"]
        if isinstance(b["acs"], list)
    }
    bad = {address: bits for address, bits in bad.items() if bits}
    if bad:
        found = "; ".join(f"{address} {' '.join(f'{bit}+' for bit in bits)}" for address, bits in bad.items())
        hint = (
            f"ACS off in the firmware, or gpu_host_kernel_parameters: ['pci=disable_acs_redir={';'.join(bad)}'], "
            f"then {PROVISION}. If it is meant so: gpu_host_acs_redirect: true"
        )
        yield Finding("acs", CRITICAL, "no redirection", found, "/sys/bus/pci/devices/…/config, ACSCtl", hint)


def _boot(facts, declared, known):
    missing = [word for word in declared.kernel_parameters if word not in facts["boot"]["parameters"]]
    if missing:
        hint = f"{PROVISION} writes them and reboots"
        found = f"without {' '.join(missing)}"
        yield Finding("kernel_parameters", CRITICAL, " ".join(declared.kernel_parameters), found, "/proc/cmdline", hint)
    for module, option, value, effective in module_options(facts, declared.modprobe_options):
        wanted = f"{module} {option}={value}"
        hidden = module == "nvidia" and option.startswith("NVreg_")
        place = "/proc/driver/nvidia/params" if hidden else f"/sys/module/{module}/parameters/{option}"
        if effective is None:
            hint = (
                f"modinfo -p {module} on the host, for how it is spelt; where it is right and the kernel hides it, waive it"
            )
            yield Finding("module_options", WARNING, wanted, "not shown by the kernel", place, hint)
        elif not same_value(effective, value):
            hint = f"{PROVISION} writes it and reboots: a loaded module keeps its options"
            yield Finding("module_options", CRITICAL, wanted, effective, place, hint)


def _driver(facts, declared, known):
    driver, kernels = facts["driver"], facts["kernels"]
    loaded, on_disk = driver["loaded"], driver["on_disk"]
    if "nouveau" in driver["modules"]:
        hint = f"{PROVISION} keeps it off, in the initramfs too, and reboots"
        yield Finding("nouveau", CRITICAL, "not loaded", "loaded", "/sys/module/nouveau", hint)
    if loaded is None:
        found = "none is loaded, " + (f"{on_disk['version']} is installed" if on_disk else "and none is installed")
        hint = f"{PROVISION} installs it, or reboots where it is only not loaded"
        yield Finding("driver_missing", CRITICAL, "a loaded nvidia module", found, "/proc/driver/nvidia/version", hint)
    for place, module in (("loaded", loaded), ("installed", on_disk)):
        if module and not module["open"]:
            hint = f"{PROVISION} replaces it by nvidia-kernel-open-dkms (nvidia-dkms-…-open on Ubuntu)"
            where = "/proc/driver/nvidia/version" if place == "loaded" else f"modinfo: {module['file']}"
            yield Finding("driver_closed", CRITICAL, "the open module", f"the closed one is {place}", where, hint)
            break
    versions = {"loaded": loaded, "on disk": on_disk, "library": driver["library"] and {"version": driver["library"]}}
    versions = {place: module["version"] for place, module in versions.items() if module}
    if loaded and (len(set(versions.values())) > 1 or facts["smi"]["state"] == "mismatch"):
        found = ", ".join(f"{place} {version}" for place, version in versions.items())
        if facts["smi"]["state"] == "mismatch":
            found += f'; "{facts["smi"]["message"]}"'
        hint = f"{PROVISION} installs the declared version as a whole and reboots; who upgraded it: /var/log/apt/history.log"
        yield Finding("driver_mismatch", CRITICAL, "one version", found, "/proc/driver, modinfo, libnvidia-ml.so", hint)
    if "nvidia" in driver["modules"] and "nvidia_uvm" not in driver["modules"]:
        hint = f"modprobe nvidia-uvm on the host; {PROVISION} loads it at boot"
        # its declared options cannot be proved then
        severity = CRITICAL if "nvidia_uvm" in map(underscored, declared.modprobe_options) else WARNING
        yield Finding("uvm", severity, "nvidia_uvm loaded", "not loaded", "/sys/module", hint)
    if (on_disk or loaded) and f"module of {kernels['newest']}" not in facts["unknown"]:
        yield from _next_boot(facts, kernels["newest"])
    yield from secure_boot(facts)


def _next_boot(facts, newest):
    driver, module = facts["driver"], facts["driver"]["next_boot"]
    now = driver["on_disk"] or driver["loaded"]
    if newest not in facts["kernels"]["headers"]:
        # A module that was built while there were headers serves until the driver or the kernel changes.
        found = f"none of {newest}, so " + (
            "the next boot has no driver" if module is None else "the next driver cannot be built"
        )
        hint = f"apt-get install linux-headers-{newest}, or {PROVISION}"
        severity = CRITICAL if module is None else WARNING
        yield Finding("headers", severity, "headers of the newest kernel", found, f"/lib/modules/{newest}/build", hint)
    elif module is None:
        states = [
            entry["state"] for entry in driver["dkms"] if entry["module"] == "nvidia" and entry["kernel"] in (newest, None)
        ]
        found = f"no nvidia module for {newest}" + (f"; dkms status: {states[-1]}" if states else "")
        hint = f"dkms autoinstall -k {newest} on the host and read its make.log, or {PROVISION}"
        yield Finding("next_boot", CRITICAL, "a module", found, f"/lib/modules/{newest}", hint)
    elif module["version"] != now["version"]:
        found = f"{module['version']} for {newest}, {now['version']} for {facts['kernels']['running']}"
        yield Finding("next_boot", CRITICAL, "one version", found, f"modinfo: {module['file']}", PROVISION)


def secure_boot(facts: dict) -> Iterator[Finding]:
    """What says that the firmware would not accept the module, or one that is to be built."""
    if facts["secure_boot"]["state"] != "enabled":
        return
    driver, key = facts["driver"], facts["secure_boot"]["dkms_key"]
    module = driver["next_boot"] or driver["on_disk"]
    proved = driver["loaded"] and driver["on_disk"] and module and driver["on_disk"]["signer"] == module["signer"]
    if module and module["signer"] and (proved or key == "enrolled"):
        return
    if module is None and key == "enrolled":
        return
    what = (
        f"module signed by {module['signer']}"
        if module and module["signer"]
        else "module without a signature"
        if module
        else "no module"
    )
    make = "" if key else "apt-get install dkms mokutil && dkms generate_mok, then "
    hint = (
        f"{make}mokutil --import /var/lib/dkms/mok.pub on the host, then enrol it at the console of the next boot; "
        "or switch Secure Boot off in the firmware"
    )
    found = f"Secure Boot on, {what}, DKMS key {key or 'not made yet'}"
    yield Finding(
        "secure_boot", CRITICAL, "a module that the firmware accepts", found, "/sys/firmware/efi, modinfo, mokutil", hint
    )


def _smi(facts, declared, known):
    state = facts["smi"]["state"]
    explained = state in ("ok", "mismatch", "no devices", "lost") or facts["driver"]["loaded"] is None
    if not explained:
        found = facts["smi"]["message"] or "not installed"
        yield Finding("nvidia_smi", CRITICAL, "an answer", found, SMI, f"{SMI} on the host; journalctl -k -b -g NVRM")


def _settings(facts, declared, known):
    seen = [gpu for gpu in facts["gpus"] if gpu["smi"]]

    def differing(name, field, severity, wanted, is_right, hint):
        for value, addresses in _by_value(seen, lambda gpu: gpu["smi"][field]):
            if value is not None and not is_right(value):
                yield Finding(name, severity, wanted, f"{value}, for {', '.join(addresses)}", SMI, hint)

    mig = "nvidia-smi -mig 0 on the host, with nothing running on the cards"
    yield from differing("mig", "mig", CRITICAL, "Disabled", lambda value: value == "Disabled", mig)
    mode = "nvidia-smi -c DEFAULT on the host"
    yield from differing("compute_mode", "compute_mode", CRITICAL, "Default", lambda value: value == "Default", mode)
    persistence = "systemctl enable --now nvidia-persistenced on the host"
    yield from differing("persistence", "persistence", WARNING, "Enabled", lambda value: value == "Enabled", persistence)
    recovery = "what it asks for: nvidia-smi --gpu-reset -i UUID with nothing running on it, or a reboot"
    yield from differing("recovery", "recovery_action", CRITICAL, "None", lambda value: value == "None", recovery)
    failure = "replace the card"
    yield from differing("row_remap", "remap_failure", CRITICAL, "no failure", lambda value: value == "No", failure)
    pending = "reboot, or nvidia-smi --gpu-reset with nothing running on it"
    yield from differing("row_remap", "remap_pending", WARNING, "none pending", lambda value: value == "No", pending)
    if declared.power_limit:
        limit = f"{PROVISION} sets it, at each boot too"

        def is_limit(watts):
            return abs(watts - declared.power_limit) < 1

        yield from differing("power_limit", "power_limit_w", WARNING, f"{declared.power_limit} W", is_limit, limit)


def _memory(facts, declared, known):
    """Memory of others, and memory that nobody holds. What the service's own units hold is what it is there for."""
    for gpu in facts["gpus"]:
        if gpu["smi"] is None:
            continue  # a finding itself
        used = gpu["smi"]["memory_used_mib"]
        if used is None:
            hint = f"{SMI} on the host; journalctl -k -b -g NVRM"
            yield Finding("unreadable", CRITICAL, "readable", "memory in use: unknown", SMI, hint, gpu["address"])
            continue
        if used <= declared.memory_mib:
            continue
        here = [process for process in facts["processes"] if process["gpu"] == gpu["address"]]
        own = [process for process in here if is_own(process, declared.service_units)]
        others = [process for process in here if process not in own]
        unheld = used - sum(used if process["memory_mib"] is None else process["memory_mib"] for process in here)
        if sum(process["memory_mib"] or 0 for process in others) > declared.memory_mib or (others and not own):
            found = "; ".join(f"{name_of(process)} holds {process['memory_mib'] or 'some'} MiB" for process in others)
            stop = [
                f"systemctl stop {p['unit']}" if (p["unit"] or "").endswith(".service") else f"kill {p['pid']}"
                for p in others
            ]
            hint = f"{'; '.join(dict.fromkeys(stop))} on the host; or, if it is a service of yours: gpu_host_service_units"
        elif unheld > declared.memory_mib:
            found = f"{unheld} MiB held by no process: left over from one that was killed"
            hint = f"nvidia-smi --gpu-reset -i {gpu['smi']['uuid']} with nothing running on it; if that is refused, a reboot"
        else:
            continue
        yield Finding("memory", CRITICAL, f"at most {declared.memory_mib} MiB", found, SMI, hint, gpu["address"])


def is_own(process: dict, units: Iterable[str]) -> bool:
    return any(fnmatch(process["unit"] or "", pattern) for pattern in units)


def name_of(process):
    return f"{process['name'] or 'a process'} (pid {process['pid']}, {process['unit'] or 'no unit'})"


def _by_value(gpus, value) -> Iterator[tuple[Any, list[str]]]:
    groups: dict[Any, list[str]] = {}
    for gpu in gpus:
        groups.setdefault(value(gpu), []).append(gpu["address"])
    return iter(groups.items())


def module_options(facts: dict, declared: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, Any, str | None]]:
    """(module, option, declared value, value in effect) of each option; None where the kernel shows no such option.

    The kernel takes - for _. A module of the driver that is not loaded has no options yet, and is left out.
    """
    for module, options in declared.items():
        module = underscored(module)
        if module in MODULES and module not in facts["driver"]["modules"]:
            continue
        shown = facts["driver"]["parameters"].get(module, {})
        for option, value in options.items():
            yield module, underscored(option), value, shown.get(underscored(option))


def underscored(name: str) -> str:
    return name.replace("-", "_")


def same_value(effective: str, declared: Any) -> bool:
    """Whether a module's parameter has the declared value.

    The kernel shows a flag that was set to 1 as Y, and reads numbers as C does: 0x10 and 020 are 16, -1 is 4294967295.
    """
    return _value(effective) == _value(str(declared))


def _value(text):
    text = {"y": "1", "true": "1", "n": "0", "false": "0"}.get(text.lower(), text.lower())
    number = re.fullmatch(r"(-?)(?:0x([0-9a-f]+)|0([0-7]+)|(\d+))", text)
    if not number:
        return text
    sign, hexadecimal, octal, decimal = number.groups()
    size = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return (-size if sign else size) % 2**32


# ---- waivers ----


class Waiver(NamedTuple):
    """A finding that is accepted until a day, for one card or all, for a reason that is printed each time."""

    finding: str
    reason: str
    until: str
    gpu: str = ""

    def covers(self, finding: Finding) -> bool:
        return self.finding == finding.name and self.gpu in ("", finding.gpu)


def read_waivers(declared: Iterable[dict], today: datetime.date) -> list[Waiver]:
    """The declared waivers. Raises ValueError with a sentence for each that is incomplete, unknown or over."""
    waivers, problems = [], []
    for number, entry in enumerate(declared, 1):
        place = f"gpu_host_waivers, entry {number}"
        fields = {name: str(value or "").strip() for name, value in entry.items()}
        missing = [name for name in ("finding", "reason", "until") if not fields.get(name)]
        unknown = sorted(set(fields) - set(Waiver._fields))
        if missing or unknown:
            said = [f"without {', '.join(missing)}"] if missing else []
            said += [f"with {', '.join(unknown)}, which it has not"] if unknown else []
            problems.append(f"{place}: {' and '.join(said)}; an entry has finding, reason, until and, for one card, gpu")
            continue
        if fields.get("gpu"):
            try:
                fields["gpu"] = pci.address(fields["gpu"])
            except ValueError as error:  # unquoted, YAML takes 0000:41:00.0 for a number
                problems.append(f'{place}: gpu: {error}; write it in quotes, "0000:41:00.0"')
                continue
        waiver = Waiver(**fields)
        if waiver.finding not in FINDINGS:
            problems.append(f"{place}: finding {waiver.finding} is unknown; there are {', '.join(FINDINGS)}")
            continue
        try:
            over = datetime.date.fromisoformat(waiver.until) < today
        except ValueError:
            problems.append(f"{place}: until {waiver.until} is no day; write it as 2027-01-31")
            continue
        if over:
            problems.append(
                f"{place}: {waiver.finding} was waived until {waiver.until} ({waiver.reason}), and that day is over; "
                "declare a new date, or remove it"
            )
        waivers.append(waiver)
    if problems:
        raise ValueError("\n".join(problems))
    return waivers


def waive(findings: Iterable[Finding], waivers: Iterable[Waiver]) -> tuple[list[Finding], list[tuple[Finding, Waiver]]]:
    """(findings that stand, findings that are waived with their waiver)."""
    standing, waived = [], []
    for finding in findings:
        waiver = next((waiver for waiver in waivers if waiver.covers(finding)), None)
        waived.append((finding, waiver)) if waiver else standing.append(finding)
    return standing, waived
