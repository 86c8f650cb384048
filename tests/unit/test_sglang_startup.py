"""The module as Ansible runs it: what it returns, and what it must never return."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from ansible.module_utils import sglang_host
from ansible.module_utils.testing import patch_module_args
from stage import FakeHost, echo_line, load, make_plan, start_lines, with_alarms

SECRET = "sk-Zq8very-secret"
PLAN = make_plan()


@pytest.fixture
def startup(monkeypatch, capsys, tmp_path):
    """Run the module against a host; returns its result and all that it printed."""
    module = load("library/sglang_startup.py")
    unit = tmp_path / "unit"
    unit.write_text("[Service]\n")

    def run(host, demands=None, **arguments):
        host.running = replace(host.running, fragment_path=str(unit))
        monkeypatch.setattr(module, "Host", lambda: host)
        arguments = {"plan": PLAN.to_dict(), "unit_path": str(unit), "demands": {"hold": 0, **(demands or {})}, **arguments}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            module.main()
        printed = capsys.readouterr()
        return json.loads(printed.out), printed.out + printed.err

    return run


def test_a_proof_returns_verdicts_and_the_table(startup, tmp_path):
    result, _ = startup(FakeHost(PLAN, start_lines(PLAN)), state_dir=str(tmp_path))
    assert result["finished"] and result["start"]["invocation"] == "i1"
    assert {row[0]: row[4] for row in result["verdict_table"]["rows"]}["window"] == "match"
    assert json.loads((tmp_path / "verified.json").read_text())["evidence"]["start"]["invocation"] == "i1"


@pytest.mark.parametrize(
    ("waiver", "asked"), [({}, True), ({"generation_waiver": {"reason": "no kernel", "until": "2020-01-01"}}, False)]
)
def test_a_way_back_asks_for_a_generation_unless_somebody_once_waived_it(startup, waiver, asked):
    demands = {"generation": "waived", **waiver}
    result, _ = startup(FakeHost(PLAN, start_lines(PLAN)), gone_back=True, demands=demands)
    assert result["finished"]
    assert ("generation" in [row[0] for row in result["verdict_table"]["rows"]]) == asked


def test_a_waiver_that_nobody_gave_fails_and_names_the_variable(startup):
    result, _ = startup(FakeHost(PLAN, start_lines(PLAN)), demands={"generation": "waived"})
    assert result["failed"] and "sglang_service_generation_waiver says neither why nor until when" in result["msg"]


def test_a_proof_records_how_long_the_load_took_and_where_the_weights_came_from(startup, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(bytes(1000))
    plan = make_plan(model=str(model))
    for read, cold in ((900, True), (100, False)):
        host = FakeHost(plan, start_lines(plan))
        host.running = replace(host.running, invocation_id=f"i{read}")
        host.invocations[f"i{read}"] = host.invocations["i1"]
        host.usages = lambda now, read=read: {"7": [read, 0, 0.0], "8": [0, 0, 0.0]}
        startup(host, plan=plan.to_dict(), state_dir=str(tmp_path))
        assert json.loads((tmp_path / "loads.json").read_text())[0] == {"seconds": 10, "cold": cold}


def test_a_slice_says_what_moves_and_how_long_it_took_the_last_time(startup, tmp_path):
    startup(FakeHost(PLAN, start_lines(PLAN)), state_dir=str(tmp_path))
    host = FakeHost(PLAN)
    host.starts_again()
    host.processes[8] = host.processes[7]
    host.invocations["i2"] = [echo_line(PLAN)]
    host.usages = lambda now: {"8": [15_600_000 * int(now), 0, 0.0]}
    result, _ = startup(host, slice=20, state_dir=str(tmp_path))
    assert (result["finished"], result["phase"], result["usual"]) == (False, "arguments resolved, starting workers", 10)
    assert "MB read in" in result["moves"]
    assert result["resume"]["invocation"] == "i2"


def test_a_hang_fails_the_task_over_its_slices(startup):
    host, resume = FakeHost(PLAN, [echo_line(PLAN)]), None
    for _ in range(4):
        result, _ = startup(host, slice=20, demands={"stall": 60}, resume=resume)
        resume = result.get("resume")
    assert result["failed"]
    assert "hangs: nothing has moved for" in result["msg"]


def echoes_a_secret(window=2048):
    return FakeHost(PLAN, start_lines(PLAN, window=window, api_key=SECRET, admin_api_key=SECRET))


def answers_with_a_secret():
    host = echoes_a_secret()
    host.answers["/server_info"] |= {"api_key": SECRET, "launch_command": f"--api-key {SECRET}"}
    return host


def dies_with_a_secret():
    host = FakeHost(
        PLAN, [f"usage: sglang serve --api-key {SECRET}", f"x: error: unrecognized arguments: --api-key={SECRET}"]
    )
    host.dies()
    return host


def hangs_with_a_secret():
    return FakeHost(PLAN, [echo_line(PLAN, api_key=SECRET)])


def runs_with_a_secret():
    host = echoes_a_secret()
    host.processes[7] = ((*PLAN.argv, "--api-key", SECRET), {**PLAN.environment, "SGLANG_API_KEY": SECRET})
    return host


def unit_with_a_secret():
    host = echoes_a_secret()
    host.running = replace(host.running, argv=(*PLAN.argv, f"--api-key={SECRET}"))
    return host


def alarms_with_a_secret():
    host = echoes_a_secret()
    host.invocations["i1"].insert(1, f"[2026-11-29 14:16:12] This must not be said: api_key='{SECRET}'")
    return host


def is_refused_with_a_secret():
    host = echoes_a_secret()

    def get(url, *_):
        raise sglang_host.CannotRead(f"{url} answered 401 Unauthorized")

    host.get = get
    return host


@pytest.mark.parametrize(
    "host",
    [
        echoes_a_secret,
        lambda: echoes_a_secret(window=64),
        answers_with_a_secret,
        dies_with_a_secret,
        hangs_with_a_secret,
        runs_with_a_secret,
        unit_with_a_secret,
        alarms_with_a_secret,
        is_refused_with_a_secret,
    ],
)
def test_a_secret_of_the_engine_never_leaves_the_host(startup, host, tmp_path):
    key_file, state = tmp_path / "key.yaml", tmp_path / "state"
    key_file.write_text(f'api-key: "{SECRET}"')
    key_file.chmod(0o640)
    state.mkdir()
    forbidden = [{"text": "must not be said", "severity": "critical", "reason": "a test"}]
    plan = with_alarms(PLAN, forbidden=forbidden)
    demands = {"key_file": str(key_file), "stall": 60}
    for more in ({"slice": 400, "demands": demands}, {"demands": {**demands, "timeout": 400}}):
        result, output = startup(host(), plan=plan.to_dict(), state_dir=str(state), **more)
        assert "finished" in result
        assert SECRET not in output
    assert all(SECRET not in path.read_text() for path in state.iterdir())


def test_the_usage_of_a_process_is_read_from_the_kernel():
    read, resident, seconds = sglang_host._usage(str(os.getpid()))
    assert read >= 0 and resident > 1_000_000 and seconds > 0
    assert sglang_host._usage("999999999") is None
