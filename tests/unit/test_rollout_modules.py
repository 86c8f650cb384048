"""The modules that ask a running engine: prompts and soak."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible.module_utils import sglang_host
from ansible.module_utils.testing import patch_module_args
from stage import FakeHost, load, make_plan

PLAN = make_plan()
URL = f"http://127.0.0.1:{PLAN.port}"
PEER = "http://192.0.2.12:30000"


@pytest.fixture
def host():
    return FakeHost(PLAN)


def running(name, host, monkeypatch, capsys, **replacements):
    """Returns a function that runs the module with arguments and returns its result."""
    module = load(f"library/{name}.py")
    monkeypatch.setattr(module, "Host", lambda: host)
    for function, replacement in replacements.items():
        monkeypatch.setattr(module, function, replacement)

    def run(**arguments):
        with patch_module_args(arguments), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def prompts(host, monkeypatch, capsys):
    return running("sglang_prompts", host, monkeypatch, capsys)


@pytest.fixture
def soak(host, monkeypatch, capsys):
    """`soak.says`: {url: the texts that it answers, the last one again and again}."""
    says = {}
    proved = {"invocation": host.running.invocation_id, "pid": host.running.main_pid}

    def fetch(url, _timeout):
        texts = says.get(url)
        if not texts:
            raise sglang_host.CannotRead(f"{url}: Connection refused")
        return texts.pop(0) if len(texts) > 1 else texts[0]

    run = running("rollout_soak", host, monkeypatch, capsys, fetch=fetch)

    def soaked(**arguments):
        return run(unit=PLAN.unit, start=proved, url=URL, **arguments)

    soaked.says = says
    says[f"{URL}/health"] = [""]
    return soaked


def test_answers_are_scored_and_told_so_that_they_can_be_recorded(host, prompts):
    asked = []
    host.get = lambda url, key, body, timeout: asked.append((url, body)) or {"text": " Paris, on the Seine"}
    result = prompts(plan=PLAN.to_dict(), prompts=[{"prompt": "The capital of France is", "answer": "Paris on the Seine"}])
    assert result["score"] == 1.0
    assert result["answers"] == [{"prompt": "The capital of France is", "answer": " Paris, on the Seine", "tokens": 64}]
    parameters = {"max_new_tokens": 64, "temperature": 0}
    assert asked == [(f"{URL}/generate", {"text": "The capital of France is", "sampling_params": parameters})]


def test_noise_fails_and_says_that_the_start_had_been_proved(host, prompts):
    host.get = lambda *_: {"text": "!!!"}
    result = prompts(plan=PLAN.to_dict(), prompts=[{"prompt": "The capital of France is", "answer": "Paris"}])
    assert result["failed"] and result["proved"]
    assert "prompts: declared a score of 0.5, found 0.00" in result["msg"]


def test_an_answer_without_a_text_fails_too(host, prompts):
    host.get = lambda *_: {"error": "none"}
    result = prompts(plan=PLAN.to_dict(), prompts=[{"prompt": "a"}])
    assert result["failed"] and "answered without a text" in result["msg"]


def test_a_start_that_lives_through_its_soak_passes(host, soak):
    begun = host.clock()
    assert soak(seconds=30)["outcome"] == "pass"
    assert host.clock() - begun == 30


def test_a_start_that_another_follows_has_failed(host, soak):
    sleep = host.sleep

    def dies(seconds):
        sleep(seconds)
        host.running = replace(host.running, invocation_id="i2222222", main_pid=99)

    host.sleep = dies
    result = soak(seconds=30)
    assert result["failed"] and result["outcome"] == "fail"
    assert "its start did not live through a soak of 30 s" in result["msg"] and "followed by i2222222" in result["msg"]


def test_a_start_that_was_followed_before_its_soak_began_has_failed(host, soak):
    host.running = replace(host.running, invocation_id="i2222222", main_pid=99)
    result = soak()
    assert result["failed"] and result["outcome"] == "fail" and "followed by i2222222" in result["msg"]


def test_a_start_that_does_not_answer_at_the_end_has_failed(soak):
    del soak.says[f"{URL}/health"]
    result = soak()
    assert result["failed"] and result["outcome"] == "fail" and "does not answer any more" in result["msg"]


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"name": "errors", "at_most": 0.1}, "one of the following is required: metric, query"),
        ({"name": "errors", "metric": "m"}, "one of the following is required: at_least, at_most"),
        ({"name": "errors", "metric": "m", "at_most": "few"}, "at_most"),
        ({"name": "errors", "query": "up", "at_most": 0.1}, "rollout_prometheus: declared nothing"),
    ],
)
def test_an_analysis_that_cannot_be_made_is_refused_with_the_policy(capsys, check, said):
    with patch_module_args({"policy": {"batches": ["1"], "analysis": [check]}}), pytest.raises(SystemExit):
        load("library/rollout_plan.py").main()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"] and said in result["msg"]


def metrics(requests, accepted):
    return f"sglang:num_requests_total {requests}\nsglang:spec_accept_length {accepted}\n"


ACCEPTANCE = {"name": "acceptance length", "metric": "sglang:spec_accept_length", "at_least": 0.9, "fail_below": 0.5}


@pytest.mark.parametrize(("accepted", "outcome"), [(3.0, "pass"), (2.0, "inconclusive"), (1.0, "fail")])
def test_the_new_is_compared_with_the_old(soak, accepted, outcome):
    soak.says[f"{URL}/metrics"] = [metrics(0, 1.0), metrics(50, accepted)]
    soak.says[f"{PEER}/metrics"] = [metrics(1000, 3.0), metrics(1050, 3.0)]
    result = soak(checks=[ACCEPTANCE], peers=[PEER, "http://192.0.2.13:30000"])
    assert (result["outcome"], bool(result.get("failed"))) == (outcome, outcome == "fail")


def test_where_no_old_host_is_left_it_passes_and_says_so(soak):
    result = soak(checks=[ACCEPTANCE])
    assert (result["outcome"], result["says"]) == (
        "pass", ["pass: acceptance length: not asked, no host that runs the old is left"],
    )  # fmt: skip


def test_a_prometheus_that_does_not_answer_says_nothing_of_the_host(soak):
    result = soak(checks=[{"name": "errors", "query": "up", "at_most": 0.1}], prometheus="http://192.0.2.1:9090")
    assert result["outcome"] == "inconclusive" and not result.get("failed")
