"""PCI Express as the kernel shows it in sysfs: configuration space, links, the bridges above a device.

Numbers of registers: PCI Express Base Specification, chapter 7; the same as in Linux' pci_regs.h.
"""

from __future__ import annotations

import re
import struct

ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NVIDIA = "10de"
# Usable before a driver exists; from the README of NVIDIA's open kernel modules.
MODELS = {
    "2bb1": "RTX PRO 6000 Blackwell Workstation Edition",
    "2bb4": "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "2bb5": "RTX PRO 6000 Blackwell Server Edition",
}

_CAPABILITY_LIST = 1 << 4  # of the status register
_EXPRESS = 0x10
_ACS = 0x000D
_KINDS = {0: "endpoint", 1: "endpoint", 4: "root port", 5: "upstream port", 6: "downstream port", 7: "bridge", 8: "bridge"}
_SPEEDS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # GT/s, by the number of the supported link speed
# ACS control bits in the order of the register, as lspci names them.
_ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
# With any of these a peer-to-peer request goes up to the root complex instead of straight to the other device. SrcValid
# redirects nothing, and stays set where the kernel clears these (pci=disable_acs_redir).
REDIRECTING = ("ReqRedir", "CmpltRedir", "EgressCtrl")

GEN = {speed: number for number, speed in _SPEEDS.items()}


class TooShort(Exception):
    """The part of the configuration space that was asked for was not given: the kernel shows it to root only."""


def address(text):
    """A PCI address in the kernel's form: 00000000:41:00.0, 0000:41:00 and 41:00.0 are 0000:41:00.0."""
    found = re.fullmatch(r"(?:([0-9A-Fa-f]+):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?", text.strip())
    if not found:
        raise ValueError(f"{text!r} is no PCI address")
    domain, bus, slot, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{slot.lower()}.{function or '0'}"


def parse_config(config):
    """Kind, link and ACS of a configuration space (bytes): {kind, link or None, acs or None}.

    ``link`` is {speed, speed_max (GT/s), width, width_max (lanes)} of the device's own link registers. ``acs`` lists the
    names of the control bits that are set; None where the device has no ACS. A device that has fallen off the bus reads as
    ones: its kind is lost. Raises TooShort if the space was cut.
    """
    if config[:4] == b"\xff\xff\xff\xff":
        return {"kind": "lost", "link": None, "acs": None}
    express = _capability(config, _EXPRESS)
    if express is None:
        return {"kind": "conventional", "link": None, "acs": None}
    flags = _word(config, express + 2)
    capable, status = _double(config, express + 0x0C), _word(config, express + 0x12)
    link = {
        "speed": _SPEEDS.get(status & 0xF),
        "speed_max": _SPEEDS.get(capable & 0xF),
        "width": status >> 4 & 0x3F,
        "width_max": capable >> 4 & 0x3F,
    }
    control = _extended(config, _ACS)
    bits = None if control is None else _word(config, control + 6)
    acs = None if bits is None else [name for at, name in enumerate(_ACS_BITS) if bits >> at & 1]
    return {"kind": _KINDS.get(flags >> 4 & 0xF, "other"), "link": link, "acs": acs}


def parse_sysfs_link(speed, speed_max, width, width_max):
    """The same link from the files current_link_speed and so on, which need no root. None where there is no link."""
    link = {
        "speed": _number(speed),
        "speed_max": _number(speed_max),
        "width": _number(width, int),
        "width_max": _number(width_max, int),
    }
    return link if link["width_max"] else None


def bridges_above(path):
    """The addresses of a device's bridges, root port first, from the real path of its sysfs directory."""
    return ADDRESS.findall(path)[:-1]


def largest_region(resource):
    """Bytes of the largest of a device's six BARs, from its file ``resource``; for a GPU that is BAR1. None: not shown."""
    sizes = []
    for line in resource.splitlines()[:6]:
        start, end, _ = (int(number, 16) for number in line.split())
        sizes.append(end - start + 1 if end else 0)
    return max(sizes, default=0) or None


def parse_aer_total(text):
    """The total of a file aer_dev_fatal, aer_dev_nonfatal or aer_dev_correctable: events since boot."""
    found = re.search(r"^TOTAL_ERR_\w+ (\d+)$", text, re.M)
    return int(found[1]) if found else None


def _number(text, kind=float):
    found = re.match(r"\d+(?:\.\d+)?", text or "")
    return kind(found[0]) if found else None


def _capability(config, wanted):
    if not _word(config, 6) & _CAPABILITY_LIST:
        return None
    at, seen = _word(config, 0x34) & 0xFC, set()
    while at and at not in seen:
        seen.add(at)
        head = _word(config, at)
        if head & 0xFF == wanted:
            return at
        at = head >> 8 & 0xFC
    return None


def _extended(config, wanted):
    at, seen = 0x100, set()
    while at >= 0x100 and at not in seen:
        seen.add(at)
        head = _double(config, at)
        if head in (0, 0xFFFFFFFF):
            return None
        if head & 0xFFFF == wanted:
            return at
        at = head >> 20
    return None


def _word(config, at):
    return _unpack("<H", config, at)


def _double(config, at):
    return _unpack("<I", config, at)


def _unpack(form, config, at):
    try:
        return struct.unpack_from(form, config, at)[0]
    except struct.error:
        raise TooShort(f"{len(config)} bytes of the configuration space were given") from None
