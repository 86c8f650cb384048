"""Eight hosts behind the real gateway, with requests on them all the time: what a rollout touches, loses and leaves.

The engines are the stand-in, testhosts/lying_engine, because eight real ones do not fit; gateway and hosts are real.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
from deployment import ROOT, Deployment, hosts, python
from load import Load

INVENTORY = Path(__file__).with_name("fleet")
GATEWAY = "http://10.213.77.160:8000"
NAMES = [f"fleet{number}" for number in range(1, 9)]
LAYERS = (("testhosts.lying_engine", ["build"]), ("testhosts.model_gateway", []))
RATE = 20  # requests a second
MINIMUM = 4  # hosts that must go on serving, as the inventory declares
# An engine that is told 2048 never says what its worker runs with.
LIE = {
    "token_seconds": 0.05,
    "at": [
        {
            "line": "Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8, "
            "draft_window_size=2048",
            "do": "cut",
            "value": len("Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8"),
        }
    ],
}


class Fleet:
    def __init__(self):
        self.hosts = {name: Deployment(name) for name in NAMES}

    def playbook(self, *arguments):
        return self.hosts["fleet1"].playbook(*arguments, inventory=INVENTORY)

    def deploy(self, *arguments):
        return self.playbook("deploy.yml", *arguments)

    def done(self, run):
        assert run.status == 0, run.output
        return run

    def starts(self):
        """host → the invocation that runs."""
        return {name: host.start()[1] for name, host in self.hosts.items()}

    def serving(self):
        """Names of the hosts that the gateway gives requests to."""
        with urllib.request.urlopen(f"{GATEWAY}/workers", timeout=10) as answer:
            workers = json.load(answer)["workers"]
        return {f"fleet{worker['url'][-7]}" for worker in workers if worker["status"] == "ready"}

    def told(self, scenario, *names):
        for name in names:
            text = json.dumps(scenario)
            self.hosts[name].shell(f"umask 022; mkdir -p /etc/lying-engine; echo '{text}' >/etc/lying-engine/30000.json")

    def windows(self):
        """What each running engine said that its worker attends to."""
        said = {name: re.findall(r"draft_window_size=(\w+), compact", host.journal()) for name, host in self.hosts.items()}
        return {name: values[-1] for name, values in said.items()}


@pytest.fixture(scope="module")
def fleet():
    names = ["fleet0", *NAMES]
    layers = [python(module, *what).strip() for module, what in LAYERS]
    hosts("down", *names)
    hosts("up", *(word for layer in layers for word in ("--layer", layer)), *(f"{n}=10.213.77.16{n[-1]}" for n in names))
    fleet = Fleet()
    fleet.told({"token_seconds": 0.05}, *NAMES)
    fleet.done(fleet.playbook("playbooks/gateway.yml"))
    # Nobody serves yet, so all may begin at once.
    policy = json.dumps({"rollout_batches": [8], "traffic_minimum_serving": 0})
    fleet.done(fleet.deploy("-e", "window=1024", "-e", policy))
    yield fleet
    hosts("down", *names)


def nothing_was_lost(load):
    assert (load.outcome.failed, load.outcome.dropped) == ({}, {})
    assert len(load.outcome.done) == len(load.outcome.sent) > 0


def said(run):
    return " ".join(run.output.split())


def test_a_setting_that_does_not_hold_touches_one_host_which_goes_back_and_serves(fleet):
    assert fleet.serving() == set(NAMES)
    before = fleet.starts()
    fleet.told(LIE, "fleet1")
    with Load(GATEWAY, "tiny", RATE) as load:
        run = fleet.deploy("-e", "window=2048")
    nothing_was_lost(load)
    assert run.status == 2
    assert re.search(r"window: declared 2048, found \w+ \(effective hop, (missing|unreadable)\)", said(run))
    assert "back sglang-k26.service runs again what was verified" in said(run)
    assert "rollout ends: 1 failed, 0 allowed" in said(
        run
    ) and "stands fleet2, fleet3, fleet4, fleet5, fleet6, fleet7, fleet8 not reached" in said(run)
    after = fleet.starts()
    assert {name for name in NAMES if after[name] != before[name]} == {"fleet1"}
    assert set(fleet.windows().values()) == {"1024"}
    assert fleet.serving() == set(NAMES)


def test_a_rollout_whose_controller_is_killed_in_the_second_batch_is_gone_on_with_and_loses_nothing(fleet):
    fleet.told({"token_seconds": 0.05}, "fleet1")
    before = fleet.starts()
    with Load(GATEWAY, "tiny", RATE) as load:
        killed_when("deploy.yml", "-e", "window=512", reads="[fleet3]")
        run = fleet.done(fleet.deploy("-e", "window=512"))
    nothing_was_lost(load)
    plan = re.search(r"Rollout [0-9a-f]{8}: 8 hosts, (\d) to restart, .*recorded loads", run.output)
    assert int(plan[1]) < 7  # the canary, and who had begun
    after = fleet.starts()
    assert all(after[name] != before[name] for name in NAMES)
    assert set(fleet.windows().values()) == {"512"}
    assert fleet.serving() == set(NAMES)


def killed_when(*arguments, reads):
    """Kill a run with all its children when it prints something, as a controller that loses its power."""
    env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        ["ansible-playbook", "-i", INVENTORY, *arguments],
        cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    restarted, seen = False, []
    for line in process.stdout:
        seen.append(line)
        restarted = restarted or line.startswith("TASK [sglang_service : Restart, because")
        if restarted and reads in line and line.startswith("changed"):
            break
    else:
        raise AssertionError("".join(seen))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_nothing_to_change_restarts_and_drains_nobody(fleet):
    before = fleet.starts()
    run = fleet.done(fleet.deploy("-e", "window=512"))
    assert run.changed == 0
    assert "8 hosts, 0 to restart" in run.output
    assert fleet.starts() == before
