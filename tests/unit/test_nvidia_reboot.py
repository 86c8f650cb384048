"""The one reboot decision: from the state alone, and never against what is at work."""

from __future__ import annotations

import pytest

from module_utils.gpu_host import reboot

VERSION = "580.95.05"


def facts(loaded=VERSION, is_open=True, gpus=8, **changes):
    """A host that is as declared, but for what is given."""
    module = {"version": VERSION, "open": True}
    found = {
        "gpus": [{"address": f"0000:{number:02x}:00.0"} for number in range(gpus)],
        "boot": {"id": "b1", "parameters": ["quiet", "iommu=pt"]},
        "kernels": {"running": "6.1.0-28", "newest": "6.1.0-28", "headers": ["6.1.0-28"]},
        "secure_boot": {"state": "none", "dkms_key": None},
        "smi": {"state": "ok"},
        "driver": {
            "loaded": loaded and {"version": loaded, "open": is_open},
            "next_boot": module,
            "on_disk": module,
            "modules": ["nvidia", "nvidia_uvm"],
            "parameters": {"nvidia_uvm": {"uvm_disable_hmm": "Y"}},
            "dkms": [],
        },
    }
    for path, value in changes.items():
        section, name = path.split("__")
        found[section][name] = value
    return found


def test_a_host_as_declared_has_no_reason():
    assert reboot.reasons(facts(), VERSION, ["iommu=pt"], {"nvidia_uvm": {"uvm_disable_hmm": 1}}) == []


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (facts(loaded=None), "no NVIDIA module is loaded"),
        (facts(loaded="580.82.07"), "the loaded module is 580.82.07, declared is 580.95.05"),
        (facts(is_open=False), "the loaded module is the proprietary one"),
        (facts(driver__modules=["nouveau"], loaded=None, gpus=0), "the module nouveau is loaded"),
        (facts(boot__parameters=["quiet"]), "the kernel was started without iommu=pt"),
        (
            facts(driver__parameters={"nvidia_uvm": {"uvm_disable_hmm": "N"}}),
            "the module nvidia_uvm runs with uvm_disable_hmm=N, declared is 1",
        ),
    ],
)
def test_each_difference_is_a_reason_with_its_text(host, reason):
    assert reboot.reasons(host, VERSION, ["iommu=pt"], {"nvidia_uvm": {"uvm_disable_hmm": 1}}) == [reason]


def test_what_is_installed_does_not_matter_so_an_aborted_run_is_finished_by_the_next():
    before = facts(loaded="580.82.07", driver__next_boot={"version": "580.82.07", "open": True})
    after = facts(loaded="580.82.07")
    assert reboot.reasons(before, VERSION) == reboot.reasons(after, VERSION) != []


def test_a_host_without_cards_is_not_rebooted_for_a_module():
    assert reboot.reasons(facts(loaded=None, gpus=0), VERSION) == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"allowed": False}, "nvidia_driver_reboot_allowed=true"),
        ({"holders": ["sglang-k26.service"]}, "sglang-k26.service is at work"),
        ({"tried": True}, "did not help"),
    ],
)
def test_what_stands_against_a_reboot_says_what_to_type(asked, said):
    (obstacle,) = reboot.obstacles(facts(), **asked)
    assert said in obstacle
    assert "Next" in obstacle


def test_a_reboot_for_one_of_the_reasons_is_not_repeated_but_one_that_never_came_is():
    why = ["the module nouveau is loaded"]
    kept = reboot.record(facts(), VERSION, [*why, "another, for which it helped"])
    assert reboot.was_tried(kept, facts(boot__id="b2"), VERSION, why)
    assert not reboot.was_tried(kept, facts(), VERSION, why)  # aborted before it rebooted
    assert not reboot.was_tried(kept, facts(boot__id="b2"), VERSION, ["a third"])
    assert not reboot.was_tried(kept, facts(boot__id="b2"), "590.44.01", why)
    assert not reboot.was_tried({}, facts(), VERSION, why)


@pytest.mark.parametrize(("state", "key"), [("enabled", None), ("enabled", "not enrolled"), ("enabled", "unknown")])
def test_under_secure_boot_a_key_that_is_not_enrolled_stops_with_instructions(state, key):
    host = facts(
        loaded=None, secure_boot__state=state, secure_boot__dkms_key=key, driver__next_boot=None, driver__on_disk=None
    )
    (obstacle,) = reboot.obstacles(host)
    assert "mokutil --import /var/lib/dkms/mok.pub" in obstacle
    assert ("dkms generate_mok" in obstacle) is (key is None)


@pytest.mark.parametrize(("state", "key"), [("enabled", "enrolled"), ("disabled", "not enrolled"), ("none", None)])
def test_otherwise_secure_boot_is_no_obstacle(state, key):
    host = facts(
        loaded=None, secure_boot__state=state, secure_boot__dkms_key=key, driver__next_boot=None, driver__on_disk=None
    )
    assert reboot.obstacles(host) == []


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (None, "no nvidia module"),
        ({"version": "580.82.07", "open": True}, "nvidia 580.82.07"),
        ({"version": VERSION, "open": False}, "the proprietary module"),
    ],
)
def test_a_newest_kernel_without_the_module_is_named_with_what_dkms_says(module, found):
    host = facts(
        driver__next_boot=module,
        driver__dkms=[{"module": "nvidia", "version": VERSION, "kernel": "6.1.0-30", "state": "built"}],
        kernels__newest="6.1.0-30",
    )
    text = reboot.unready(host, VERSION)
    assert f"Kernel 6.1.0-30, which the next boot takes, has {found}" in text
    assert "DKMS says 580.95.05 built for it, its headers are missing" in text
    assert "dkms autoinstall -k 6.1.0-30" in text
    assert reboot.unready(facts(), VERSION) == ""


def test_a_driver_without_nvidia_smi_is_not_ready():
    assert "no nvidia-smi" in reboot.unready(facts(smi__state="absent"), VERSION)


def test_services_can_be_stopped_and_other_processes_are_named():
    processes = [
        {"unit": "sglang-k26.service", "name": "python3", "pid": 10},
        {"unit": "vllm.service", "name": "python3", "pid": 11},
        {"unit": "session-4.scope", "name": "python3", "pid": 12},
        {"unit": "session-4.scope", "name": "python3", "pid": 12},  # one line for each card
        {"unit": None, "name": "gpu-burn", "pid": 13},
    ]
    services, others = reboot.holders(["sglang-k26.service"], processes)
    assert services == ["sglang-k26.service", "vllm.service"]
    assert others == ["gpu-burn (13)", "python3 (12)"]
