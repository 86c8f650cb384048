"""Runs of Ansible against test hosts, as a user types them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INVENTORY = Path(__file__).with_name("inventory")


def python(module, *arguments):
    """`python3 -m …` of the project, and what it printed."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def hosts(*arguments):
    return python("testhosts", *arguments)


class Run:
    """A finished ansible-playbook: its status, its output, and the tables at its end."""

    def __init__(self, status, output):
        self.status, self.output = status, output

    def row(self, setting):
        """declared, echoed, effective, verdict of a setting in the last table."""
        rows = [line.split()[:5] for line in self.output.splitlines() if line.startswith(f"  {setting} ")]
        assert rows, self.output
        return rows[-1][1:]

    @property
    def changed(self):
        return sum(int(word.split("=")[1]) for word in self.output.split() if word.startswith("changed="))


class Deployment:
    """One test host with the real engine, and the playbooks of the project on it."""

    unit = "sglang-k26.service"

    def __init__(self, host):
        self.host = host

    def playbook(self, *arguments, inventory=INVENTORY, callbacks=None):
        env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_RETRIES": "0"}
        env.update({"ANSIBLE_CALLBACKS_ENABLED": callbacks} if callbacks else {})
        done = subprocess.run(
            ["ansible-playbook", "-i", inventory, *arguments],
            cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert "Traceback" not in done.stdout, done.stdout
        return Run(done.returncode, done.stdout)

    def deploy(self, *arguments, **options):
        return self.playbook("deploy.yml", *arguments, **options)

    def verify(self, *arguments, **options):
        return self.playbook("playbooks/verify.yml", *arguments, **options)

    def proves(self, run):
        assert run.status == 0, run.output
        return run

    def shell(self, script):
        """A shell script on the host, as root."""
        return hosts("exec", self.host, "sh", "-euc", script)

    def start(self):
        """Which start runs: main process and invocation."""
        return self.shell(f"systemctl show -p MainPID -p InvocationID --value {self.unit}").split()

    def journal(self):
        """What the running start has logged."""
        return self.shell(f"journalctl -o cat --no-pager _SYSTEMD_INVOCATION_ID={self.start()[1]}")
