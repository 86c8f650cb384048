"""What the programs of a GPU host print, of many versions, read as a careful person reads it: gpu_corpus/README.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.gpu_host import driver, kernel_log, pci, smi, system

CORPUS = Path(__file__).with_name("gpu_corpus")


def cases(program, name="name"):
    return [pytest.param(case, id=str(case.get(name))) for case in yaml.safe_load((CORPUS / f"{program}.yml").read_text())]


def among(found, expected):
    """What was found, cut down to the keys that a case says something about."""
    return {key: found[key] for key in expected}


SMI_CASES = yaml.safe_load((CORPUS / "nvidia-smi.yml").read_text())


@pytest.mark.parametrize("case", SMI_CASES, ids=lambda case: case.get("document") or case["printed"][:40])
def test_nvidia_smi(case):
    printed = (CORPUS / "nvidia-smi" / case["document"]).read_text() if "document" in case else case["printed"]
    state, gpus, processes = smi.parse(0 if "document" in case else 9, printed)
    assert among(state, case["smi"]) == case["smi"]
    expected = case.get("gpus", {})
    assert gpus.keys() == expected.keys()
    for address, gpu in expected.items():
        assert among(gpus[address], gpu) == gpu
    assert [among(*pair) for pair in zip(processes, case.get("processes", []), strict=True)] == case.get("processes", [])


@pytest.mark.parametrize("path", sorted((CORPUS / "lspci").iterdir()), ids=lambda path: path.stem)
def test_a_configuration_space_is_read_as_lspci_reads_it(path):
    text = path.read_text()
    config = bytearray(0x200)
    for at, row in re.findall(r"^([0-9a-f]+): ((?:[0-9a-f]{2} ?){16})$", text, re.M):
        config[int(at, 16) : int(at, 16) + 16] = bytes.fromhex(row)
    read = pci.parse_config(bytes(config))
    can = re.search(r"LnkCap:.*Speed ([\d.]+)GT/s, Width x(\d+)", text)
    is_at = re.search(r"LnkSta:\s+Speed ([\d.]+)GT/s.*Width x(\d+)", text)
    link = can and {
        "speed": float(is_at[1]),
        "speed_max": float(can[1]),
        "width": int(is_at[2]),
        "width_max": int(can[2]),
    }
    control = re.search(r"ACSCtl:(.*)", text)
    assert read["link"] == link
    assert read["acs"] == (re.findall(r"(\w+)\+", control[1]) if control else None)
    kind = re.search(r"Express \(v2\) (Endpoint|Root Port|Upstream Port|Downstream Port)", text)
    assert read["kind"] == (kind[1].lower() if kind else "lost" if "rev ff" in text else "conventional")


def test_what_the_kernel_shows_without_root_is_too_short_to_say_anything():
    shown = bytearray(64)
    shown[6], shown[0x34] = 0x10, 0x60  # it has capabilities, from 0x60 on
    with pytest.raises(pci.TooShort):
        pci.parse_config(bytes(shown))


@pytest.mark.parametrize("case", cases("dkms"))
def test_dkms_status(case):
    read = driver.parse_dkms(case["output"])
    assert [[entry[key] for key in ("module", "version", "kernel", "state", "note")] for entry in read] == case["reads"]


@pytest.mark.parametrize("case", cases("mokutil", "output"))
def test_mokutil(case):
    parse = {"--sb-state": driver.parse_sb_state, "--test-key": driver.parse_test_key}[case["command"]]
    assert parse(case["output"]) == case["reads"]


@pytest.mark.parametrize("case", cases("modinfo"))
def test_modinfo(case):
    assert driver.parse_modinfo(case["output"]) == case["reads"]


@pytest.mark.parametrize("case", cases("proc-driver-version"))
def test_proc_driver_version(case):
    assert driver.parse_proc_version(case["output"]) == case["reads"]


@pytest.mark.parametrize("case", cases("kernel-log", "line"))
def test_kernel_log(case):
    found = kernel_log.read([(61.5, case["line"])])
    kind, fields = case["reads"] or (None, {})
    records = {name: [among(record, fields) for record in records] for name, records in found.items()}
    assert records == {name: [fields] if name == kind else [] for name in ("xids", "aer", "others")}


@pytest.mark.parametrize("case", cases("preferences"))
def test_apt_preferences(case):
    assert system.parse_preferences(case["output"]) == case["reads"]


@pytest.mark.parametrize("case", cases("dpkg"))
def test_dpkg_query(case):
    assert system.parse_packages(case["output"]) == case["reads"]


def test_a_record_in_the_journal_and_in_the_kernels_buffer_counts_once():
    text = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."
    record = {"_SOURCE_MONOTONIC_TIMESTAMP": "61500000", "MESSAGE": text}
    journal = [json.dumps(record), '{"MESSAGE": [78, 86, 82, 77]}']
    kmsg = f"4,1234,61500000,-;{text}\n SUBSYSTEM=pci\n6,1235,61500001,-;usb 1-1: new device"
    records = [*kernel_log.parse_journal(journal), *kernel_log.parse_kmsg(kmsg)]
    assert [record["seconds"] for record in kernel_log.read(records)["xids"]] == [61.5]


def test_a_message_of_several_lines_is_one():
    kmsg = (
        r"3,7,5000000,-;NVRM: The NVIDIA GPU 0000:41:00.0\x0aNVRM: installed in this system has\x0aNVRM: fallen off the bus"
    )
    (record,) = kernel_log.read(kernel_log.parse_kmsg(kmsg))["others"]
    assert record["text"] == "NVRM: The NVIDIA GPU 0000:41:00.0 installed in this system has fallen off the bus"


@pytest.mark.parametrize(
    "text, supported",
    [
        ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n', True),
        ('PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_ID="13"\nID=debian\n', True),
        ('PRETTY_NAME="Ubuntu 24.04.3 LTS"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n', True),
        ('PRETTY_NAME="Ubuntu 25.10"\nVERSION_ID="25.10"\nID=ubuntu\nID_LIKE=debian\n', False),
        ('NAME="Rocky Linux"\nVERSION_ID="9.5"\nID="rocky"\n', False),
        ("PRETTY_NAME='Debian GNU/Linux trixie/sid'\nID=debian\n", False),
    ],
)
def test_supported_systems(text, supported):
    assert system.parse_os_release(text)["supported"] is supported


def test_kernels_are_ordered_by_their_numbers():
    kernels = ["6.1.0-9-amd64", "6.1.0-31-amd64", "6.12.5+deb13-amd64", "6.1.0-28-amd64", "5.15.0-190-generic"]
    expected = ["5.15.0-190-generic", "6.1.0-9-amd64", "6.1.0-28-amd64", "6.1.0-31-amd64", "6.12.5+deb13-amd64"]
    assert sorted(kernels, key=system.kernel_order) == expected


@pytest.mark.parametrize(
    "cgroup, unit",
    [
        ("0::/system.slice/sglang-k26.service\n", "sglang-k26.service"),
        ("0::/user.slice/user-1000.slice/session-4.scope\n", "session-4.scope"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/notebook.service\n", "notebook.service"),
        ("0::/system.slice/docker-0f3c.scope\n", "docker-0f3c.scope"),
        ("12:memory:/system.slice/sglang-k26.service\n0::/\n", "sglang-k26.service"),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_the_unit_of_a_process(cgroup, unit):
    assert system.unit_of(cgroup) == unit
