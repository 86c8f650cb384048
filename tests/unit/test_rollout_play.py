"""The playbook's own part of a rollout: who changes when, who goes on where one fails, who may begin.

Real are playbooks/deploy.yml, the role rollout and Ansible; the roles that touch hosts stand in, in tests/unit/rollout.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from conftest import ROOT

STAND_INS = Path(__file__).with_name("rollout")
FAILS, GOES_BACK, DIES, CANNOT, WRONG = (
    {"fate": fate} for fate in ("fails", "goes back", "dies", "cannot be prepared", "is wrong")
)
STAYS = {"restart": False}


class Rollout:
    """A finished run: status, output, and what it did in order."""

    def __init__(self, status, output):
        self.status, self.output = status, output
        self.said = " ".join(output.split())
        self.deeds = re.findall(r"\b(?:restarts|leaves|admits|rejects) gpu\d", output)

    @property
    def plan(self):
        return re.search(r"Rollout ([0-9a-f]{8}): ", self.output)[1]

    def outcome(self, host):
        return re.search(rf"ok: \[{host}\][^[]*rollout_outcome:[^[]*?outcome: ([a-z ]+)", self.output)[1]


@pytest.fixture
def fleet(tmp_path):
    """Run deploy.yml on hosts gpu1, gpu2, … of which each has its variables."""

    def run(*hosts, arguments=(), answer=None, **policy):
        inventory = {
            "sglang": {
                "hosts": {f"gpu{number}": variables for number, variables in enumerate(hosts, 1)},
                "vars": {
                    "ansible_connection": "local",
                    "ansible_become": False,
                    "ansible_python_interpreter": sys.executable,
                    "rollout_lease_path": str(tmp_path / "fleet.json"),
                    **policy,
                },
            }
        }
        (tmp_path / "hosts.json").write_text(json.dumps(inventory))
        env = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_RETRIES": "0",
            "ANSIBLE_ROLES_PATH": f"{STAND_INS / 'roles'}:{ROOT / 'roles'}",
            "ANSIBLE_LIBRARY": f"{STAND_INS / 'library'}:{ROOT / 'library'}",
            "ANSIBLE_CALLBACKS_ENABLED": "ansible.posix.timer",  # without verdict_table: nothing is proved here
        }
        command = ["ansible-playbook", "-v", "-i", tmp_path / "hosts.json", ROOT / "playbooks/deploy.yml", *arguments]
        if answer:
            status, output = at_a_terminal(command, env, answer)
        else:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            done = subprocess.run(command, env=env, text=True, **pipes)
            status, output = done.returncode, done.stdout
        assert "Traceback" not in output, output
        return Rollout(status, output)

    return run


def at_a_terminal(command, env, answer):
    """Status and output of a command that asks a person, who answers when asked, and again where it was not heard.

    Ansible forgets what was typed before it listens, which is a moment after it asked.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    output = b""
    while True:
        if not select.select([process.stdout], [], [], 1)[0]:
            if b"Type" in output:
                os.write(ours, answer.encode() + b"\r")
            continue
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        if not chunk:
            break
        output += chunk
    os.close(ours)
    os.close(theirs)
    return process.wait(), output.decode()


def test_one_host_first_then_a_part_then_the_rest_and_who_needs_no_restart_takes_no_place(fleet, tmp_path):
    run = fleet(STAYS, {}, {}, {}, {}, rollout_batches=[1, "50%"])
    assert run.status == 0, run.output
    assert f"Rollout {run.plan}: 5 hosts, 4 to restart, 14 to 48 min (from 15 recorded loads, 5 of them cold)" in run.output
    first, second, third = run.output.split("PLAY [Roll out")[1:]
    assert "leaves gpu1" in first and "restarts gpu2" in first and "restarts gpu3" not in first
    assert "restarts gpu3" in second and "restarts gpu4" in second
    assert "restarts gpu5" in third
    assert (run.outcome("gpu1"), run.outcome("gpu5")) == ("unchanged", "proved")
    assert not (tmp_path / "fleet.json").exists()


def test_a_canary_that_fails_is_the_only_host_touched_and_serves_again(fleet):
    run = fleet(GOES_BACK, {}, {}, rollout_failures_allowed=1)
    assert run.status == 2
    assert run.deeds == ["restarts gpu1", "admits gpu1"]
    assert run.outcome("gpu1") == "gone back"
    assert "window: declared 2048, found none (effective hop, differs)." in run.said
    assert "rollout ends: 1 failed, 1 allowed and none of the first that restart" in run.said
    assert "stands gpu2, gpu3 not reached, as before; the same command goes on from here" in run.said


def test_no_host_restarts_while_another_of_its_rack_stays_out_of_traffic(fleet):
    racks = [{**fate, "rack": rack} for fate, rack in (({}, "a"), (FAILS, "b"), ({}, "c"), ({}, "d"), ({}, "b"))]
    policy = {"rollout_batches": [1, 2], "rollout_apart": "{{ rack }}", "rollout_failures_allowed": 1}
    run = fleet(*racks, **policy)
    assert run.status == 2
    assert {deed for deed in run.deeds if "restarts" in deed} == {f"restarts gpu{number}" for number in (1, 2, 3)}
    assert "rollout ends: 1 failed, 1 allowed and rollout_apart keeps gpu5 apart from what is out of traffic" in run.said
    assert "stands gpu4, gpu5 not reached" in run.said

    run = fleet(*racks[:4], **policy)
    assert run.deeds[-2:] == ["restarts gpu4", "admits gpu4"]


def test_a_rack_that_one_host_does_not_have_is_refused_before_anything_is_touched(fleet):
    run = fleet({"rack": "a"}, {"rack": ""}, rollout_apart="{{ rack }}")
    assert run.status == 2 and run.deeds == []
    assert "rollout_apart: declared nothing for gpu2, and a for gpu1" in run.said
    assert "TASK [sglang_engine" not in run.output


def test_the_cause_of_a_loop_that_failed_is_what_its_items_say(fleet):
    run = fleet(GOES_BACK, {})
    assert re.search(r"rollout_outcome:\s+cause: .?window: declared 2048", run.output), run.output


def test_what_was_found_wrong_with_nothing_to_go_back_to_takes_no_traffic(fleet):
    run = fleet(WRONG, {})
    assert (run.status, run.deeds, run.outcome("gpu1")) == (2, ["restarts gpu1"], "failed")


def test_the_others_of_a_batch_finish_and_the_next_batch_is_not_touched(fleet):
    run = fleet({}, GOES_BACK, {}, {}, rollout_batches=[1, 2])
    assert run.status == 2
    assert run.deeds[-2:] == ["admits gpu3", "admits gpu2"] and "restarts gpu4" not in run.deeds
    assert (run.outcome("gpu2"), run.outcome("gpu3")) == ("gone back", "proved")


def test_a_failure_that_is_allowed_lets_it_go_on_and_the_run_fails_all_the_same(fleet):
    run = fleet({}, FAILS, {}, {}, rollout_batches=[1, 2], rollout_failures_allowed=1)
    assert run.status == 2
    assert "admits gpu4" in run.deeds
    assert run.outcome("gpu2") == "failed"
    assert "then was not taken into traffic" in run.said


def test_where_a_whole_batch_fails_it_ends_whatever_is_allowed(fleet, tmp_path):
    run = fleet({}, GOES_BACK, GOES_BACK, {}, rollout_batches=[1, 2], rollout_failures_allowed=4)
    assert run.status == 2
    assert run.deeds.count("admits gpu2") == run.deeds.count("admits gpu3") == 1
    assert "restarts gpu4" not in run.deeds
    assert "rollout ends: 2 failed, 4 allowed and never a whole batch stands gpu4 not reached" in run.said
    assert not (tmp_path / "fleet.json").exists()


def test_a_host_that_dies_in_its_turn_ends_the_rollout_when_its_batch_is_done(fleet):
    run = fleet({}, DIES, {}, {}, rollout_batches=[1, 2])
    assert run.status in (2, 4)
    assert run.deeds[-1] == "admits gpu3"
    assert "not reached: gpu2" in run.said and "stands gpu4 not reached, as before" in run.said


def test_a_host_that_cannot_be_prepared_counts_as_failed_before_anything_is_touched(fleet):
    refused = fleet({}, CANNOT, {})
    assert (refused.status, refused.deeds) == (2, [])
    assert "gpu2: failed or unreachable before the rollout began, and rollout_failures_allowed is 0" in refused.said
    allowed = fleet({}, CANNOT, {}, rollout_failures_allowed=1)
    assert allowed.status == 2
    assert {"admits gpu1", "admits gpu3"} <= set(allowed.deeds) and "without gpu2: failed or unreachable" in allowed.said


def test_an_approval_that_nobody_can_give_fails_and_one_that_names_the_plan_passes(fleet):
    refused = fleet({}, {}, rollout_approval="plan")
    assert (refused.status, refused.deeds) == (2, [])
    assert "nobody can be asked, because this run has no terminal" in refused.said
    assert f"-e rollout_approved={refused.plan}" in refused.said

    other = fleet({}, {}, rollout_approval="plan", rollout_approved="00000000")
    assert (other.status, other.deeds) == (2, [])
    assert f"approved is 00000000, but this is {refused.plan}" in other.said

    assert fleet({}, {}, rollout_approval="plan", rollout_approved=refused.plan).status == 0


def test_a_person_who_types_another_word_than_the_plans_name_ends_it_after_the_canary(fleet, tmp_path):
    run = fleet({}, {}, rollout_approval="canary", answer="yes")
    assert run.status == 2
    assert run.deeds == ["restarts gpu1", "admits gpu1"]
    assert f"not approved: rollout {run.plan}, the canary is proved, 1 hosts to go" in run.said
    assert not (tmp_path / "fleet.json").exists()


def test_numbers_that_are_worse_take_the_host_back_and_those_that_do_not_tell_stop_and_keep(fleet, tmp_path):
    worse = fleet({"port": 31000}, {}, rollout_soak=1)
    assert worse.status == 2
    assert worse.deeds == ["restarts gpu1", "admits gpu1", "rejects gpu1", "admits gpu1"]
    assert worse.outcome("gpu1") == "gone back" and "The analysis failed." in worse.said
    assert "back runs again what was verified" in worse.said

    unsure = fleet({"port": 32000}, {}, rollout_soak=1)
    assert unsure.status == 2
    assert unsure.deeds == ["restarts gpu1", "admits gpu1"]
    assert unsure.outcome("gpu1") == "proved"
    assert "gpu1: inconclusive: acceptance length: 2, 3 on hosts not yet changed (http://gpu2:32000)" in unsure.said
    assert not (tmp_path / "fleet.json").exists()


def test_a_second_rollout_is_refused_with_who_holds_the_fleet(fleet, tmp_path):
    now = time.time()
    lease = {"token": "elsewhere - 1 1", "holder": "somebody at elsewhere", "purpose": "rollout 1234abcd of 8 hosts"}
    (tmp_path / "fleet.json").write_text(json.dumps({**lease, "since": now, "until": now + 60}))
    run = fleet({}, {})
    assert (run.status, run.deeds) == (2, [])
    assert "is being changed by somebody at elsewhere (rollout 1234abcd of 8 hosts)" in run.said


def test_when_its_time_is_over_no_further_batch_begins(fleet):
    run = fleet({}, {}, rollout_deadline=1)
    assert run.status == 2
    assert run.deeds == ["restarts gpu1", "admits gpu1"]
    assert "rollout_deadline: declared 1 s, and they are over" in run.said


def test_a_policy_that_means_nothing_is_refused_before_anything_else(fleet):
    run = fleet({}, CANNOT, rollout_batches=["none"])
    assert (run.status, run.deeds) == (2, [])
    assert "rollout_batches[0]: declared 'none'" in run.said and "no space left" not in run.said


def test_where_one_host_is_refused_none_is_changed_whatever_is_allowed(fleet):
    run = fleet(CANNOT, {"traffic_timeout": "many"}, rollout_failures_allowed=1)
    assert (run.status, run.deeds) == (2, [])
    assert "traffic_timeout: declared 'many'" in run.said and "no space left" not in run.said
    assert "gpu2: refused above, and so no host is changed. Next: correct what was said there" in run.said


def test_check_mode_shows_the_plan_and_takes_nothing(fleet, tmp_path):
    run = fleet({}, {}, arguments=["--check"], rollout_approval="plan")
    assert run.status == 0, run.output
    assert "2 hosts, 2 to restart" in run.output
    assert not (tmp_path / "fleet.json").exists()
