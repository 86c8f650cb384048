"""A host is read whole: with cards and without, with a driver and bare, as root and not."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest
from ansible.module_utils import gpu_host_reading
from ansible.module_utils.gpu_host import driver, kernel_log, pci, smi
from gpu_stage import KERNEL, VERSION, Stage, machine
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def test_a_card_with_all_that_is_known_of_it(stage):
    stage.machine = {"processes": [{"gpu": 5, "pid": 21544, "name": "python", "memory": 512}]}
    facts = stage.facts()
    card = facts["gpus"][5]
    expected = {
        "address": "0000:a1:00.0",
        "device": "2bb5",
        "model": "RTX PRO 6000 Blackwell Server Edition",
        "numa_node": 1,
        "kernel_driver": "nvidia",
        "iommu": "passthrough",
        "bridges": ["0000:a0:01.1"],
        "kind": "endpoint",
    }
    assert {key: card[key] for key in expected} == expected
    assert card["link"] == {"speed": 2.5, "speed_max": 32.0, "width": 16, "width_max": 16}
    assert card["bar1_mib"] == 128 * 1024
    assert card["aer"] == {"correctable": 3, "nonfatal": 0, "fatal": 0}
    assert card["smi"]["memory_used_mib"] == 516
    assert facts["processes"] == [
        {"gpu": "0000:a1:00.0", "pid": 21544, "name": "python", "memory_mib": 512, "unit": "sglang-k26.service"}
    ]


def test_the_driver_in_its_four_places(stage):
    stage.kernels["6.1.0-32-amd64"] = stage.kernels[KERNEL].replace(VERSION, "580.126.20")
    facts = stage.facts()
    assert facts["kernels"] == {
        "running": KERNEL,
        "newest": "6.1.0-32-amd64",
        "installed": [KERNEL, "6.1.0-32-amd64"],
        "headers": [KERNEL],
    }
    places = facts["driver"]
    assert places["loaded"] == {"version": VERSION, "open": True}
    assert (places["on_disk"]["version"], places["next_boot"]["version"]) == (VERSION, "580.126.20")
    assert places["library"] == VERSION
    assert places["parameters"]["nvidia_uvm"] == {"uvm_disable_hmm": "N"}


def test_a_bare_host_is_read_too(tmp_path):
    machine.put(tmp_path / "proc/sys/kernel/osrelease", KERNEL)
    machine.put(tmp_path / "dev/kmsg", "6,1,0,-;Linux version")
    facts = gpu_host_reading.read(tmp_path, lambda argv, timeout=30: None)
    assert (facts["gpus"], facts["bridges"], facts["smi"]["state"], facts["unknown"]) == ([], [], "absent", {})
    assert facts["driver"]["loaded"] is facts["driver"]["on_disk"] is None
    assert facts["secure_boot"] == {"state": "none", "dkms_key": None}


def test_without_root_the_bridges_are_unknown_and_the_links_are_not(stage):
    stage.facts()
    for config in stage.root.glob("sys/devices/*/*/config"):
        config.write_bytes(config.read_bytes()[:64])
    facts = gpu_host_reading.read(stage.root, lambda argv, timeout=30: None)
    assert {bridge["acs"] for bridge in facts["bridges"]} == {"unknown"}
    assert facts["unknown"]["acs of 0000:00:01.1"] == "/sys/bus/pci/devices/0000:00:01.1/config: needs root"
    assert facts["bridges"][0]["link"]["width"] == 16


def test_a_hanging_nvidia_smi_is_no_answer(stage):
    stage.programs["nvidia-smi"] = gpu_host_reading.run(("sleep", "60"), timeout=0.1)
    smi_state = stage.facts()["smi"]
    assert (smi_state["state"], smi_state["message"]) == ("failed", "no answer in 0.1 s")


def test_a_program_that_cannot_be_killed_is_not_waited_for(monkeypatch):
    """As nvidia-smi in state D, in the driver; here by a signal that is not sent."""
    hanging, kill = [], subprocess.Popen.kill
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: hanging.append(process))
    assert gpu_host_reading.run(("sleep", "20"), timeout=0.1) == (124, "", "no answer in 0.1 s")
    assert [process.poll() for process in hanging] == [None]
    kill(hanging[0])
    hanging[0].communicate()


def test_a_processor_that_is_offline_has_no_governor(stage):
    machine.put(stage.root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    (stage.root / "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor").mkdir(parents=True)  # cannot be read either
    assert stage.facts()["governors"] == ["performance"]


def test_parameters_that_sysfs_does_not_show_are_read_where_the_module_shows_them(stage):
    stage.facts()
    machine.put(stage.root / "proc/driver/nvidia/params", 'EnableGpuFirmware: 18\nRegistryDwords: ""\nRmMsg: "a: b"\n')
    shown = {"NVreg_EnableGpuFirmware": "18", "NVreg_RegistryDwords": "", "NVreg_RmMsg": "a: b"}
    facts = gpu_host_reading.read(stage.root, lambda argv, timeout=30: None)
    assert facts["driver"]["parameters"]["nvidia"].items() >= shown.items()


@pytest.mark.skipif(os.geteuid() != 0, reason="the journal is for root alone")
def test_a_journal_that_does_not_answer_is_unknown(stage):
    stage.programs["journalctl"] = (124, "", "no answer in 30 s")
    assert stage.facts()["unknown"] == {"journal": "journalctl: no answer in 30 s"}


@pytest.mark.parametrize(("variable", "state"), [(b"\6\0\0\0\1", "enabled"), (b"\6\0\0\0\0", "disabled"), (b"", "unknown")])
def test_where_mokutil_does_not_know_the_firmware_is_asked(stage, variable, state):
    stage.facts()
    stage.programs["mokutil"] = (1, "", "Failed to read SecureBoot")
    (stage.root / gpu_host_reading.EFI).mkdir(parents=True, exist_ok=True)
    (stage.root / gpu_host_reading.SECURE_BOOT).write_bytes(variable)
    facts = gpu_host_reading.read(stage.root, lambda argv, timeout=30: stage.programs.get(argv[0]))
    assert facts["secure_boot"]["state"] == state
    assert ("secure_boot" in facts["unknown"]) is (state == "unknown")


def test_reading_writes_nothing(stage):
    stage.facts()
    before = {path: path.lstat().st_mtime_ns for path in stage.root.rglob("*")}
    gpu_host_reading.read(stage.root, lambda argv, timeout=30: None)
    assert {path: path.lstat().st_mtime_ns for path in stage.root.rglob("*")} == before


def test_the_kernels_own_buffer_is_read_to_its_end_without_waiting():
    """The real one of this machine: one record each read, and EAGAIN behind the last."""
    if os.path.exists("/dev/kmsg") and os.geteuid() == 0:
        assert isinstance(gpu_host_reading.read("/", lambda argv, timeout=30: None)["kernel_log"]["xids"], list)


TEXT = st.text(st.characters(codec="utf-8"), max_size=200)


@given(TEXT)
def test_no_output_of_a_program_is_an_error_of_ours(printed):
    assert smi.parse(1, printed)[0]["state"] != "ok"
    smi.parse(0, f"<nvidia_smi_log>{printed}</nvidia_smi_log>")
    driver.parse_dkms(printed)
    driver.parse_modinfo(printed)
    driver.parse_proc_version(printed)
    kernel_log.read([(1.0, printed), (1.0, f"NVRM: Xid (PCI:0000:41:00): {printed}")])


@given(st.binary(max_size=600))
def test_no_configuration_space_is_an_error_of_ours(config):
    with contextlib.suppress(pci.TooShort):
        assert set(pci.parse_config(config)) == {"kind", "link", "acs"}
