"""Going back on a host that says what a test wants: what is stopped, put back, started, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible.module_utils import sglang_control
from ansible.module_utils.sglang_host import Owner
from ansible.module_utils.sglang_state import State, Unusable, Verified
from stage import FakeHost, make_plan

OLD, NEW = make_plan(window=2048), make_plan(window=1024)
UNIT = OLD.unit
EVIDENCE = {"start": {"since": 990.0}, "digest": OLD.digest, "seconds": 9.0, "echo": None, "lines": {}, "alarms": {}}


@pytest.fixture
def state(tmp_path):
    return State(str(tmp_path))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / UNIT
    path.write_text("new unit")
    return path


@pytest.fixture
def host():
    """Runs NEW; its systemctl is a list of what was asked of it."""
    host = FakeHost(NEW)
    host.did = []
    host.owner = None
    return host


def back(host, state, path, begun=True, **arguments):
    if begun and arguments.get("failed"):
        state.open_attempt(NEW)

    def systemctl(*words):
        host.did.append(" ".join(words))

    return sglang_control.go_back(host, state, UNIT, str(path), systemctl=systemctl, **arguments)


def verified(state, plan, unit="old unit"):
    state.keep(Verified(plan, unit, {**EVIDENCE, "digest": plan.digest}))


def test_a_failed_start_goes_back_to_what_was_verified(host, state, path):
    verified(state, OLD)
    done = back(host, state, path, failed=NEW.digest)
    assert done.plan == OLD and done.changed
    assert path.read_text() == "old unit"
    assert host.did == ["daemon-reload", f"stop {UNIT}", f"reset-failed {UNIT}", f"start {UNIT}"]
    assert state.attempt()["digest"] == OLD.digest  # until it is proved


def test_a_process_that_still_carries_the_verified_plan_is_not_restarted(host, state, path):
    verified(state, OLD)
    host.processes[7] = (OLD.argv, dict(OLD.environment))
    done = back(host, state, path, failed=NEW.digest)
    assert done.plan == OLD and "was not restarted" in done.did and not done.restarts
    assert path.read_text() == "old unit"
    assert host.did == ["daemon-reload"]


def test_a_first_start_that_fails_is_stopped_and_disabled(host, state, path):
    done = back(host, state, path, failed=NEW.digest)
    assert done.plan is None and "stopped and disabled" in done.did
    assert host.did == [f"stop {UNIT}", f"reset-failed {UNIT}", f"disable {UNIT}"]


def test_a_start_that_was_proved_and_is_wrong_goes_back_to_what_was_verified_before_it(host, state, path):
    verified(state, OLD)
    verified(state, NEW, unit="new unit")
    dry = back(host, state, path, failed=NEW.digest, proved=True, dry=True)
    assert (dry.plan, dry.restarts, host.did, state.verified().plan) == (OLD, True, [], NEW)

    done = back(host, state, path, failed=NEW.digest, proved=True)
    assert done.plan == OLD and path.read_text() == "old unit"
    assert host.did[-1] == f"start {UNIT}"
    assert (state.verified().plan, state.verified("before")) == (OLD, None)  # nobody goes back to the wrong one


def test_a_start_that_was_proved_and_is_wrong_stays_where_nothing_was_verified_before_it(host, state, path):
    verified(state, NEW)
    done = back(host, state, path, failed=NEW.digest, proved=True)
    assert done.plan is None and "nothing was verified before it" in done.did
    assert host.did == []


def test_where_no_start_was_made_only_the_unit_file_is_put_back(host, state, path):
    verified(state, OLD)
    done = back(host, state, path, begun=False, failed=NEW.digest)
    assert done.plan is None and done.changed and "was not restarted" in done.did
    assert path.read_text() == "old unit" and host.did == ["daemon-reload"]


def test_an_engine_that_serves_is_not_stopped_because_its_state_is_lost(host, state, path):
    done = back(host, state, path, begun=False, failed=NEW.digest)
    assert done.plan is None and "left as it runs" in done.did
    assert host.did == []


def test_the_verified_plan_itself_is_nothing_to_go_back_to(host, state, path):
    verified(state, NEW)
    done = back(host, state, path, failed=NEW.digest)
    assert done.plan is None and not done.changed and "the same plan" in done.did
    assert host.did == []


def test_on_demand_it_goes_to_the_last_verified_state_if_another_runs(host, state, path):
    verified(state, OLD)
    assert back(host, state, path).plan == OLD


def test_on_demand_it_goes_to_the_one_before_if_the_last_runs(host, state, path):
    verified(state, OLD)
    verified(state, NEW, "new unit")
    assert back(host, state, path).plan == OLD


@pytest.mark.parametrize("last_runs", [True, False])
def test_a_way_back_that_did_not_come_to_its_end_goes_on_when_it_is_asked_for_again(host, state, path, last_runs):
    verified(state, OLD, "old unit")
    if last_runs:
        verified(state, NEW, "new unit")
    assert back(host, state, path).plan == OLD
    host.processes[7] = (OLD.argv, OLD.environment)
    host.did.clear()
    again = back(host, state, path)
    assert again.plan == OLD and "was not restarted" in again.did and host.did == ["daemon-reload"]

    state.fail_attempt(OLD)  # its start was made, and not proved
    assert back(host, state, path).plan == OLD and f"start {UNIT}" in host.did

    verified(state, OLD, "old unit")  # now it has come to its end, and the next one leaves it
    assert back(host, state, path).plan == (NEW if last_runs else None)


def test_on_demand_with_nothing_before_says_so_and_changes_nothing(host, state, path):
    assert "no start of" in back(host, state, path).did
    verified(state, NEW, "new unit")
    assert "nothing was verified before it" in back(host, state, path).did
    assert host.did == [] and path.read_text() == "new unit"


def test_check_mode_tells_the_difference_and_does_nothing(host, state, path):
    verified(state, OLD)
    done = back(host, state, path, failed=NEW.digest, dry=True)
    assert (done.changed, done.unit_before, done.unit_after) == (True, "new unit", "old unit")
    assert host.did == [] and path.read_text() == "new unit"


@pytest.mark.parametrize(
    "content, said",
    [('{"version": 2}', "has form 2"), ("{", "cannot be read"), ('{"version": 1}', "'plan'"), ("[]", "has form None")],
)
def test_a_state_of_another_form_is_named_and_nothing_is_touched(host, state, path, content, said):
    with open(f"{state.directory}/verified.json", "w") as file:
        file.write(content)
    with pytest.raises(Unusable, match=r"verified\.json") as error:
        back(host, state, path, failed=NEW.digest)
    assert said in str(error.value)
    assert host.did == [] and path.read_text() == "new unit"
    assert state.evidence() is None


def test_a_port_that_stays_held_is_named_and_nothing_is_started(host, state, path):
    verified(state, OLD)
    host.owner = Owner(False, "python (pid 9)", None)
    with pytest.raises(sglang_control.Held, match=r"port 30000 .* is still held by python \(pid 9\)"):
        back(host, state, path, failed=NEW.digest)
    assert f"start {UNIT}" not in host.did


def test_the_start_waits_until_the_port_is_free(host, state, path):
    verified(state, OLD)
    since = host.time
    host.listener = lambda *_: Owner(False, "python (pid 9)", None) if host.time < since + 30 else None
    assert back(host, state, path, failed=NEW.digest).plan == OLD
    assert host.did[-1] == f"start {UNIT}" and host.time >= since + 30


@pytest.mark.parametrize(
    "holder, memory, said",
    [
        (("3", Owner(False, "python (pid 9)", None)), None, "GPU 3 .* is still held by python"),
        (None, ("5", 30000), r"GPU 5 .* no process that nvidia-smi shows \(30000 MiB\)"),
    ],
)
def test_gpu_memory_that_stays_held_is_named(host, holder, memory, said):
    host.gpu_holder = lambda *_: holder
    host.gpu_memory_held = lambda *_: memory
    with pytest.raises(sglang_control.Held, match=said):
        sglang_control.wait_until_free(host, replace(OLD, argv=(*OLD.argv, "--device", "cuda")))


def test_gpus_are_not_asked_for_an_engine_of_the_cpu(host):
    host.gpu_holder = host.gpu_memory_held = None  # would fail if they were called
    sglang_control.wait_until_free(host, replace(OLD, argv=(*OLD.argv, "--device", "cpu")))
