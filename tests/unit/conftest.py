"""Runs of Ansible that need no host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ansible_playbook():
    """Run ansible-playbook with the project's own configuration, no inventory of its own and no report."""

    def run(*arguments, **environment):
        env = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_RETRIES": "0",
            "ANSIBLE_ACTION_PLUGINS": f"{ROOT}/plugins/action:{ROOT}/tests/unit/action_plugins",
            "ROLLOUT_REPORT_DIRECTORY": "",
            **environment,
        }
        return subprocess.run(["ansible-playbook", *map(str, arguments)], env=env, text=True, capture_output=True)

    return run
