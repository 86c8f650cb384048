"""The gate on real hosts with fake cards: what it finds, what it lets through, and where a deployment stops.

testhosts/fake_gpu/README.md says what is real there. The all-reduce is real: torch's own, among processes of the CPU.
"""

from __future__ import annotations

import json
import shlex

import pytest
from deployment import INVENTORY, Deployment, hosts, python

DRIVER = "580.95.05"
MODULE = "/lib/modules/$(uname -r)/updates/dkms/nvidia.ko"
MODULE_AGAIN = (
    f"python3 -c 'import machine, sys; sys.stdout.buffer.write(machine.kernel_module(*sys.argv[1:]))' %s > {MODULE}"
)
XID = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."


class GpuHost(Deployment):
    """A test host with fake cards. What is wrong with it: `machine`, and a shell script."""

    def __init__(self, host, address, directory):
        super().__init__(host)
        self.directory, self.inventory = directory, directory / "inventory"
        self.inventory.mkdir()
        here = {"ansible_host": address, "gpu_host_count": 8}
        (self.inventory / "hosts.yml").write_text(json.dumps({"sglang": {"hosts": {host: here}}}))
        (self.inventory / "group_vars").symlink_to(INVENTORY / "group_vars")

    def playbook(self, *arguments, **options):
        return super().playbook(*arguments, **{"inventory": self.inventory, **options})

    def gate(self, *arguments):
        return self.playbook("playbooks/gate.yml", *arguments)

    def role(self, *arguments, variables=None):
        """Applies the role gpu_host with these variables."""
        return self.play(*arguments, "-e", json.dumps(variables or {}), become=True, roles=["gpu_host"])

    def play(self, *arguments, **keywords):
        """One play of these keywords."""
        path = self.directory / "play.yml"
        path.write_text(json.dumps([{"hosts": "sglang", "gather_facts": False, **keywords}]))
        return self.playbook(path, *arguments)

    def machine(self, step="hardware", script="", **differs):
        """Make the machine differ from a healthy one in this alone; `step` boot: as after a real boot."""
        self.shell(f"""
            echo {shlex.quote(json.dumps(differs))} >/etc/fake-gpu/machine.json
            cd /usr/lib/fake-gpu
            {script}
            python3 machine.py {step}""")


@pytest.fixture(scope="module")
def cards():
    """The layer of a host with cards and an installed driver."""
    return python("testhosts.fake_gpu", "--driver", DRIVER).strip()


@pytest.fixture(scope="module")
def gpu_host(cards, tmp_path_factory):
    hosts("down", "gpu1")
    hosts("up", "--layer", cards, "gpu1=10.213.77.80")
    yield GpuHost("gpu1", "10.213.77.80", tmp_path_factory.mktemp("inventory"))
    hosts("down", "gpu1")


def test_check_mode_on_a_host_that_the_gate_never_saw_says_the_truth_and_keeps_nothing(gpu_host):
    run = gpu_host.gate("--check", "--diff")
    assert run.status == 0, run.output
    assert '+  "0000:e1:00.0": "GPU-00000007' in run.output
    assert gpu_host.shell("ls /var/lib/sglang-deploy 2>&1 || true").endswith("No such file or directory\n")


def test_a_healthy_host_passes_and_a_second_time_nothing_changes(gpu_host):
    assert gpu_host.gate().status == 0
    run = gpu_host.gate()
    assert (run.status, run.changed) == (0, 0), run.output


FAULTS = {
    "7 of 8": ({"absent": [7]}, "", ["gpu_count: declared 8 cards, found 7 on the PCI bus", "0000:e1:00.0 (GPU-00000007-"]),
    "x8": (
        {"width": {"2": 8}},
        "",
        ["link_width (0000:41:00.0): declared x16, found x8 (card can x16, root port"],
    ),
    "Xid 79": (
        {"kernel_log": [XID]},
        "",
        ["xid (0000:41:00.0): declared none since boot, found Xid 79"],
    ),
    "ACS": ({"acs": ["SrcValid", "ReqRedir"]}, "", ["acs: declared no redirection, found 0000:00:01.1 ReqRedir+;"]),
    "IOMMU": ({"iommu": "DMA-FQ"}, "", ["iommu: declared disabled or passthrough, found translated"]),
    "MIG": ({"mig": [3]}, "", ["mig: declared Disabled, found Enabled, for 0000:61:00.0"]),
    "30 GB": (
        {"processes": [{"gpu": 1, "pid": 1, "name": "python3", "memory": 30000}]},
        "",
        ["memory (0000:21:00.0): declared at most 1024 MiB, found python3 (pid 1, init.scope) holds 30000 MiB"],
    ),
    "a replaced card": ({"replaced": [0]}, "", ["gpu_identity: declared GPU-00000000-", "gpu_host_accept_gpus=true"]),
    "nouveau": ({"nouveau": True}, "", ["nouveau: declared not loaded, found loaded"]),
    "Secure Boot": (
        {"secure_boot": True},
        "",
        ["secure_boot:", "found Secure Boot on, module without a signature"],
    ),
    "a closed module": (
        {},
        MODULE_AGAIN % f"{DRIVER} NVIDIA",
        ["driver_closed: declared the open module, found the closed one is loaded"],
    ),
    "no headers for the newest kernel": (
        {},
        "mkdir -p /lib/modules/99.1.0-1-amd64; touch /boot/vmlinuz-99.1.0-1-amd64",
        ["headers: declared headers of the newest kernel, found none of 99.1.0-1-amd64, so the next boot has no driver"],
    ),
    "a mismatch": (
        {},
        "mv /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.20",
        ["driver_mismatch: declared one version, found loaded 580.95.05, on disk 580.95.05, library 580.126.20"],
    ),
}
HEAL = f"""
rm -rf /lib/modules/99.1.0-1-amd64 /boot/vmlinuz-99.1.0-1-amd64
cd /usr/lib/x86_64-linux-gnu; [ ! -e libnvidia-ml.so.580.126.20 ] || mv libnvidia-ml.so.580.126.20 libnvidia-ml.so.{DRIVER}
cd /usr/lib/fake-gpu; {MODULE_AGAIN % f"{DRIVER} GPL"}
"""


@pytest.mark.parametrize("differs, script, said", FAULTS.values(), ids=FAULTS)
def test_each_fault_is_found_and_said_in_its_own_words(gpu_host, differs, script, said):
    gpu_host.machine("boot", script, **differs)
    run = gpu_host.gate()
    gpu_host.machine("boot", HEAL)
    assert run.status == 2, run.output
    assert all(text in run.said for text in said), run.output
    assert "next" in run.output and run.changed == 0


def test_what_is_waived_passes_and_is_printed_each_time_until_its_day(gpu_host):
    gpu_host.machine(width={"2": 8})
    waiver = "{finding: link_width, gpu: '0000:41:00.0', reason: the riser is ordered, until: %s}"
    declared = gpu_host.directory / "waivers.yml"
    declared.write_text(f"gpu_host_waivers: [{waiver % '2999-01-01'}]\n")
    for _ in range(2):
        run = gpu_host.gate("-e", f"@{declared}")
        assert run.status == 0, run.output
        said = "waived until 2999-01-01, the riser is ordered: link_width (0000:41:00.0): declared x16, found x8"
        assert said in run.said
    declared.write_text(f"gpu_host_waivers: [{waiver % '2020-01-01'}]\n")
    run = gpu_host.gate("-e", f"@{declared}")
    gpu_host.machine()
    assert run.status == 2
    assert "link_width was waived until 2020-01-01 (the riser is ordered), and that day is over" in run.said


SETTINGS = {
    "gpu_host_kernel_parameters": ["iommu=pt", "pci=disable_acs_redir=0000:00:01.1;0000:20:01.1"],
    "gpu_host_modprobe_options": {"nvidia_uvm": {"uvm_disable_hmm": 1}},
    "gpu_host_sysctl": {"net.core.somaxconn": 8192},
    "gpu_host_limits": {"nofile": 1048576},
    "gpu_host_power_limit": 450,
}


def test_settings_are_in_effect_at_once_or_after_the_boot_that_the_gate_asks_for(gpu_host):
    run = gpu_host.role("--check", variables=SETTINGS)
    assert run.status == 0, run.output
    assert gpu_host.shell("sysctl --values net.core.somaxconn") != "8192\n"

    assert gpu_host.role(variables=SETTINGS).status == 0
    assert gpu_host.role(variables=SETTINGS).changed == 0
    assert gpu_host.shell("sysctl --values net.core.somaxconn") == "8192\n"
    assert gpu_host.shell("nvidia-smi --query-gpu=power.limit --format=csv,noheader").splitlines() == ["450.00 W"] * 8
    run = gpu_host.gate("-e", json.dumps(SETTINGS))
    assert run.status == 2
    assert "kernel_parameters: declared iommu=pt" in run.said
    assert "module_options: declared nvidia_uvm uvm_disable_hmm=1, found N" in run.said

    run = gpu_host.play(become=True, tasks=[{"ansible.builtin.reboot": {"reboot_timeout": 120}}])
    assert run.status == 0, run.output
    run = gpu_host.gate("-e", json.dumps(SETTINGS))
    assert run.status == 0, run.output
    assert gpu_host.role(variables=SETTINGS).changed == 0


def test_what_is_no_longer_declared_is_taken_back(gpu_host):
    assert gpu_host.role().status == 0
    assert gpu_host.role().changed == 0
    assert "iommu=pt" not in gpu_host.shell("cat /boot/grub/grub.cfg")
    files = "/etc/default/grub.d/gpu_host.cfg /etc/modprobe.d/gpu_host.conf /etc/sysctl.d/90-gpu_host.conf"
    assert gpu_host.shell(f"ls {files} /etc/systemd/system/gpu-host.service 2>&1 || true").count("No such file") == 4


@pytest.mark.parametrize(
    "variables, said",
    [
        ({"gpu_host_power_limit": 250}, "(0000:01:00.0) takes 300.0 to 600.0 W (read in nvidia-smi -q -x)"),
        ({"gpu_host_kernel_parameters": ["quiet; reboot"]}, "Legal is a word of letters"),
        ({"gpu_host_governor": "performance"}, "declared performance, but this kernel changes no frequency"),
        ({"gpu_host_sysctl": {"kernel.sched_migration_cost_ns": 50000}}, "kernel.sched_migration_cost_ns"),
    ],
    ids=["power limit", "kernel parameter", "governor", "sysctl"],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(gpu_host, variables, said):
    run = gpu_host.role(variables=variables)
    gpu_host.role()
    assert run.status == 2
    assert said in run.said


def test_an_ordinary_user_reads_all_that_needs_no_root_and_the_rest_is_unknown(gpu_host):
    facts = ("gpus[2].link.width", "bridges[0].acs", "unknown['acs of 0000:00:01.1']")
    shown = ", ".join("{{ host.facts." + fact + " }}" for fact in facts)
    tasks = [{"gpu_host_facts": {}, "register": "host"}, {"ansible.builtin.debug": {"msg": shown}}]
    run = gpu_host.play("-e", "ansible_user=operator", tasks=tasks)
    assert run.status == 0, run.output
    assert "16, unknown, /sys/bus/pci/devices/0000:00:01.1/config: needs root" in run.said


# ---- a deployment: the real engine beside the fake cards ----


@pytest.fixture(scope="module")
def engine(engine_layer, cards, tmp_path_factory):
    hosts("down", "gpu2")
    hosts("up", "--layer", engine_layer, "--layer", cards, "gpu2=10.213.77.81")
    yield GpuHost("gpu2", "10.213.77.81", tmp_path_factory.mktemp("inventory"))
    hosts("down", "gpu2")


ON_CPUS = {"gpu_host_all_reduce_backend": "gloo", "gpu_host_all_reduce_ranks": [2, 4]}


def test_a_host_that_declares_no_cards_deploys_as_it_did_and_is_told_of_them(engine):
    run = engine.proves(engine.deploy("-e", json.dumps({"gpu_host_count": 0})))
    assert "gpu2: no GPUs declared (gpu_host_count: 0): nothing was looked at, but there are 8: 0000:01:00.0" in run.said
    assert run.row("window")[-1] == "match"


def test_the_cards_are_tried_once_in_a_boot_before_the_service_is_touched(engine):
    run = engine.proves(engine.deploy("-e", json.dumps(ON_CPUS)))
    kept = json.loads(engine.shell("cat /var/lib/sglang-deploy/gpu_host.json"))["all_reduce"]
    assert [measured["ranks"] for measured in kept["measured"]] == [2, 4]
    assert all(measured["latency_us"] > 0 and measured["bus_gb_per_s"] > 0 for measured in kept["measured"])
    assert engine.proves(engine.deploy("-e", json.dumps(ON_CPUS))).changed == 0
    assert json.loads(engine.shell("cat /var/lib/sglang-deploy/gpu_host.json"))["all_reduce"] == kept
    assert run.row("window")[-1] == "match"


def test_the_old_engines_own_memory_stops_no_deployment_and_a_sick_host_does(engine):
    pid, invocation = engine.start()
    serving = {"gpu": 0, "pid": int(pid), "name": "python3", "memory": 80000}
    engine.machine(processes=[serving])
    engine.proves(engine.deploy("-e", json.dumps(ON_CPUS)))

    engine.machine(processes=[serving], width={"2": 8})
    run = engine.deploy("-e", "window=1024", "-e", json.dumps(ON_CPUS))
    engine.machine()
    assert run.status == 2
    assert "This host is not fit for an engine: link_width." in run.said
    assert "gpu2: failed in task" in run.output
    assert engine.start() == [pid, invocation]
    assert "--speculative-draft-window-size 2048" in engine.shell(f"cat /etc/systemd/system/{engine.unit}")


def test_an_all_reduce_that_hangs_is_killed_at_its_deadline_and_nothing_of_it_is_left(engine):
    start = engine.start()
    interpreter = "/opt/sglang/0.5.13/bin/python"
    engine.shell(f"""
        printf '#!/bin/sh\n[ "$RANK" = 1 ] && exec sleep 7654\nexec {interpreter} "$@"\n' >/opt/hanging
        chmod 755 /opt/hanging""")
    hanging = {**ON_CPUS, "gpu_host_all_reduce_python": "/opt/hanging", "gpu_host_all_reduce_timeout": 15}
    run = engine.deploy("-e", json.dumps({**hanging, "gpu_host_all_reduce_ranks": [2]}))
    assert run.status == 2
    assert (
        "all_reduce: declared an all-reduce among 2 cards, found 2 ranks: rank 0 hung with 2 of 2 ranks, killed after 15 s"
        in run.said
    )
    assert "IOMMU passthrough, ACS off, uvm_disable_hmm N" in run.said
    assert engine.shell("pgrep --full 'sleep [7]654|all_[r]educe.py' || true") == ""
    assert engine.start() == start
