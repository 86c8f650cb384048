"""What the role gpu_host refuses and writes, and in which order hosts are provisioned: here, below a directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def play(ansible_playbook, tmp_path):
    """Run one part of the role gpu_host here, with these variables: (status, what it said)."""

    def run(part, **variables):
        task = {"ansible.builtin.include_role": {"name": "gpu_host", "tasks_from": part}}
        (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
        arguments = (
            "-i",
            "localhost,",
            "-c",
            "local",
            "-e",
            json.dumps({**variables, "ansible_python_interpreter": sys.executable}),
        )
        done = ansible_playbook(tmp_path / "play.yml", *arguments)
        return done.returncode, " ".join(done.stdout.split())

    return run


@pytest.mark.parametrize("playbook", ["provision", "rollback"])
def test_an_inventory_that_means_nobody_is_refused(playbook, ansible_playbook):
    done = ansible_playbook(ROOT / f"playbooks/{playbook}.yml", "-i", "localhost,")
    assert done.returncode == 2, done.stdout
    assert 'No host matches "sglang"' in " ".join(done.stdout.split())


@pytest.mark.parametrize(("declared", "batches"), [({}, 1), ({"a": "false"}, 1), ({"b": "true"}, 2)])
def test_hosts_whose_engines_may_be_stopped_are_provisioned_one_after_the_other(
    declared, batches, ansible_playbook, tmp_path
):
    plays = yaml.safe_load((ROOT / "playbooks/provision.yml").read_text())
    (serial,) = (play["serial"] for play in plays if "roles" in play)
    say = {"ansible.builtin.debug": {"msg": "batch of {{ ansible_play_batch | join(' and ') }}"}, "run_once": True}
    first = {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [],
    }  # as there: no first play knows other hosts' variables
    plays = [first, {"hosts": "sglang", "gather_facts": False, "serial": serial, "tasks": [say]}]
    (tmp_path / "play.yml").write_text(json.dumps(plays))
    hosts = {name: {"nvidia_driver_stop_services": declared[name]} if name in declared else {} for name in "ab"}
    (tmp_path / "hosts.yml").write_text(json.dumps({"sglang": {"hosts": hosts}}))
    done = ansible_playbook(tmp_path / "play.yml", "-i", tmp_path / "hosts.yml")
    assert done.stdout.count("batch of ") == batches, done.stdout


@pytest.mark.parametrize(
    "variables",
    [
        {"gpu_host_modprobe_options": {"nvidia": {"NVreg_EnableMSI": None}}},
        {"gpu_host_modprobe_options": {"nvidia": {"NVreg_EnableMSI": "1 NVreg_Other=2"}}},
        {"gpu_host_modprobe_options": {"nvidia\noptions other": {"NVreg_EnableMSI": 1}}},
        {"gpu_host_sysctl": {"vm.swappiness": None}},
        {"gpu_host_sysctl": {"vm.swappiness": "1\nkernel.panic = 1"}},
        {"gpu_host_kernel_parameters": ["iommu=pt\n"]},
        {"gpu_host_governor": "performance; reboot"},
    ],
    ids=str,
)
def test_what_would_break_a_file_is_refused(play, variables):
    status, output = play("preflight", **variables)
    assert status == 2, output
    assert "Nothing was changed" in output and next(iter(variables)) in output


def test_true_is_written_as_the_kernel_reads_it(play, tmp_path):
    path = tmp_path / "written"
    options = {"nvidia": {"NVreg_A": True, "NVreg_B": "x"}, "nvidia_uvm": {"uvm_disable_hmm": False}}
    status, output = play("modprobe", gpu_host_modprobe_options=options, __gpu_host_modprobe_path=str(path))
    assert status == 0, output
    assert path.read_text().splitlines()[1:] == [
        "options nvidia NVreg_A=1 NVreg_B=x",
        "options nvidia_uvm uvm_disable_hmm=0",
    ]
    declared = {"gpu_host_sysctl": {"kernel.numa_balancing": False, "vm.swappiness": 1}}
    in_effect = {"__gpu_host_sysctl": {"stdout_lines": ["0", "1"]}}
    status, output = play("sysctl", **declared, **in_effect, __gpu_host_sysctl_path=str(path))
    assert status == 0, output
    assert path.read_text().splitlines()[1:] == ["kernel.numa_balancing = 0", "vm.swappiness = 1"]
