"""sglang-deploy on a host without a controller: what it says, and with which status it ends."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils import host_lease, sglang_cli, sglang_control
from ansible.module_utils.sglang_state import State, Verified
from stage import FakeHost, make_plan, start_lines

OLD, NEW = make_plan(window=2048), make_plan(window=1024)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run the command against a host; returns its exit status and what it printed."""
    (tmp_path / "k26").mkdir()
    monkeypatch.setattr(sglang_control.restart, "__defaults__", (120, lambda *_: None))

    def run(host, *arguments):
        status = sglang_cli.main(["--state-dir", str(tmp_path), *arguments], host)
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    run.state = State(str(tmp_path / "k26"))
    run.lease = str(tmp_path / "lease.json")
    return run


def runs(plan):
    return FakeHost(plan, start_lines(plan, window=plan_window(plan)))


def plan_window(plan):
    return next(e.value for e in plan.expectations if e.setting == "window")


def verified(state, plan, unit="unit"):
    since = {"boot_id": "boot", "invocation": "i0", "pid": 5, "since": 900.0}
    state.keep(Verified(plan, unit, {"start": since, "digest": plan.digest, "seconds": 9.0, "echo": None, "lines": {}}))


def test_status_proves_what_runs_by_the_verified_plan(command):
    verified(command.state, OLD)
    status, said = command(runs(OLD), "status")
    assert status == 0
    assert "sglang-k26.service  proved: runs what was verified, since" in said
    assert "window 2048" in said


def test_status_ends_badly_where_something_else_runs(command):
    verified(command.state, OLD)
    status, said = command(runs(NEW), "status", "k26")
    assert status == 2
    assert "NOT PROVED: window: declared 2048, found 1024 (unit hop, differs)" in said


def test_status_names_failed_starts_and_who_changes_the_host(command, tmp_path):
    verified(command.state, OLD)
    (tmp_path / "k26/failed/2026-11-29T19-07-58Z-847c7596").mkdir(parents=True)
    (tmp_path / "k26/failed/2026-11-29T19-07-58Z-847c7596/cause.txt").write_text("window: declared 1024, found none\nmore")
    host_lease.take(command.lease, "t", "someone at desk", "deploys k26")
    status, said = command(runs(OLD), "status")
    assert status == 0
    assert "failed/2026-11-29T19-07-58Z-847c7596: window: declared 1024, found none\n" in said
    assert "changed now by someone at desk (deploys k26)" in said


def test_status_names_a_start_that_is_not_proved_yet(command):
    verified(command.state, OLD)
    command.state.open_attempt(NEW)
    assert f"attempt   the start of plan {NEW.digest} is not proved yet" in command(runs(NEW), "status")[1]
    command.state.fail_attempt(NEW)
    assert f"attempt   the start of plan {NEW.digest} was found wrong" in command(runs(NEW), "status")[1]


def test_status_as_json_says_the_same(command):
    verified(command.state, OLD)
    status, said = command(runs(OLD), "status", "--json")
    found = json.loads(said)[0]
    assert status == 0 and found["proved"] and found["verified"]["settings"]["window"] == "2048"


def test_a_host_where_nothing_was_verified_does_not_end_well(command):
    status, said = command(runs(OLD), "status")
    assert status == 2 and "no start was ever verified" in said


def test_rollback_is_refused_while_another_run_changes_the_host(command):
    verified(command.state, OLD)
    host_lease.take(command.lease, "t", "someone at desk", "deploys k26")
    status, said = command(runs(NEW), "rollback", "k26")
    assert status == 2 and "is being changed by someone at desk (deploys k26)" in said


def test_rollback_with_nothing_to_go_back_to_says_so_and_frees_the_host(command):
    verified(command.state, OLD)
    status, said = command(runs(OLD), "rollback", "k26")
    assert status == 2 and "nothing was verified before it" in said
    assert host_lease.in_force(command.lease) is None
