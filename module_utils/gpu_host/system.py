"""The operating system below the driver: release, kernels, packages, pins, command line."""

from __future__ import annotations

import re
import shlex

from .packages import REPOSITORIES

# What dpkg knows of drivers, toolkits and kernels; the status is two letters: wanted, state ("hi" is held and installed).
PACKAGES_ARGV = (
    *("dpkg-query", "--show", "--showformat=${Package}\\t${Version}\\t${db:Status-Abbrev}\\t${source:Package}\\n"),
    *("*nvidia*", "cuda*", "libcuda*", "libnv*", "nvlsm", "*-cuda*", "linux-headers-*", "linux-image-*", "dkms", "mokutil"),
)


def parse_os_release(text):
    """{id, version, name, supported} of /etc/os-release."""
    fields = {}
    for line in text.splitlines():
        name, mark, value = line.partition("=")
        if mark:
            fields[name] = "".join(shlex.split(value)) if value.startswith(("'", '"')) else value
    release = (fields.get("ID", ""), fields.get("VERSION_ID", ""))
    return {
        "id": release[0],
        "version": release[1],
        "name": fields.get("PRETTY_NAME", " ".join(release).strip()),
        "supported": release in REPOSITORIES,
    }


def kernel_order(release):
    """Sort key for kernel releases: numbers as numbers, so that 6.1.0-28-amd64 is newer than 6.1.0-9-amd64."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[^\d]+", release)]


def parse_packages(text):
    """[{name, version, state, held, source}] of PACKAGES_ARGV, without those that dpkg only remembers."""
    found = []
    for line in text.splitlines():
        name, version, status, source = line.split("\t")
        if version and status[1:2] not in ("n", "c"):
            found.append(
                {"name": name, "version": version, "state": status.strip(), "held": status[:1] == "h", "source": source}
            )
    return found


def parse_preferences(text):
    """[{packages, pin, priority}] of one file of apt_preferences(5)."""
    found = []
    for stanza in re.split(r"\n\s*\n", re.sub(r"^(#|Explanation:).*\n?", "", text, flags=re.M | re.I)):
        unfolded = re.sub(r"\n[ \t]+", " ", stanza.strip())
        fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in unfolded.splitlines())}
        if {"package", "pin", "pin-priority"} <= set(fields):
            priority = fields["pin-priority"]
            number = int(priority) if re.fullmatch(r"-?\d+", priority) else None
            found.append({"packages": fields["package"].split(), "pin": fields["pin"], "priority": number})
    return found


def unit_of(cgroup):
    """The systemd unit of a process from its /proc/PID/cgroup: the last service or scope on the way; None without one."""
    parts = [part for line in cgroup.splitlines() for part in line.split("/") if part.endswith((".service", ".scope"))]
    services = [part for part in parts if part.endswith(".service")]
    return (services or parts or [None])[-1]
