"""Runs of Ansible that need no host."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ansible_playbook():
    """Run ansible-playbook with the project's own configuration, no inventory of its own and no report.

    With `ctrl_c_after` it is interrupted when as many tasks `report` with `tells` are under way.
    """

    def run(*arguments, ctrl_c_after=0, **environment):
        env = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_RETRIES": "0",
            "ANSIBLE_ACTION_PLUGINS": f"{ROOT}/plugins/action:{ROOT}/tests/unit/action_plugins",
            "ROLLOUT_REPORT_DIRECTORY": "",
            **environment,
        }
        command = ["ansible-playbook", *map(str, arguments)]
        if not ctrl_c_after:
            return subprocess.run(command, env=env, text=True, capture_output=True)
        told, tells = os.pipe()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "pass_fds": [tells]}
        with subprocess.Popen(command, env={**env, "TELLS": str(tells)}, **pipes) as process:
            os.close(tells)
            for _ in range(ctrl_c_after):
                os.read(told, 1)
            os.close(told)
            process.send_signal(signal.SIGINT)
            try:
                output = process.communicate(timeout=60)
            finally:
                process.kill()
        return subprocess.CompletedProcess(command, process.returncode, *output)

    return run
