"""What nvidia-smi prints: `nvidia-smi -q -x`, one document for all GPUs, or why there is none.

The names of the elements are those of the drivers 535 to 595; what a driver does not print, or prints as N/A, is None.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from . import pci

ARGV = ("nvidia-smi", "-q", "-x")


def parse(status, stdout, stderr=""):
    """(smi, {PCI address: GPU}, processes) of one run; ``smi`` has the state of the facts' key of that name."""
    printed = f"{stdout}\n{stderr}".strip()
    start, end = stdout.find("<nvidia_smi_log>"), stdout.find("</nvidia_smi_log>")
    if start < 0 or end < 0:
        return _failed(status, printed), {}, []
    # names of processes come as they are, with a bare & in them
    document = re.sub(r"&(?!(?:amp|lt|gt|quot|apos|#\d+);)", "&amp;", stdout[start:end]) + "</nvidia_smi_log>"
    try:
        log = ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        return _failed(status, f"a document that cannot be read: {error}"), {}, []
    gpus, processes = {}, []
    for element in log.findall("gpu"):
        gpu = _gpu(element)
        gpus[gpu["address"]] = gpu
        processes += _processes(element, gpu["address"])
    # A warning stands before the document, a GPU that is lost behind it.
    said = " ".join(f"{stdout[: stdout.find('<?xml')] if '<?xml' in stdout else ''} {stderr}".split())
    smi = {
        "state": "ok",
        "message": said or None,
        "driver_version": _text(log, "driver_version"),
        "cuda_version": _text(log, "cuda_version"),
        "library_version": None,
    }
    return smi, gpus, processes


def _failed(status, printed):
    """State and message of a run without a document. The exit status is no interface, the sentence is what people know."""
    states = (
        ("mismatch", "version mismatch"),
        ("no driver", "couldn't communicate with the NVIDIA driver"),
        ("no driver", "Driver Not Loaded"),
        ("no devices", "No devices were found"),
        ("lost", "GPU is lost"),
        ("lost", "Unable to determine the device handle"),
        ("denied", "Insufficient Permissions"),
    )
    state = next((state for state, words in states if words.lower() in printed.lower()), "failed")
    library = re.search(r"NVML library version: (\S+)", printed)
    return {
        "state": state,
        "message": " ".join(printed.split()) or f"exit status {status} and not a word",
        "driver_version": None,
        "cuda_version": None,
        "library_version": library[1] if library else None,
    }


def _gpu(element):
    power = element.find("gpu_power_readings")  # power_readings up to 525
    power = element.find("power_readings") if power is None else power
    return {
        "address": pci.address(element.get("id")),
        "uuid": _text(element, "uuid"),
        "serial": _text(element, "serial"),
        "name": _text(element, "product_name"),
        "memory_total_mib": _number(element, "fb_memory_usage/total"),
        "memory_used_mib": _number(element, "fb_memory_usage/used"),
        "bar1_total_mib": _number(element, "bar1_memory_usage/total"),
        "persistence": _text(element, "persistence_mode"),
        "addressing": _text(element, "addressing_mode"),
        "mig": _text(element, "mig_mode/current_mig"),
        "compute_mode": _text(element, "compute_mode"),
        "performance_state": _text(element, "performance_state"),
        "link_gen": _number(element, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
        "link_gen_max": _number(element, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
        "link_width": _number(element, "pci/pci_gpu_link_info/link_widths/current_link_width"),
        "link_width_max": _number(element, "pci/pci_gpu_link_info/link_widths/max_link_width"),
        "power_limit_w": _number(power, "current_power_limit", "power_limit", "enforced_power_limit"),
        "power_limit_min_w": _number(power, "min_power_limit"),
        "power_limit_max_w": _number(power, "max_power_limit"),
        "power_limit_default_w": _number(power, "default_power_limit"),
        "ecc": _text(element, "ecc_mode/current_ecc"),
        "remap_pending": _text(element, "remapped_rows/remapped_row_pending"),
        "remap_failure": _text(element, "remapped_rows/remapped_row_failure"),
        "recovery_action": _text(element, "gpu_recovery_action"),
    }


def _processes(element, address):
    return [
        {
            "gpu": address,
            "pid": int(process.findtext("pid")),
            "name": _text(process, "process_name"),
            "memory_mib": _number(process, "used_memory"),
            "unit": None,
        }
        for process in element.iterfind("processes/process_info")
    ]


_SAYS_NOTHING = (
    *("", "N/A", "Not Supported", "Unknown Error", "GPU is lost", "GPU requires reset", "ERR!"),
    "Requested functionality has been deprecated",
)


def _text(element, *paths):
    """The first of the elements that says something."""
    for path in paths:
        said = (element.findtext(path) or "").strip() if element is not None else ""
        if said.strip("[]") not in _SAYS_NOTHING:
            return said
    return None


def _number(element, *paths):
    """The number in front of its unit: 97887 MiB, 600.00 W, 16x, 5."""
    found = re.match(r"-?\d+(?:\.\d+)?", _text(element, *paths) or "")
    if not found:
        return None
    return float(found[0]) if "." in found[0] else int(found[0])
