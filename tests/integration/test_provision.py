"""From a bare host to eight cards that the gate accepts, and what may happen on the way: real boots and apt, fake cards."""

from __future__ import annotations

import pytest
import yaml
from deployment import ROOT, Deployment, Going, hosts, python

REBOOT = ("-e", "nvidia_driver_reboot_allowed=true")


class Host(Deployment):
    """A test host with eight fake cards and NVIDIA's repository in small."""

    def __init__(self, name, inventory):
        super().__init__(name)
        self.inventory = inventory

    def provision(self, *arguments):
        return self.playbook("playbooks/provision.yml", *arguments, inventory=self.inventory)

    def boots(self):
        return len(self.shell("journalctl --list-boots --quiet --no-pager | grep -v '^IDX'").splitlines())

    def transactions(self):
        """Command lines of apt that named a driver's package."""
        log = self.shell("cat /var/log/apt/history.log 2>/dev/null || :")
        return [line for line in log.splitlines() if line.startswith("Commandline:") and "nvidia-kernel-open-dkms=" in line]

    def driver(self):
        """Versions of the loaded module and of all installed packages of the driver."""
        loaded = self.shell("cat /proc/driver/nvidia/version 2>/dev/null || :").split("x86_64")[-1].split()
        packages = "nvidia-driver-cuda libcuda1 libnvidia-ml1 nvidia-kernel-open-dkms nvidia-persistenced nvidia-modprobe"
        installed = self.shell(f"dpkg-query -W -f '${{Version}} ' {packages} 2>/dev/null || :").split()
        return set(loaded[:1]), {version.removesuffix("-1") for version in installed}

    def state(self):
        """What a refused run must leave as it is."""
        places = "/etc /usr/local /boot /var/lib/dpkg/info"
        return self.shell(f"find {places} -type f -newer /etc/hostname | sort; md5sum /var/lib/dpkg/status")


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    repository, cards = (python(f"testhosts.{module}").strip() for module in ("nvidia_repo", "fake_gpu"))
    hosts("down", "driver1")
    hosts("up", "--layer", repository, "--layer", cards, "driver1=10.213.77.91")
    with open(f"{repository}/srv/nvidia-repo/fingerprint") as file:
        fingerprint = file.read().strip()
    declared = {
        "nvidia_driver_repositories": "http://127.0.0.1:8099",
        "nvidia_driver_key_fingerprint": fingerprint,
        "gpu_host_count": 8,
        "gpu_host_kernel_parameters": ["iommu=pt"],
        "gpu_host_modprobe_options": {"nvidia_uvm": {"uvm_disable_hmm": 1}},
    }
    directory = tmp_path_factory.mktemp("inventory")
    inventory = {"sglang": {"hosts": {"driver1": {"ansible_host": "10.213.77.91"}}, "vars": declared}}
    (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (directory / "group_vars").mkdir()
    (directory / "group_vars/all").symlink_to(ROOT / "inventories/demo/group_vars/all")
    yield Host("driver1", directory)
    hosts("down", "driver1")


# The tests follow each other: a bare host, then provisioned, then moved and hurt.


def test_check_mode_on_a_bare_host_says_what_would_be_done_and_does_nothing(host):
    before = host.state()
    run = host.provision("--check", *REBOOT)
    assert run.status == 0, run.output
    for said in (
        "nvidia-kernel-open-dkms=580.95.05-1",
        "linux-headers-amd64",
        "cuda-toolkit-13-0",
        "no NVIDIA module is loaded",
    ):
        assert said in run.output
    assert host.state() == before
    assert host.boots() == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no NVIDIA module is loaded; the kernel was started without iommu=pt. But reboots are not allowed"),
        ((*REBOOT, "-e", f"nvidia_driver_key_fingerprint={'0' * 40}"), f"declared is {'0' * 40}"),
        ((*REBOOT, "-e", "nvidia_driver_version=600"), "It offers 580.82.07, 580.95.05, 590.44.01"),
        ((*REBOOT, "-e", "nvidia_driver_version=570"), "older than 580.65.06"),
        ((*REBOOT, "-e", "nvidia_driver_repositories=http://127.0.0.1:1"), "Connection refused"),
    ],
    ids=["reboot", "key", "version", "old", "unreachable"],
)
def test_what_could_not_end_well_is_refused_before_anything_is_changed(host, arguments, said):
    before = host.state()
    run = host.provision(*arguments)
    assert run.status == 2
    assert said in run.said
    assert host.state() == before


def test_an_index_that_another_key_signed_is_refused_before_anything_is_changed(host):
    before = host.state()
    index = "/srv/nvidia-repo/debian12/x86_64/InRelease"
    host.shell(f"cp {index} /tmp/InRelease; sed -i s/Label:/label:/ {index}")
    run = host.provision(*REBOOT)
    host.shell(f"mv /tmp/InRelease {index}")
    assert run.status == 2
    assert "apt refuses it" in run.output
    assert host.state() == before


def test_a_bare_host_is_provisioned_with_one_reboot_and_the_second_run_changes_nothing(host):
    run = host.provision(*REBOOT)
    assert run.status == 0, run.output
    assert host.boots() == 2
    assert host.driver() == ({"580.95.05"}, {"580.95.05"})
    assert host.shell("nvidia-smi -L").count("GPU") == 8 * 2  # "GPU 0: …(UUID: GPU-…)"
    assert host.shell("systemctl is-active nvidia-persistenced; cat /boot/initrd.img-*").split("\n")[0] == "active"
    assert "blacklist nouveau" in host.shell("cat /boot/initrd.img-*")
    for arguments in ((), ("--check",)):
        again = host.provision(*arguments)
        assert (again.status, again.changed) == (0, 0), again.output
    assert host.boots() == 2


def test_a_run_that_is_killed_between_installing_and_rebooting_is_finished_by_the_next_one(host):
    arguments = ["playbooks/provision.yml", *REBOOT, "-e", "nvidia_driver_version=590"]
    run = Going("-i", host.inventory, *arguments)
    run.until("Make ready for the next boot")
    run.kill()
    assert host.driver() == ({"580.95.05"}, {"590.44.01"})
    assert "version mismatch" in host.shell("nvidia-smi || :")

    run = host.playbook(*arguments, inventory=host.inventory)
    assert run.status == 0, run.output
    assert host.driver() == ({"590.44.01"}, {"590.44.01"})
    assert host.boots() == 3
    assert len(host.transactions()) == 2


@pytest.mark.parametrize(("declared", "version", "boots"), [("580.82.07", "580.82.07", 4), ("580.95.05", "580.95.05", 5)])
def test_another_branch_or_version_up_or_down_is_one_variable_and_one_transaction(host, declared, version, boots):
    before = len(host.transactions())
    run = host.provision(*REBOOT, "-e", f"nvidia_driver_version={declared}")
    assert run.status == 0, run.output
    assert host.driver() == ({version}, {version})
    assert len(host.transactions()) == before + 1
    assert host.boots() == boots


LOCK = (
    "import fcntl, time; file = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(file, fcntl.LOCK_EX); time.sleep(600)"
)
UNIT = "[Service]\\nExecStart=sleep infinity\\n"
MACHINE = "/etc/fake-gpu/machine.json"
HARDWARE = "python3 /usr/lib/fake-gpu/machine.py hardware"
SOURCE = "/etc/apt/sources.list.d/cuda.list"


@pytest.mark.parametrize(
    ("hurt", "heal", "said"),
    [
        ("apt-mark hold nvidia-modprobe", "apt-mark unhold nvidia-modprobe", "apt-mark unhold nvidia-modprobe"),
        (f'systemd-run --quiet --unit=lock python3 -c "{LOCK}"', "systemctl stop lock", "(python3)"),
        (
            f"printf '{UNIT}' >/run/systemd/system/sglang-k26.service; systemctl start sglang-k26",
            "systemctl stop sglang-k26",
            "sglang-k26.service is at work",
        ),
        (f"echo 'deb http://127.0.0.1:8099/debian12/x86_64/ /' >{SOURCE}", f"rm {SOURCE}", f"{SOURCE} declares"),
        (
            f"echo '{{\"secure_boot\": true}}' >{MACHINE}; {HARDWARE}",
            f"echo '{{}}' >{MACHINE}; {HARDWARE}",
            "mokutil --import",
        ),
        ("touch /usr/bin/nvidia-uninstall", "rm /usr/bin/nvidia-uninstall", ".run installer"),
    ],
    ids=["held", "locked", "serving", "declared twice", "Secure Boot", "run file"],
)
def test_what_is_in_the_way_of_a_change_is_named_and_nothing_is_changed(host, hurt, heal, said):
    host.shell(hurt)
    before = host.state(), host.driver()
    run = host.provision(*REBOOT, "-e", "nvidia_driver_version=590", "-e", "nvidia_driver_lock_timeout=2")
    after = host.state(), host.driver()
    host.shell(heal)
    assert run.status == 2
    assert said in run.said
    assert after == before


def test_a_toolkit_that_would_bring_a_driver_is_refused(host):
    before = host.state()
    run = host.provision("-e", "{cuda_toolkit_packages: [cuda-13-0]}")
    assert run.status == 2
    assert "apt would install nvidia-open for it" in run.said
    assert host.state() == before


OTHER = """
mkdir -p /srv/other/package/DEBIAN; cd /srv/other; exec >&2
cat >package/DEBIAN/control <<END
Package: nvidia-modprobe
Version: 580.95.05-2
Architecture: amd64
Maintainer: Tests <tests@example.invalid>
Description: the same name from another source
END
dpkg-deb -b package other.deb
(cat package/DEBIAN/control; echo Filename: ./other.deb; stat -c 'Size: %s' other.deb) >Packages
echo "SHA256: $(sha256sum other.deb | cut -d' ' -f1)" >>Packages
echo 'deb [trusted=yes] file:/srv/other ./' >/etc/apt/sources.list.d/other.list
apt-get update
dpkg --force-depends --install other.deb
"""


def test_a_driver_package_from_another_source_is_named_and_refused(host):
    host.shell(OTHER)
    run = host.provision(*REBOOT)
    host.shell("rm /etc/apt/sources.list.d/other.list; apt-get update >&2")
    assert run.status == 2
    assert "nvidia-modprobe 580.95.05-2 from file:/srv/other" in run.said


def test_a_library_that_somebody_upgraded_is_named_by_the_gate_and_healed_without_a_reboot(host):
    names = ("nvidia-driver-cuda", "libcuda1", "libnvidia-ml1", "nvidia-persistenced", "nvidia-modprobe")
    host.shell(f"apt-get install --yes {' '.join(f'{name}=590.44.01-1' for name in names)} >&2")
    gate = host.playbook("playbooks/gate.yml", inventory=host.inventory)
    assert gate.status == 2
    assert "driver_mismatch" in gate.output
    boots = host.boots()
    run = host.provision()
    assert run.status == 0, run.output
    assert host.driver() == ({"580.95.05"}, {"580.95.05"})
    assert host.boots() == boots


def test_a_kernel_that_came_without_headers_gets_headers_and_a_module_before_it_boots(host):
    kernel = host.shell("apt-cache search --names-only '^linux-image-' | cut -d' ' -f1 | grep -v \"$(uname -r)\"").strip()
    host.shell(f"apt-get install --yes {kernel} >&2")
    run = host.provision()
    assert run.status == 0, run.output
    assert f"{kernel.removeprefix('linux-image-')}, x86_64: installed" in host.shell("dkms status")


def test_a_service_that_may_be_stopped_is_stopped_for_the_change(host):
    host.shell("systemctl start sglang-k26")
    run = host.provision(*REBOOT, "-e", "nvidia_driver_version=590", "-e", "nvidia_driver_stop_services=true")
    assert run.status == 0, run.output
    assert host.driver() == ({"590.44.01"}, {"590.44.01"})


def test_a_reboot_that_does_not_help_is_said_and_not_repeated(host):
    host.shell("printf '#!/bin/sh\\n' >/usr/sbin/update-grub")
    declared = (*REBOOT, "-e", "nvidia_driver_version=590", "-e", "{gpu_host_kernel_parameters: [pcie_ports=native]}")
    boots = host.boots()
    for _ in range(2):
        run = host.provision(*declared)
        assert run.status == 2
        assert "started without pcie_ports=native. But a reboot for this did not help" in run.said
        assert host.boots() == boots + 1
