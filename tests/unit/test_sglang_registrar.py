"""A start that nobody made, a check that fails, an engine that stops: what the registrar does of it, look by look."""

from __future__ import annotations

import json
import re

import pytest
from ansible.module_utils import host_lease, sglang_cli, sglang_registrar
from ansible.module_utils.sglang_registrar import CHECK, Registrar, Seen, metrics
from ansible.module_utils.sglang_state import State, Verified
from fake_gateway import FakeGateway
from stage import READY_LINE, FakeHost, make_plan, start_lines

PLAN = make_plan(window=2048, host="0.0.0.0")
ME, OTHER = "http://10.0.0.1:30000", "http://10.0.0.2:30000"
EARLIER = {"boot_id": "boot", "invocation": "i0", "pid": 5, "since": 900.0}
NOW = {"boot_id": "boot", "invocation": "i1", "pid": 7, "since": 990.0}


@pytest.fixture
def registrar(tmp_path):
    """An engine whose plan was verified in an earlier start, and that runs anew as it should; nobody has looked yet."""
    (tmp_path / "k26").mkdir()
    registrar = Registrar(
        FakeHost(PLAN, start_lines(PLAN)),
        State(str(tmp_path / "k26")),
        "k26",
        {"address": "10.0.0.1", "timeout": 60, "drain_timeout": 300, "metrics": ""},
        [FakeGateway(OTHER)],
        say=lambda text: registrar.said.append(text),
    )
    registrar.said, registrar.gateway = [], registrar.gateways[0]
    verified(registrar, EARLIER)
    return registrar


def verified(registrar, start):
    evidence = {"start": start, "digest": PLAN.digest, "seconds": 9.0, "echo": None, "lines": {}}
    registrar.state.keep(Verified(PLAN, "unit", evidence))


def ready(registrar):
    return {worker.url for worker in registrar.gateway.workers() if worker.ready}


def test_a_start_that_nobody_made_takes_traffic_when_it_is_proved(registrar):
    assert registrar.look() == Seen(proved=True, serving=True)
    assert ready(registrar) == {ME, OTHER}
    assert registrar.state.evidence()["start"] == NOW
    assert registrar.said == ["<5>sglang-k26.service is proved, and takes traffic"]


def test_while_it_loads_it_gets_no_requests_whatever_it_answers(registrar):
    registrar.host.invocations["i1"] = start_lines(PLAN)[:-1]
    assert registrar.look() == Seen()
    assert ready(registrar) == {OTHER}
    registrar.host.invocations["i1"].append(READY_LINE)
    assert registrar.look().serving


def test_a_new_start_that_is_still_registered_leaves_until_it_is_proved(registrar):
    """Its host lost power: nobody could take it out, and the gateway has it back on /health."""
    registrar.gateway.listed[ME] = registrar.gateway._worker(ME)
    registrar.host.invocations["i1"] = start_lines(PLAN)[:-1]
    registrar.look()
    assert registrar.gateway.asked == [f"remove {ME}"]
    assert ready(registrar) == {OTHER}


def test_a_start_of_something_else_stays_out_and_raises_one_alarm(registrar):
    registrar.host.invocations["i1"] = start_lines(PLAN, window=None)
    for _ in range(3):
        seen = registrar.look()
        registrar.host.sleep(5)
    assert not seen.proved and not seen.serving and ready(registrar) == {OTHER}
    first, *more = registrar.said
    assert first.startswith("<1>sglang-k26.service: window: declared 2048, found none")
    assert "<1>It gets no requests." in first.splitlines()[-1] and more == []


def test_a_failing_check_of_what_serves_is_an_alarm_and_takes_nobody_out(registrar):
    registrar.look()
    registrar.host.answers["/model_info"] = {"model_path": "/srv/models/another"}
    assert registrar.look().problem == ""  # it is not asked every few seconds
    registrar.host.sleep(CHECK)
    seen = registrar.look()
    assert seen.proved and seen.serving and "It goes on serving." in seen.problem
    assert ready(registrar) == {ME, OTHER} and registrar.said[-1].startswith("<1>")
    registrar.host.answers["/model_info"] = {"model_path": PLAN.model}
    registrar.host.sleep(CHECK)
    assert registrar.look().problem == ""
    assert registrar.said[-1] == "<5>sglang-k26.service: all is well again"


def test_what_is_held_out_is_proved_and_stays_out(registrar):
    registrar.engine.hold.set(1.0, "a rollout")
    assert registrar.look() == Seen(proved=True, held=True)
    assert ready(registrar) == {OTHER}
    registrar.engine.hold.clear()
    assert registrar.look().serving


def test_while_a_run_changes_the_host_it_does_nothing(registrar):
    host_lease.take(registrar.lease, "t", "someone", "deploys k26", now=registrar.host.now)
    registrar.look()
    assert registrar.gateway.asked == []
    registrar.host.sleep(host_lease.SECONDS + 1)
    assert registrar.look().serving


def test_a_gateway_that_forgot_its_engines_gets_them_again(registrar):
    registrar.look()
    registrar.gateway.listed.clear()
    assert registrar.look().serving
    assert ready(registrar) == {ME}


def test_a_gateway_that_is_away_is_an_alarm_and_is_asked_again(registrar):
    registrar.look()
    registrar.gateway.away = True
    assert "does not answer" in registrar.look().problem
    registrar.gateway.away = False
    assert registrar.look() == Seen(proved=True, serving=True)


def and_one_that_is_away(registrar):
    """A dead gateway, asked before the living one."""
    registrar.gateways.insert(0, FakeGateway(url="http://dead:8000"))
    registrar.gateways[0].away = True


def test_beside_a_gateway_that_is_away_a_new_start_leaves_and_comes_back_proved(registrar):
    and_one_that_is_away(registrar)
    registrar.gateway.listed[ME] = registrar.gateway._worker(ME)
    registrar.host.invocations["i1"] = start_lines(PLAN)[:-1]
    assert "http://dead:8000 does not answer" in registrar.look().problem
    assert ready(registrar) == {OTHER}
    registrar.host.invocations["i1"].append(READY_LINE)
    seen = registrar.look()
    assert (seen.proved, seen.serving) == (True, True) and "http://dead:8000 does not answer" in seen.problem
    assert ready(registrar) == {ME, OTHER}


def test_beside_a_gateway_that_is_away_one_that_forgot_its_engines_gets_them_again(registrar):
    registrar.look()
    and_one_that_is_away(registrar)
    registrar.gateway.listed.clear()
    assert registrar.look().serving
    assert ready(registrar) == {ME}


def test_with_all_gateways_away_it_is_proved_and_serves_nobody(registrar):
    registrar.gateway.away = True
    seen = registrar.look()
    assert (seen.proved, seen.serving) == (True, False)


@pytest.mark.parametrize("known", [True, False], ids=["the living one knows it", "the dead one alone may know it"])
def test_beside_a_gateway_that_is_away_an_engine_that_stops_is_drained(registrar, known):
    registrar.look()
    and_one_that_is_away(registrar)
    if not known:
        del registrar.gateway.listed[ME]
    registrar.host.get = lambda *_: {"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0}]}
    registrar.end(stopping=True)
    assert ready(registrar) == {OTHER}
    assert "0 requests ended" in registrar.said[-2] and "http://dead:8000 does not answer" in registrar.said[-1]


def test_where_nothing_was_ever_verified_it_waits_for_the_first_deployment(registrar, tmp_path):
    (tmp_path / "k26/verified.json").unlink()
    assert registrar.look() == Seen()
    assert registrar.gateway.asked == [] and registrar.said == []


def test_an_engine_that_does_not_run_leaves(registrar):
    registrar.look()
    registrar.host.dies()
    assert registrar.look() == Seen()
    assert ready(registrar) == {OTHER}


def test_an_engine_that_stops_leaves_first_and_its_requests_end(registrar):
    registrar.look()
    counts = [2, 1, 0]
    registrar.host.get = lambda *_: {
        "loads": [{"num_running_reqs": counts.pop(0) if len(counts) > 1 else 0, "num_waiting_reqs": 0}]
    }
    registrar.end(stopping=True)
    assert ready(registrar) == {OTHER}
    assert "2 requests ended" in registrar.said[-1]


def test_a_registrar_that_ends_by_itself_leaves_the_engine_where_it_is(registrar):
    registrar.look()
    registrar.end(stopping=False)
    assert ready(registrar) == {ME, OTHER}


def test_the_metrics_are_a_file_that_everybody_can_read(registrar, tmp_path):
    registrar.config["metrics"] = str(tmp_path)
    registrar.look()
    path = tmp_path / "sglang_traffic_k26.prom"
    assert path.stat().st_mode & 0o777 == 0o644
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert lines[:4] == [f'sglang_traffic_{name}{{instance="k26"}} {value}' for name, value in
                         (("proved", 1), ("serving", 1), ("held_out", 0), ("alarm", 0))]  # fmt: skip
    assert metrics("k26", Seen(problem="x"), 1000.4).endswith(
        'sglang_traffic_checked_timestamp_seconds{instance="k26"} 1000\n'
    )


def test_the_commands_need_what_the_role_writes(tmp_path, capsys):
    (tmp_path / "k26").mkdir()
    assert sglang_cli.main(["--state-dir", str(tmp_path), "in", "k26"], FakeHost(PLAN)) == 2
    assert "traffic.json is not there" in capsys.readouterr().err


def test_out_and_in_by_hand(registrar, tmp_path, monkeypatch, capsys):
    verified(registrar, NOW)
    config = {**registrar.config, "gateways": ["http://gateway:8000"], "gateway_key_file": ""}
    (tmp_path / "k26/traffic.json").write_text(json.dumps(config))
    monkeypatch.setattr(sglang_registrar.sglang_traffic, "Gateway", lambda *_: registrar.gateway)
    registrar.host.get = lambda *_: {"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0}]}
    assert sglang_cli.main(["--state-dir", str(tmp_path), "in", "k26"], registrar.host) == 0
    assert ready(registrar) == {ME, OTHER}
    assert sglang_cli.main(["--state-dir", str(tmp_path), "out", "k26"], registrar.host) == 0
    assert ready(registrar) == {OTHER}
    assert registrar.engine.hold.read()["why"] == sglang_registrar.BY_HAND
    assert "back with: sglang-deploy in k26" in capsys.readouterr().out
    sglang_cli.main(["--state-dir", str(tmp_path), "status", "k26"], registrar.host)
    assert re.search("traffic   out since .*: taken out by hand", capsys.readouterr().out)
