"""The driver in its four places: loaded, on disk for this kernel, on disk for the next one, and in user space."""

from __future__ import annotations

import re

# Of the kernel modules that matter here; nouveau because it takes the card away from them.
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nouveau")


def is_open(licence):
    """NVIDIA's open module gives MIT and GPL as its licence, the proprietary one NVIDIA."""
    return "GPL" in licence


def parse_proc_version(text):
    """{version, open} of /proc/driver/nvidia/version, or None if it has no such line.

    Seen: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  Release Build …" and, of the proprietary
    module, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu …".
    """
    found = re.search(r"^NVRM version:.*?Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.M)
    return {"version": found[1], "open": "Open Kernel Module" in text} if found else None


def parse_proc_params(text):
    """{NVreg_…: value} of /proc/driver/nvidia/params ("EnableMSI: 1"): sysfs does not show these parameters of nvidia."""
    return {f"NVreg_{name}": value.strip('"') for name, value in re.findall(r"^(\w+): *(.*?) *$", text, re.M)}


def parse_modinfo(text):
    """{version, open, licence, file, signer} of `modinfo nvidia`; None if it shows no version."""
    fields = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())  # the first counts: alias and parm come many times
    if not fields.get("version"):
        return None
    licence = fields.get("license", "")
    return {
        "version": fields["version"],
        "open": is_open(licence),
        "licence": licence,
        "file": fields.get("filename"),
        "signer": fields.get("signer") or None,
    }


# dkms 2: "nvidia, 470.57, 5.10.0-8-amd64, x86_64: installed", dkms 3: "nvidia/580.82.07, 6.1.0-28-amd64, x86_64: installed";
# an added one has no kernel, a broken one words before it; notes stand in brackets behind.
_DKMS = re.compile(
    r"(?P<module>[^,/\s]+)(?:/|, )(?P<version>[^,:\s]+)(?:, (?P<kernel>[^,:\s]+), (?P<arch>[^,:\s]+))?"
    r": (?P<state>added|built|installed|broken)\b(?P<note>.*)"
)


def parse_dkms(text):
    """The lines of `dkms status`: [{module, version, kernel, arch, state (added, built, installed, broken), note}]."""
    found = []
    for line in text.splitlines():
        match = _DKMS.match(line.strip())
        if match:
            notes = dict.fromkeys(re.findall(r"\(([^)]*)\)", match["note"]))  # one for each of its modules
            found.append({**match.groupdict(), "note": "; ".join(notes) or None})
    return found


def parse_sb_state(text):
    """enabled, disabled, none (no UEFI) or unknown, of `mokutil --sb-state`.

    Where shim does not validate, modules need no signature although the firmware's Secure Boot is on.
    """
    said = text.lower()
    if "validation is disabled in shim" in said or "secureboot disabled" in said:
        return "disabled"
    if "secureboot enabled" in said:
        return "enabled"
    if "not supported" in said or "doesn't support" in said:
        return "none"
    return "unknown"


def parse_test_key(text):
    """enrolled, not enrolled or unknown, of `mokutil --test-key FILE`. One that waits for the console is not enrolled."""
    said = text.lower()
    if "is not enrolled" in said or "enrollment request" in said or "blacklisted" in said:
        return "not enrolled"
    return "enrolled" if "already enrolled" in said or "is enrolled" in said else "unknown"


def parse_efi_boolean(data):
    """The value of an EFI variable of one byte, behind its four bytes of attributes: True, False, or None."""
    return bool(data[4]) if len(data) == 5 else None


def library_version(names):
    """Version of the user-space library from the names of its files (libnvidia-ml.so.580.126.20), or None."""
    versions = [found[1] for found in (re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", name) for name in names) if found]
    return max(versions, key=lambda version: [int(part) for part in version.split(".")], default=None)
