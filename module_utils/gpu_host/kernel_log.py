"""The kernel's records about GPUs and their links since boot: Xid, AER, DPC, and what NVIDIA's module says besides."""

from __future__ import annotations

import json
import re

from . import pci

# Kernel messages of this boot alone. journalctl's status is 1 where nothing matches.
GREP = "NVRM: |AER: |PCIe Bus Error|DPC: "
JOURNAL_ARGV = (
    *("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--output=json"),
    *("--output-fields=MESSAGE,_SOURCE_MONOTONIC_TIMESTAMP", f"--grep={GREP}"),
)

_BDF = r"(?:[0-9A-Fa-f]+:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?"
# Xid (PCI:0000:41:00): 79, …   a MIG instance stands behind the address, very old drivers leave "PCI:" out
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?({_BDF})[^)]*\): (\d+)(?:, (.*))?")
_RECOVERY = re.compile(r"changed from 0x[0-9a-f]+ \(.*?\) to 0x[0-9a-f]+ \((.*?)\)", re.I)
# Linux says Uncorrected up to 6.16 and Uncorrectable after it; older ones give "id=0108" in the place of the address.
_AER = re.compile(
    rf"(?:(?P<port>{_BDF}): )?(?:AER: (?:Multiple )?|PCIe Bus Error: severity=)"
    r"(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\))(?P<rest>.*)",
)
_FROM = re.compile(rf"(?:received: |from )({_BDF})")
_OTHERS = (
    ("fallen", re.compile(rf"NVRM: (?:The )?(?:NVIDIA )?GPU (?:at )?(?:PCI:)?({_BDF}).*fallen off the bus")),
    ("init failed", re.compile(rf"NVRM: GPU ({_BDF}): RmInitAdapter failed")),
    ("needs open module", re.compile(rf"NVRM: .*?({_BDF}).*requires use of the NVIDIA open kernel modules")),
    ("contained", re.compile(rf"({_BDF}): DPC: containment event")),
)


def parse_journal(lines):
    """(seconds since boot, message) pairs of `journalctl --output=json`; MESSAGE is a list of bytes where it is no text."""
    for line in lines:
        record = json.loads(line)
        message = record.get("MESSAGE") or ""
        if isinstance(message, list):
            message = bytes(message).decode(errors="replace")
        yield int(record.get("_SOURCE_MONOTONIC_TIMESTAMP", 0)) / 1e6, message


def parse_kmsg(text):
    """The same pairs of records of /dev/kmsg: "4,1234,5678901,-;message". A line with a blank in front is no message."""
    for line in text.splitlines():
        head, mark, message = line.partition(";")
        if mark and not line.startswith(" "):
            yield int(head.split(",")[2]) / 1e6, re.sub(r"\\x([0-9a-f]{2})", lambda hexed: chr(int(hexed[1], 16)), message)


def read(records):
    """What (seconds, message) pairs say: {xids, aer, others}, each in order and once.

    A record has ``seconds`` since boot, ``address`` (None where the message has none) and the kernel's ``text``; a Xid its
    ``code`` and, for 154, the ``action`` that the GPU asks for from then on; AER its ``severity``: correctable, nonfatal or
    fatal; others their ``kind``: fallen, init failed, needs open module, contained.
    """
    found = {"xids": [], "aer": [], "others": []}
    for seconds, text in sorted({(seconds, _one_line(message)) for seconds, message in records}):
        kind, record = _classify(text)
        if kind:
            found[kind].append({"seconds": seconds, **record, "text": text})
    return found


def _one_line(message):
    """NVIDIA's module writes some messages over several lines, each with its name in front."""
    return " ".join(re.sub(r"\nNVRM:", " ", message).split())


def _classify(text):
    xid = _XID.search(text)
    if xid:
        action = _RECOVERY.search(xid[3] or "") if xid[2] == "154" else None
        return "xids", {"address": pci.address(xid[1]), "code": int(xid[2]), "action": action[1] if action else None}
    aer = _AER.search(text)
    if aer:
        said = aer["severity"]
        severity = "correctable" if said.startswith("C") else "nonfatal" if "Non-Fatal" in said else "fatal"
        source = _FROM.search(aer["rest"])
        where = source[1] if source else aer["port"]
        return "aer", {"address": pci.address(where) if where else None, "severity": severity}
    for kind, pattern in _OTHERS:
        match = pattern.search(text)
        if match:
            return "others", {"address": pci.address(match[1]), "kind": kind}
    return None, {}
