"""Test hosts, booted: what one may rely on, and that nothing is left of them, however they end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def until(condition, seconds=30):
    """Wait until `condition()` is true and return what it gave."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not in {seconds} s: {condition}"
        time.sleep(0.05)
    return value


class Machine:
    """This machine with a set of hosts of its own: own directory, own network, the shared layers and key."""

    def __init__(self, directory):
        self.directory = directory
        self.environment = {
            **os.environ,
            "TESTHOSTS_DIR": str(directory),
            "TESTHOSTS_NETWORK": "10.213.78.0/24",
        }

    def start(self, *arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "testhosts", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def attempt(self, *arguments):
        command = self.start(*arguments)
        out, err = command.communicate(timeout=300)
        return command.returncode, out, err

    def run(self, *arguments):
        status, out, err = self.attempt(*arguments)
        assert status == 0, err
        return out

    def states(self):
        return {line.split("\t")[0]: line.split("\t")[2] for line in self.run("list").splitlines()}

    def address(self, name):
        return json.loads(self.run("inventory", name))["all"]["hosts"][name]["ansible_host"]

    def ssh(self, name, command, user="root", check=True):
        return subprocess.run(
            [
                "ssh",
                "-i",
                self.directory / "id_ed25519",
                "-o",
                "StrictHostKeyChecking=no",
                "-o",
                "ConnectTimeout=5",
                "-o",
                "UserKnownHostsFile=/dev/null",
                "-o",
                "LogLevel=ERROR",
                f"{user}@{self.address(name)}",
                command,
            ],
            check=check,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def supervisor(self, name):
        """Pid of the process on whose life everything of the host depends; None if there is none."""
        mine = f"{self.directory}/run/{name}"
        for process in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (process / "cmdline").read_text().split("\0")
            except OSError:  # ended meanwhile
                continue
            if arguments[0] == "unshare" and mine in arguments:
                return int(process.name)
        return None

    def leftovers(self):
        """Whatever is still there of any host: processes, mounts, interfaces, cgroups, files."""
        me = str(self.directory)
        processes = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"{me}/run/" in (process / "cmdline").read_text():
                    processes.append(process.name)
            except OSError:
                continue
        return {
            "processes": processes,
            "mounts": [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if me in line],
            "interfaces": [
                link.name for link in Path("/sys/class/net").iterdir() if link.name.startswith(("th0ad54e", "thbr0ad54e"))
            ],  # 10.213.78
            "cgroups": [
                path
                for path, names, _ in os.walk("/sys/fs/cgroup")
                if "testhosts-" in path and any(name.startswith("left") for name in names)
            ],
            "files": [path.name for path in (self.directory / "run").glob("*")],
        }


NOTHING = {"processes": [], "mounts": [], "interfaces": [], "cgroups": [], "files": []}


def machine_in(directory):
    """A machine whose hosts use the layers and the key that are there anyway; they are built once."""
    default = Path(os.environ.get("TESTHOSTS_DIR", "/var/lib/testhosts"))
    subprocess.run([sys.executable, "-m", "testhosts", "build"], cwd=ROOT, check=True)
    for shared in ("layers", "id_ed25519", "id_ed25519.pub"):
        (directory / shared).symlink_to(default / shared)
    return Machine(directory)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    machine = machine_in(tmp_path_factory.mktemp("testhosts"))
    yield machine
    machine.run("down", "--all")


@pytest.fixture(scope="module")
def pair(machine, tmp_path_factory):
    """Two hosts for the tests that leave them as they are."""
    layer = tmp_path_factory.mktemp("layer")
    (layer / "srv").mkdir()
    (layer / "srv/content").write_text("from the layer\n")
    machine.run("up", "one", "two=10.213.78.50", "--layer", str(layer))
    machine.layer = str(layer)
    return machine


@pytest.fixture
def clean(machine):
    """Nothing runs before, nothing is left after."""
    machine.run("down", "--all")
    yield machine
    machine.run("down", "--all")
    assert machine.leftovers() == NOTHING


def test_a_host_is_ready_for_both_logins_when_the_command_returns(pair):
    assert pair.ssh("one", "systemctl is-system-running --wait") == "running"
    assert pair.ssh("one", "sudo -n id -un", user="operator") == "root"
    assert pair.address("two") == "10.213.78.50"


def test_hosts_that_run_are_left_alone(pair):
    boot = pair.ssh("one", "cat /proc/sys/kernel/random/boot_id")
    out = pair.run("up", "one", "--layer", pair.layer)
    assert out.split("\t")[2] == "already running\n"
    assert pair.ssh("one", "cat /proc/sys/kernel/random/boot_id") == boot


def test_a_host_that_runs_as_something_else_is_not_passed_off_as_what_was_asked_for(pair):
    status, _, error = pair.attempt("up", "one=10.213.78.99", "--layer", pair.layer)
    assert status == 1
    assert "10.213.78.99" in error
    assert "down one" in error


def test_content_of_a_layer_is_there_and_what_a_host_writes_over_it_stays_its_own(pair):
    pair.ssh("one", "echo mine > /srv/content")
    assert pair.ssh("one", "cat /srv/content") == "mine"
    assert pair.ssh("two", "cat /srv/content") == "from the layer"


def test_hosts_are_different_machines(pair):
    for identity in ("hostname", "cat /etc/machine-id", "cat /etc/ssh/ssh_host_*.pub"):
        assert pair.ssh("one", identity) != pair.ssh("two", identity)


def test_hosts_reach_each_other_and_the_machine_but_nothing_else(pair):
    def reach(host):
        return pair.ssh("one", f"timeout 5 bash -c 'exec 3<>/dev/tcp/{host}/22' 2>&1 && echo reached", check=False)

    assert reach("10.213.78.50") == "reached"
    assert "unreachable" not in reach("10.213.78.1")  # whether anything listens there is the machine's affair
    assert "Network is unreachable" in reach("192.0.2.1")


@pytest.mark.parametrize(
    ("enough", "too_little", "command"),
    [
        ("MemoryMax=900M", "MemoryMax=30M", "python3 -c 'bytearray(200 << 20)'"),
        (
            "TasksMax=50",
            "TasksMax=5",
            "python3 -c 'import os, time; [os.fork() or time.sleep(9) for _ in range(8)]'",
        ),
    ],
)
def test_limits_are_enforced_not_ignored(pair, enough, too_little, command):
    def succeeds(limit):
        line = f'systemd-run --quiet --wait -p {limit} -p MemorySwapMax=0 bash -ec "{command}" && echo success'
        return pair.ssh("one", line, check=False) == "success"

    assert succeeds(enough)
    assert not succeeds(too_little)


def test_a_host_reboots_and_its_journal_has_both_boots(pair):
    boot = pair.ssh("two", "cat /proc/sys/kernel/random/boot_id")
    pair.ssh("two", "systemctl reboot", check=False)
    until(lambda: pair.ssh("two", "cat /proc/sys/kernel/random/boot_id", check=False) not in ("", boot))
    boots = pair.ssh("two", "journalctl --list-boots")
    assert len(boots.splitlines()[1:]) == 2
    assert boot.replace("-", "") in boots


def test_a_command_runs_in_a_host_without_ssh_and_its_status_comes_back(pair):
    assert pair.run("exec", "one", "hostname") == "one\n"
    assert pair.attempt("exec", "one", "sh", "-c", "exit 7")[0] == 7


def test_ansible_reaches_the_hosts_by_the_printed_inventory(pair, tmp_path):
    (tmp_path / "hosts.json").write_text(pair.run("inventory"))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible"), "all", "-i", tmp_path / "hosts.json", "-m", "ping", "-o"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"one", "two"}


def test_down_leaves_nothing_and_does_not_mind_nothing(clean):
    clean.run("up", "left")
    assert clean.run("down", "left") == "left\tremoved\n"
    assert clean.leftovers() == NOTHING
    assert clean.run("down", "left") == ""
    assert clean.run("down", "--all") == ""


def test_hosts_end_with_their_supervisor_and_come_back_fresh(clean):
    clean.run("up", "left")
    os.kill(clean.supervisor("left"), signal.SIGKILL)
    until(lambda: not clean.leftovers()["processes"] and "th0ad54e02" not in clean.leftovers()["interfaces"])
    assert clean.states() == {"left": "ended"}
    assert clean.run("up", "left").endswith("started\n")
    assert clean.ssh("left", "systemctl is-system-running --wait") == "running"


def test_a_host_is_found_without_its_files(clean):
    clean.run("up", "left")
    shutil.rmtree(clean.directory / "run/left")
    assert clean.states() == {"left": "running"}
    assert clean.run("down", "left") == "left\tremoved\n"


@pytest.mark.parametrize("stage", ["files", "cgroups", "interfaces"])
def test_what_a_killed_start_left_can_be_removed_and_started(clean, stage):
    names = ["left1", "left2", "left3"]
    command = clean.start("up", *names)
    until(lambda: clean.leftovers()[stage])
    command.kill()
    command.communicate()
    clean.run("down", "--all")
    assert clean.leftovers() == NOTHING
    assert clean.run("up", *names).count("started") == 3


def test_two_starts_at_once_make_one_host_each(clean):
    starts = [clean.start("up", *names) for names in (("left1", "left2"), ("left2", "left1"))]
    outputs = [command.communicate()[0] for command in starts]
    assert [command.returncode for command in starts] == [0, 0]
    assert sum(out.count("\tstarted") for out in outputs) == 2
    assert sum(out.count("\talready running") for out in outputs) == 2


def test_a_host_that_cannot_boot_is_reported_with_its_last_words(clean, tmp_path):
    (tmp_path / "usr").write_text("hides the system\n")
    status, _, error = clean.attempt("up", "left", "--layer", str(tmp_path), "--timeout", "20")
    assert status == 1
    assert error.startswith("testhosts: left: ended while it booted")
    assert "Traceback" not in error
