"""The modules that ask a running engine, prompts and soak, and what is refused before they do."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest
from ansible.module_utils import prometheus, sglang_host
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
            raise sglang_host.CannotRead("did not answer: Connection refused")
        return texts.pop(0) if len(texts) > 1 else texts[0]

    monkeypatch.setattr(prometheus, "fetch", fetch)
    run = running("rollout_soak", host, monkeypatch, capsys)

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
def test_an_analysis_that_cannot_be_made_is_refused_with_the_policy(ansible_playbook, tmp_path, check, said):
    task = {"rollout_plan": {"policy": {"batches": ["1"], "analysis": [check]}}}
    (tmp_path / "play.json").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    run = ansible_playbook(tmp_path / "play.json", "-i", "localhost,")
    assert run.returncode == 2 and said in run.stdout


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


ERRORS = {"name": "errors", "query": 'sum(rate(x{code=~"5.."}[1m]))', "at_most": 0.1}


def vector(*values):
    """As Prometheus 2.42 answers, a number for each series."""
    rows = [{"metric": {"instance": str(number)}, "value": [1795994000.1, value]} for number, value in enumerate(values)]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})


SCALAR = '{"status":"success","data":{"resultType":"scalar","result":[1795994000.1,"0.5"]}}'
STRING = '{"status":"success","data":{"resultType":"string","result":[1795994000.1,"0.5"]}}'


@pytest.fixture
def asked(soak, monkeypatch):
    """Returns a function that soaks where Prometheus answers with a text; `asked.requests` are those that it got."""

    def ask(text, url="http://prometheus:9090/"):
        def fetch(request, _timeout):
            if isinstance(request, str):
                return ""
            ask.requests.append(request)
            return text

        monkeypatch.setattr(prometheus, "fetch", fetch)
        return soak(checks=[ERRORS], prometheus=url)

    ask.requests = []
    return ask


@pytest.mark.parametrize(
    ("text", "outcome", "said"),
    [
        (vector("0.05"), "pass", "errors: 0.05, wanted at most 0.1"),
        (SCALAR, "fail", "errors: 0.5, wanted at most 0.1"),
        (vector("+Inf"), "fail", "errors: inf, wanted at most 0.1"),
        (vector(), "inconclusive", "rollout_prometheus has no data for it; asked: "),
        (vector("1", "2"), "inconclusive", "rollout_prometheus answered with 2 numbers, and one is wanted; asked: "),
        (vector("NaN"), "inconclusive", "rollout_prometheus answered NaN, as where nothing was counted; asked: "),
        (STRING, "inconclusive", "rollout_prometheus answered with a string, and one number is wanted; asked: "),
        ("<html>", "inconclusive", "rollout_prometheus is no Prometheus, its answer begins '<html>'; asked: "),
        ('{"status": "error"}', "inconclusive", "rollout_prometheus is no Prometheus"),
        (vector("much"), "inconclusive", "rollout_prometheus is no Prometheus"),
    ],
)
def test_what_prometheus_answers(asked, text, outcome, said):
    result = asked(text)
    assert result["outcome"] == outcome and said in result["says"][0]
    assert outcome != "inconclusive" or ERRORS["query"] in result["says"][0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (vector("0.05"), ""),
        (vector(), ""),
        (vector("NaN"), ""),
        (vector("1", "2"), "  errors: rollout_prometheus answered with 2 numbers, and one is wanted; asked: sum(rate("),
        ("<html>", "  errors: rollout_prometheus is no Prometheus, its answer begins '<html>'; asked: sum(rate("),
    ],
)
def test_what_can_never_be_answered_is_refused_before_the_rollout(monkeypatch, capsys, text, said):
    monkeypatch.setattr(prometheus, "fetch", lambda *_: text)
    other = {"name": "acceptance", "metric": "m", "at_least": 1}
    with (
        patch_module_args({"prometheus": "http://me:s3cret@prometheus:9090", "checks": [ERRORS, other]}),
        pytest.raises(SystemExit),
    ):
        load("library/rollout_queries.py").main()
    result = json.loads(capsys.readouterr().out)
    assert bool(result.get("failed")) == bool(said) and said in result.get("msg", "")
    assert "s3cret" not in json.dumps(result)


def test_a_prometheus_that_does_not_answer_says_nothing_of_the_host(soak):
    result = soak(checks=[ERRORS], prometheus="http://me:s3cret@192.0.2.1:9090")
    assert result["outcome"] == "inconclusive" and not result.get("failed")
    assert "rollout_prometheus did not answer: Connection refused" in result["says"][0]
    assert "s3cret" not in json.dumps(result)


def test_name_and_password_of_the_url_go_into_the_header_alone(asked):
    asked(SCALAR, "https://me:s3%3Acret@prometheus/prefix/")
    (request,) = asked.requests
    assert request.full_url.startswith("https://prometheus/prefix/api/v1/query?query=sum%28")
    assert base64.b64decode(request.get_header("Authorization").split()[1]) == b"me:s3:cret"
