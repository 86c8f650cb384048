"""Runs of Ansible against test hosts, as a user types them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INVENTORY = Path(__file__).with_name("inventory")


def python(module, *arguments, **options):
    """`python3 -m …` of the project, and what it printed."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def hosts(*arguments, **options):
    return python("testhosts", *arguments, **options)


def environment(**more):
    """That of a run whose output a test reads."""
    own = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_RETRIES": "0"}
    return {**os.environ, **own, "PYTHONUNBUFFERED": "1", **more}


class Going:
    """An ansible-playbook that goes on beside the test, in a process group of its own."""

    def __init__(self, *arguments, **more):
        self.arguments, self.seen = arguments, []
        self.process = subprocess.Popen(
            ["ansible-playbook", *arguments], cwd=ROOT, env=environment(**more), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def lines(self):
        for line in self.process.stdout:
            self.seen.append(line)
            yield line

    def until(self, words):
        """Read on until a line has the words, which one must have."""
        assert any(words in line for line in self.lines()), f"the run ended without {words!r}:\n{self.output}"

    def end(self):
        """Its exit status, when it has ended."""
        for _ in self.lines():
            pass
        return self.process.wait()

    def kill(self):
        """As a controller that loses its power: nothing is cleaned up."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def output(self):
        return "".join(self.seen)


class Run:
    """A finished ansible-playbook: its status, its output, and the tables at its end."""

    def __init__(self, status, output):
        self.status, self.output = status, output

    @property
    def said(self):
        """The output in one line, however it was wrapped."""
        return " ".join(self.output.split())

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

    unit, port = "sglang-k26.service", 30000

    def __init__(self, host):
        self.host = host

    def playbook(self, *arguments, inventory=INVENTORY, callbacks=None):
        run = Going("-i", inventory, *arguments, **({"ANSIBLE_CALLBACKS_ENABLED": callbacks} if callbacks else {}))
        status = run.end()
        assert "Traceback" not in run.output, run.output
        return Run(status, run.output)

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
