"""Values that cannot be meant, refused by real runs of ansible-playbook: a sample of tests/faults/bad_input.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import bad_input
import pytest
import yaml
from stage import load

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parts[-3] for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
ABSENT = object()
PLAY = [{"hosts": "sglang", "gather_facts": False, "tasks": [{"declared_values": {"roles": ROLES}}]}]


def test_one_value_of_each_kind_is_refused_for_each_role(tmp_path):
    play = tmp_path / "play.yml"
    play.write_text(json.dumps(PLAY))
    sample = {}
    for case in (case for role in ROLES for case in bad_input.cases(role) if not bad_input.is_legal(case)):
        sample.setdefault((case.role, case.kind), case)
    asked = list(sample.values())
    answers = bad_input.ask(play, "sglang", {f"v{n}": {case.name: case.value} for n, case in enumerate(asked)})
    wrong = {str(case): bad_input.judge(case, answers[f"v{n}"]) for n, case in enumerate(asked)}
    assert len(asked) > 60
    assert {case: problem for case, problem in wrong.items() if problem} == {}


@pytest.fixture
def check(tmp_path, ansible_playbook):
    """Run the check for a host that declares these variables."""

    def run(*options, **variables):
        (tmp_path / "play.yml").write_text(json.dumps(PLAY))
        declared = {"nvidia_driver_repositories": "https://mirror.example.com/cuda", **variables}
        declared = {name: value for name, value in declared.items() if value is not ABSENT}
        environment = {name: declared.pop(name) for name in list(declared) if name.startswith("ANSIBLE_")}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"sglang": {"hosts": {"a": declared}}}))
        return ansible_playbook(tmp_path / "play.yml", "-i", tmp_path / "hosts.yml", *options, **environment)

    return run


def test_a_refusal_says_what_was_declared_where_and_what_is_legal(check):
    run = check(traffic_timeout="many")
    assert run.returncode == 2
    said = " ".join(run.stdout.split())
    assert re.search(r"traffic_timeout: declared 'many' \([^ ]*hosts.yml:5\)", said)
    assert "Legal is a whole number from 1 to 2147483647. next ansible-doc -t role -e main traffic Nothing" in said


def test_all_variables_come_in_one_message_and_none_with_its_megabyte(check):
    run = check(rollout_soak=-1, sglang_service_user="{{ 'x' * 1048576 }}", gpu_host_sysctl={"vm.swappiness": "1\n2"})
    said = " ".join(run.stdout.split())
    assert "rollout_soak: declared -1" in said
    assert "(1048578 characters)" in said and len(run.stdout) < 5000
    assert r"gpu_host_sysctl.vm.swappiness: declared '1\n2'" in said


def test_a_value_may_be_worked_out_from_defaults_and_must_be_worked_out(check):
    assert check(sglang_engine_lock="{{ sglang_engine_root }}/lock.txt").returncode == 0
    run = check(sglang_engine_lock="{{ no_such_name }}/lock.txt")
    assert "sglang_engine_lock: " in run.stdout and "'no_such_name' is undefined" in run.stdout


def test_a_setting_beside_the_name_of_an_instance_is_told_its_place(check):
    run = check(sglang_service_instances=[{"name": "k26", "port": 30000}])
    said = " ".join(run.stdout.split())
    assert "sglang_service_instances[0]: declared 'port'" in said
    assert "a setting of one instance, such as its port, stands in its settings" in said


def test_what_must_be_declared_is_asked_for(check):
    run = check(nvidia_driver_repositories=ABSENT)
    assert "nvidia_driver_repositories: declared nothing. Legal is a URL" in run.stdout


@pytest.mark.parametrize("value", ["75%", 3, "3", 0])
def test_what_is_legal_passes(check, value):
    run = check(traffic_minimum_serving=value)
    assert run.returncode == 0, run.stdout


SIZES = ["0", "-1", "0%", "101%", "many", "1.5", ""]
MINIMA = ["abc", "half", "101%", "-1", "1.5", ""]


@pytest.mark.parametrize(
    ("role", "variable", "value"),
    [
        *(("rollout", "rollout_batches", ["1", size]) for size in SIZES),
        ("rollout", "rollout_batches", []),
        ("rollout", "rollout_soak", -1),
        ("rollout", "rollout_prometheus", "prometheus:9090"),
        *(("traffic", "traffic_minimum_serving", minimum) for minimum in MINIMA),
        ("traffic", "traffic_gateways", "http://gateway:8000"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(monkeypatch, role, variable, value):
    action = load("plugins/action/declared_values.py")
    monkeypatch.setattr(action.C, "DEFAULT_ROLES_PATH", [str(ROOT / "roles")])
    assert list(action.Rules(action.Role(role), {}).broken(variable, value))


@pytest.mark.parametrize("role", ROLES)
def test_a_rule_is_for_a_variable_of_the_role(role):
    rules = yaml.safe_load((ROOT / f"roles/{role}/meta/legal_values.yml").read_text())
    assert rules.keys() <= bad_input.options(role).keys()


def test_what_may_hold_a_secret_is_not_shown(check):
    secret = {"rollout_prometheus": "admin:hunter2@prometheus", "sglang_service_environment": {"HF_TOKEN": "hunter2\n"}}
    instance = {"name": "k26", "environment": {"HF_TOKEN": "hunter2\n"}}
    commands = {"traffic_command_out": ["pool", "hunter2\n"], "traffic_gateways": ["https://me:hun/ter2@gate 1"]}
    run = check(**secret, **commands, sglang_service_instances=[instance])
    assert run.returncode == 2
    assert "hunter2" not in run.stdout and "ter2" not in run.stdout
    assert "rollout_prometheus: declared a text of 24 characters, not shown" in run.stdout
    assert "sglang_service_instances[0].environment.HF_TOKEN: declared a text of 8 characters, not shown" in run.stdout


def test_a_query_may_have_lines(check):
    analysis = [{"name": "errors", "query": "sum(\n  up\n)\n", "at_most": 1.5}]
    assert check(rollout_analysis=analysis, rollout_prometheus="http://prometheus:9090").returncode == 0


def test_a_value_may_speak_of_another_roles_default(check):
    assert check(traffic_drain_timeout="{{ sglang_service_stop_timeout }}").returncode == 0


def test_a_role_that_is_not_there_is_an_error(check):
    run = check(ANSIBLE_ROLES_PATH="/nowhere")
    assert run.returncode == 2 and "There is no role" in run.stdout
