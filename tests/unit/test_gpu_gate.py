"""What makes a host unfit for an engine, and what does not: facts are read from a tree of fake hardware."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from ansible.module_utils import gpu_host_reading
from ansible.module_utils.gpu_host import gate
from gpu_stage import KERNEL, LOADED, VERSION, Stage, modinfo

EIGHT = gate.Declared(count=8)
NEWER = "6.1.0-32-amd64"
XID = "NVRM: Xid (PCI:0000:41:00): "
OTHER = "580.126.20"


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def judged(stage, declared=EIGHT, known=None):
    return gate.judge(stage.facts(), declared, known)


def names(findings, severity=None):
    return [finding.name for finding in findings if severity in (None, finding.severity)]


def test_the_page_lists_all_findings():
    page = (Path(__file__).parents[2] / "docs/provision.md").read_text()
    assert re.findall(r"^[|] `(\w+)` [|] (.*) [|]$", page.split("| finding |")[1], re.MULTILINE) == list(
        gate.FINDINGS.items()
    )


def test_a_healthy_host_raises_nothing(stage):
    assert judged(stage) == []


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param({"speed": 1}, id="an idle link has slowed down"),
        pytest.param({"speed": 5}, id="a busy link has not"),
        pytest.param({"iommu": None}, id="no IOMMU"),
        pytest.param({"acs": ["SrcValid"]}, id="ACS as pci=disable_acs_redir leaves it"),
        pytest.param({"processes": [{"gpu": 2, "pid": 21544, "name": "python", "memory": 90000}]}, id="the engine serves"),
        pytest.param({"processes": [{"gpu": 0, "pid": 77, "name": "Xorg", "memory": 12}]}, id="a screen"),
        pytest.param({"kernel_log": [f"{XID}31, pid=7, name=python3, MMU Fault"]}, id="an application's Xid"),
        pytest.param({"kernel_log": [f"{XID}43, pid=7, name=python3, Ch 8"]}, id="an application that was stopped"),
        pytest.param(
            {
                "kernel_log": [
                    f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
                    f"{XID}154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
                ]
            },
            id="a reset that was asked for and done",
        ),
        pytest.param(
            {"kernel_log": ["pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0"]}, id="a corrected error"
        ),
    ],
)
def test_what_a_healthy_host_also_shows_is_no_finding(stage, healthy):
    stage.machine = healthy
    assert judged(stage) == []


# what is wrong, the one finding, what a person reads of it
FAULTS = [
    ({"absent": [7]}, "gpu_count", ["declared 8 cards, found 7 on the PCI bus", "gpu_host_count: 7"]),
    ({"unseen": [3]}, "gpu_unseen (0000:61:00.0)", ["declared seen by the driver, found not seen", "power cycle"]),
    (
        {"width": {"2": 8}},
        "link_width (0000:41:00.0)",
        ["declared x16, found x8", "root port 0000:40:01.1 can x16"],
    ),
    (
        {"kernel_log": [f"{XID}79, GPU has fallen off the bus."]},
        "xid (0000:41:00.0)",
        ["Xid 79, fallen off the bus, once"],
    ),
    ({"kernel_log": [f"{XID}119, Timeout after 6s"] * 3}, "xid (0000:41:00.0)", ["Xid 119, its firmware (GSP)", "3 times"]),
    (
        {"kernel_log": [f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"]},
        "xid (0000:41:00.0)",
        ["Xid 154, asks for recovery", "Node Reboot Required"],
    ),
    (
        {"kernel_log": [f"{XID}79, GPU has fallen off the bus.", "NVRM: GPU 0000:41:00.0: GPU has fallen off the bus."]},
        "xid (0000:41:00.0)",
        ["Xid 79"],
    ),
    (
        {"kernel_log": ["NVRM: GPU 0000:81:00.0: RmInitAdapter failed! (0x62:0x40:2477)"]},
        "gpu_lost (0000:81:00.0)",
        ["RmInitAdapter failed", "power-cycle"],
    ),
    (
        {"kernel_log": ["pcieport 0000:40:01.1: DPC: containment event, status:0x1f01 source:0x0000"]},
        "gpu_lost (0000:40:01.1)",
        ["DPC: containment event", "riser"],
    ),
    ({"aer": {"2": 4}}, "aer (0000:41:00.0)", ["4 uncorrected errors (fatal)", "aer_dev_fatal"]),
    (
        {"acs": ["SrcValid", "ReqRedir", "CmpltRedir"]},
        "acs",
        ["0000:40:01.1 ReqRedir+ CmpltRedir+", "pci=disable_acs_redir=0000:00:01.1;0000:20:01.1"],
    ),
    ({"iommu": "DMA-FQ"}, "iommu", ["declared disabled or passthrough, found translated", "iommu=pt"]),
    ({"mig": [5]}, "mig", ["declared Disabled, found Enabled, for 0000:a1:00.0", "nvidia-smi -mig 0"]),
    ({"compute_mode": "Exclusive_Process"}, "compute_mode", ["found Exclusive_Process", "nvidia-smi -c DEFAULT"]),
    ({"recovery": {"0": "Reset"}}, "recovery", ["found Reset, for 0000:01:00.0", "--gpu-reset"]),
    (
        {"processes": [{"gpu": 1, "pid": 9100, "name": "python3", "memory": 30000}]},
        "memory (0000:21:00.0)",
        ["python3 (pid 9100, vllm.service) holds 30000 MiB", "systemctl stop vllm.service"],
    ),
    (
        {"processes": [{"gpu": 1, "pid": 77, "name": "python3", "memory": 30000}]},
        "memory (0000:21:00.0)",
        ["python3 (pid 77, session-4.scope) holds 30000 MiB", "kill 77"],
    ),
    (
        {"processes": [{"gpu": 1, "pid": 21544, "name": "python", "memory": 60000}], "memory": {"1": 30000}},
        "memory (0000:21:00.0)",
        ["30004 MiB held by no process"],
    ),
    (
        {"kernel_log": [f"{XID}62, Internal micro-controller halt"]},
        "xid (0000:41:00.0)",
        ["Xid 62, one of its microcontrollers"],
    ),
    ({"memory": {"6": 30000}}, "memory (0000:c1:00.0)", ["30004 MiB held by no process", "--gpu-reset"]),
    (
        {
            "processes": [
                {"gpu": 1, "pid": 21544, "name": "python", "memory": 60000},
                {"gpu": 1, "pid": 77, "name": "python3", "memory": 30000},
            ]
        },
        "memory (0000:21:00.0)",
        ["found python3 (pid 77, session-4.scope) holds 30000 MiB"],
    ),
]


@pytest.mark.parametrize("fault, title, words", FAULTS, ids=[f"{fault}"[:50] for fault, _, _ in FAULTS])
def test_a_fault_of_the_hardware_is_one_critical_finding_of_its_own(stage, fault, title, words):
    stage.machine = fault
    (finding,) = judged(stage)
    assert (finding.title(), finding.severity) == (title, gate.CRITICAL)
    text = " ".join(finding.sentence().split())
    assert all(word in text for word in words), text


def test_no_driver_at_all_is_one_finding(stage):
    stage.loaded, stage.kernels, stage.programs = None, {KERNEL: ""}, {"nvidia-smi": None, "dkms": None}
    stage.library = "none"
    (finding,) = judged(stage)
    assert finding.name == "driver_missing"
    assert "none is loaded, and none is installed" in finding.found


def test_an_installed_driver_that_is_not_loaded_asks_for_its_reboot(stage):
    stage.loaded = None
    stage.programs["nvidia-smi"] = (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "")
    (finding,) = judged(stage)
    assert (finding.name, finding.found) == ("driver_missing", f"none is loaded, {VERSION} is installed")


def test_nouveau_is_named_beside_the_driver_that_it_keeps_away(stage):
    stage.machine, stage.loaded = {"nouveau": True}, None
    stage.programs["nvidia-smi"] = (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "")
    assert names(judged(stage)) == ["nouveau", "driver_missing"]


def test_the_closed_module_is_named_once_and_without_the_cards_that_it_does_not_drive(stage):
    stage.loaded = {**LOADED, "open": False}
    stage.kernels = {KERNEL: modinfo(licence="NVIDIA")}
    stage.programs["nvidia-smi"] = (6, "No devices were found", "")
    (finding,) = judged(stage)
    assert (finding.name, finding.found) == ("driver_closed", "the closed one is loaded")


@pytest.mark.parametrize("library, on_disk", [(OTHER, VERSION), (OTHER, OTHER), (VERSION, OTHER)])
def test_a_driver_that_somebody_upgraded_without_a_reboot(stage, library, on_disk):
    stage.library, stage.kernels = library, {KERNEL: modinfo(on_disk)}
    if library != VERSION:
        said = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126"
        stage.programs["nvidia-smi"] = (18, said, "")
    (finding,) = judged(stage)
    assert finding.name == "driver_mismatch"
    assert f"loaded {VERSION}, on disk {on_disk}, library {library}" in finding.found


def test_no_module_for_the_kernel_of_the_next_boot(stage):
    stage.kernels[NEWER], stage.headers = "", [KERNEL, NEWER]
    (finding,) = judged(stage)
    assert (finding.name, finding.severity) == ("next_boot", gate.CRITICAL)
    assert f"dkms autoinstall -k {NEWER}" in finding.next


def test_no_headers_for_the_newest_kernel_are_named_as_the_cause(stage):
    stage.kernels[NEWER] = ""
    (finding,) = judged(stage)
    assert (finding.name, finding.severity) == ("headers", gate.CRITICAL)
    assert f"none of {NEWER}, so the next boot has no driver" in finding.found


def test_headers_that_went_after_the_module_was_built_are_a_warning(stage):
    stage.headers = []
    (finding,) = judged(stage)
    assert (finding.name, finding.severity) == ("headers", gate.WARNING)


@pytest.mark.parametrize(
    "signer, mokutil, loaded, finds",
    [
        ("", "is not enrolled", LOADED, ["secure_boot"]),
        ("DKMS module signing key", "is not enrolled", None, ["driver_missing", "secure_boot"]),
        ("DKMS module signing key", "is already enrolled", LOADED, []),
        ("Canonical Ltd. Kernel Module Signing", "is not enrolled", LOADED, []),  # it is loaded, so it is accepted
    ],
)
def test_secure_boot(stage, signer, mokutil, loaded, finds):
    stage.machine, stage.loaded = {"secure_boot": True}, loaded
    stage.kernels = {KERNEL: modinfo(signer=signer)}
    (stage.root / "var/lib/dkms").mkdir(parents=True)
    (stage.root / "var/lib/dkms/mok.pub").write_text("key")
    stage.programs["mokutil"] = (0, f"SecureBoot enabled\n/var/lib/dkms/mok.pub {mokutil}\n", "")
    if loaded is None:
        stage.programs["nvidia-smi"] = (9, "couldn't communicate with the NVIDIA driver", "")
    assert names(judged(stage)) == finds


def test_without_mokutil_the_firmware_itself_says_whether_secure_boot_is_on(stage):
    stage.machine = {"secure_boot": True}
    assert names(judged(stage)) == ["secure_boot"]


def test_settings_that_are_declared_and_not_in_effect(stage):
    declared = EIGHT._replace(
        kernel_parameters=("iommu=pt", "pcie_aspm=off"),
        modprobe_options={"nvidia_uvm": {"uvm_disable_hmm": 1}},
        power_limit=450,
        link_gen=6,
    )
    findings = judged(stage, declared)
    assert names(findings, gate.WARNING) == ["power_limit"]
    assert set(names(findings, gate.CRITICAL)) == {"kernel_parameters", "module_options", "link_speed"}
    assert next(f for f in findings if f.name == "kernel_parameters").found == "without pcie_aspm=off"


def test_settings_that_are_in_effect(stage):
    stage.loaded = {**LOADED, "parameters": {"nvidia_uvm": {"uvm_disable_hmm": "Y"}}}
    declared = EIGHT._replace(
        kernel_parameters=("iommu=pt",), modprobe_options={"nvidia_uvm": {"uvm_disable_hmm": 1}}, power_limit=600, link_gen=5
    )
    assert judged(stage, declared) == []


@pytest.mark.parametrize(
    ("effective", "declared"),
    [("Y", True), ("Y", 1), ("N", False), ("0", "N"), ("1", True), ("4294967295", -1), ("16", "0x10"), ("438", "0666")],
)
def test_a_value_is_the_declared_one_however_the_kernel_shows_it(effective, declared):
    assert gate.same_value(effective, declared)
    assert not gate.same_value("7", declared)


def test_a_module_may_be_declared_with_a_dash(stage):
    (finding,) = judged(stage, EIGHT._replace(modprobe_options={"nvidia-uvm": {"uvm-disable-hmm": 1}}))
    assert (finding.name, finding.severity, finding.found) == ("module_options", gate.CRITICAL, "N")


@pytest.mark.parametrize("options", [{"nvidia_uvm": {"uvm_disable_hm": 1}}, {"nvida_uvm": {"uvm_disable_hmm": 1}}])
def test_an_option_that_the_kernel_does_not_show_is_a_warning(stage, options):
    (finding,) = judged(stage, EIGHT._replace(modprobe_options=options))
    assert (finding.name, finding.severity) == ("module_options", gate.WARNING)
    assert finding.found == "not shown by the kernel"


@pytest.mark.parametrize(
    ("options", "severity"), [({}, gate.WARNING), ({"nvidia-uvm": {"uvm_disable_hmm": 1}}, gate.CRITICAL)]
)
def test_without_nvidia_uvm_its_declared_options_are_not_proved(stage, options, severity):
    stage.loaded = {**LOADED, "modules": ["nvidia"], "parameters": {}}
    (finding,) = judged(stage, EIGHT._replace(modprobe_options=options))
    assert (finding.name, finding.severity) == ("uvm", severity)


def test_a_loaded_driver_whose_module_somebody_removed_does_not_survive_the_next_boot(stage):
    stage.kernels = {KERNEL: ""}
    (finding,) = judged(stage)
    assert (finding.name, finding.severity) == ("next_boot", gate.CRITICAL)


def test_a_card_of_eight_lanes_can_be_declared(stage):
    stage.machine = {"width": {str(number): 8 for number in range(8)}}
    assert judged(stage, EIGHT._replace(link_width=8)) == []


def test_what_is_declared_as_accepted_is_no_finding(stage):
    stage.machine = {"iommu": "DMA", "acs": ["ReqRedir"]}
    assert judged(stage, EIGHT._replace(iommu=("translated",), acs_redirect=True)) == []


def test_a_replaced_card_is_named_with_the_one_that_was_there(stage):
    known = gate.identity(stage.facts())
    (stage.root / "sys").rename(stage.root / "old")
    other = Stage(stage.root / "other")
    other.machine = {"replaced": [4]}
    (finding,) = judged(other, known=known)
    assert (finding.name, finding.severity) == ("gpu_identity", gate.CRITICAL)
    assert known["0000:81:00.0"] in finding.declared
    assert "at 0000:81:00.0" in finding.found
    assert "gpu_host_accept_gpus=true" in finding.next


def test_a_missing_card_is_named_as_it_was_when_the_gate_last_passed(stage, tmp_path):
    known = gate.identity(stage.facts())
    other = Stage(tmp_path / "other")
    other.machine = {"absent": [7]}
    (finding,) = judged(other, known=known)
    assert finding.name == "gpu_count"
    assert known["0000:e1:00.0"] in finding.found


def test_declared_uuids_win_over_what_was_last_known(stage):
    (finding,) = judged(stage, EIGHT._replace(uuids=("GPU-of-another-host",)), known={})
    assert finding.name == "gpu_identity"
    assert "(gpu_host_uuids)" in finding.declared


def test_what_root_alone_may_read_is_unknown_and_never_taken_for_good(stage):
    facts = stage.facts()
    facts["bridges"][0]["acs"] = "unknown"
    facts["unknown"] = {"acs of 0000:00:01.1": "/sys/bus/pci/devices/0000:00:01.1/config: needs root"}
    (finding,) = gate.judge(facts, EIGHT)
    assert (finding.name, finding.severity) == ("unreadable", gate.CRITICAL)
    assert "acs of 0000:00:01.1: unknown" in finding.found


def test_a_host_without_the_programs_to_ask_is_named_for_that(stage):
    stage.facts()
    findings = gate.judge(gpu_host_reading.read(stage.root, lambda argv, timeout=30: None), EIGHT)
    assert [finding.title() for finding in findings] == ["unreadable", "nvidia_smi"]
    assert "modinfo is not installed" in findings[0].where


def test_every_finding_has_a_name_under_which_it_can_be_waived():
    source = Path(gate.__file__).read_text()
    assert {*re.findall(r'(?:Finding|differing)\(\s*"(\w+)"', source), "all_reduce"} == set(gate.FINDINGS)


# ---- waivers ----

TODAY = datetime.date(2026, 11, 30)
RISER = {"finding": "link_width", "gpu": "0000:41:00.0", "reason": "riser is ordered", "until": "2027-01-15"}


def test_a_waiver_holds_for_its_card_until_its_day(stage):
    stage.machine = {"width": {"2": 8, "3": 8}}
    waivers = gate.read_waivers([{**RISER, "until": "2026-11-30"}], TODAY)
    standing, waived = gate.waive(judged(stage), waivers)
    assert [finding.gpu for finding in standing] == ["0000:61:00.0"]
    assert [(finding.gpu, waiver.reason) for finding, waiver in waived] == [("0000:41:00.0", "riser is ordered")]


def test_a_waiver_without_a_card_holds_for_all(stage):
    stage.machine = {"width": {"2": 8, "3": 8}}
    standing, waived = gate.waive(judged(stage), gate.read_waivers([{**RISER, "gpu": None}], TODAY))
    assert (standing, len(waived)) == ([], 2)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"until": "2026-11-29"}, ["waived until 2026-11-29 (riser is ordered), and that day is over"]),
        ({"until": "soon"}, ["until soon is no day; write it as 2027-01-31"]),
        ({"reason": ""}, ["without reason"]),
        ({"finding": "linkwidth"}, ["finding linkwidth is unknown; there are unreadable, gpu_count"]),
        ({"card": 3}, ["with card, which it has not"]),
        ({"gpu": 2460.0}, ["gpu: '2460.0' is no PCI address; write it in quotes"]),
    ],
)
def test_a_waiver_that_does_not_hold_is_an_error(change, words):
    with pytest.raises(ValueError) as error:
        gate.read_waivers([{**RISER, **change}], TODAY)
    assert "gpu_host_waivers, entry 1" in str(error.value)
    assert all(word in str(error.value) for word in words)


def test_memory_that_the_driver_does_not_tell_is_no_free_memory(stage):
    facts = stage.facts()
    facts["gpus"][3]["smi"]["memory_used_mib"] = None
    (finding,) = gate.judge(facts, EIGHT)
    assert (finding.name, finding.severity, finding.gpu) == ("unreadable", gate.CRITICAL, facts["gpus"][3]["address"])
