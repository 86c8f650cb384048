"""A fork's contract: from the file, over the built-in one, to a plan; and the proposal of one."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.sglang_proof import contract, fork, plan
from ansible.plugins.loader import action_loader
from stage import CONFIGS, PYTHON, SETTINGS, engine

ROOT = Path(__file__).resolve().parents[2]
HOUSE = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/forks.md").read_text(), re.DOTALL)[1]
WORKER = "Initialized DDTREE worker. budget={}, topk={}, window={}"
FLAGS = ["--speculative-ddtree-budget", "--speculative-ddtree-topk", "--speculative-ddtree-window"]


@pytest.fixture(scope="module")
def with_lines():
    action_loader.add_directory(str(ROOT / "plugins/action"))
    return sys.modules[action_loader.get("declared_settings", class_only=True).__module__].with_lines


@pytest.fixture
def read(with_lines):
    return lambda text: fork.read({"file": "house.yml", **with_lines(text)})


def house_engine():
    flags = [option.flag for option in engine().options]
    return engine(flags=[*flags, *FLAGS], templates=(*engine().templates, WORKER))


def house_plan(rules, **changes):
    facts = house_engine()
    settings = {**SETTINGS, "spec_algorithm": "DDTREE", "budget": "8", "topk": "4", **changes}
    declaration = plan.declared(settings, rules.family_of(facts).name, CONFIGS, facts.release, rules)
    return plan.make("k26", PYTHON, declaration, facts)


def test_the_example_of_the_page_plans_budget_topk_and_window(read):
    made = house_plan(read(HOUSE))
    assert made.family == "house"
    command = " ".join(made.argv)
    assert "--speculative-ddtree-budget 8 --speculative-ddtree-topk 4" in command
    assert "--speculative-ddtree-window 2048" in command and "--speculative-draft-window-size" not in command
    said = {e.setting: [(w.get("head"), w["field"], w["value"]) for w in e.witnesses] for e in made.expectations}
    assert said["topk"] == [("Initialized DDTREE worker.", "topk", 4)]
    assert said["window"] == [("Initialized DDTREE worker.", "window", 2048)]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"topk": 9}, "topk: declared 9, but it must be at most 8 (budget)"),
        ({"window": 4}, "window: declared 4, but it must be at least 8 (block_size)"),
        ({"draft_model": "unset"}, "which needs draft_model"),
    ],
)
def test_its_bounds_are_kept(read, changes, said):
    with pytest.raises(plan.Refused) as refused:
        house_plan(read(HOUSE), **changes)
    assert said in str(refused.value)


def test_off_is_proved_off(read):
    (window,) = [e for e in house_plan(read(HOUSE), window="none").expectations if e.setting == "window"]
    assert [w["value"] for w in window.witnesses] == [None]


def test_a_released_engine_stays_a_released_engine(read):
    assert read(HOUSE).family_of(engine()).name == "upstream"


def test_a_plugin_brings_its_algorithm_with_its_settings(read):
    rules = read("""
family: plugin
options: [--my-depth]
algorithms: [MYSPEC]
settings:
  spec_algorithm: {type: [MYSPEC], flag: --speculative-algorithm, witnesses: [{line: MySpec is on}]}
  depth: {type: integer, flag: --my-depth, witnesses: [{granted: my_depth, relation: ge}]}
  pruned: {type: switch, environment: MY_PRUNE, severity: warning}
""")
    facts = engine(flags=["--speculative-algorithm", "--my-depth", "--model-path"], templates=("MySpec is on, depth {}",))
    settings = {"spec_algorithm": "MYSPEC", "depth": 3, "pruned": True, "model": "/m"}
    made = plan.make("k26", PYTHON, plan.declared(settings, "plugin", {}, "0.5.13", rules), facts)
    assert "--my-depth 3" in " ".join(made.argv) and made.environment["MY_PRUNE"] == "True"
    assert {e.setting: e.severity for e in made.expectations}["pruned"] == "warning"


def test_its_forbidden_lines_are_added(read):
    rules = read(HOUSE + "forbidden: [{text: tree verification is off, reason: it runs a chain}]\n")
    assert "tree verification is off" in {line["text"] for line in house_plan(rules).forbidden}


@pytest.mark.parametrize(
    "line, instead, said",
    [
        ("    maximum: budget", "    maximun: budget", "house.yml:19: settings.topk.maximun: did you mean maximum?"),
        (
            "    maximum: budget",
            "    maximum: budgt",
            "house.yml:19: settings.topk.maximum: no setting is named budgt; did you",
        ),
        (
            "    maximum: budget",
            "    maximum: open(1)",
            "house.yml:19: settings.topk.maximum: 'open(1)': Call is not allowed",
        ),
        (
            "    maximum: budget",
            "    severity: critcal",
            "house.yml:19: settings.topk.severity: is 'critcal', but it must be",
        ),
        ("    maximum: budget", "    can_be_off: maybe", "house.yml:19: settings.topk.can_be_off: is 'maybe'"),
        (
            "    maximum: budget",
            "    environment: X",
            "house.yml:19: settings.topk.environment: a setting is carried by a flag or",
        ),
        ("    maximum: budget", "    needs: [budgets]", "house.yml:19: settings.topk.needs.0: is 'budgets'"),
        ("    maximum: budget", "    refuse: {}", "house.yml:19: settings.topk.refuse: must be a list"),
        ("    maximum: budget", "    refuse: [{when: topk}]", "house.yml:19: settings.topk.refuse.0: because is missing"),
        (
            "    maximum: budget",
            "    contradict: [1]",
            "house.yml:19: settings.topk.contradict.0: is 1, but it must be one line",
        ),
        ("algorithms: [DDTREE]", "algorithms: DDTREE", "house.yml:4: algorithms: must be a list of names like DDTREE"),
        ("algorithms: [DDTREE]", "", "house.yml:1: the file: algorithms is missing"),
        ("family: house", "family: [1]", "house.yml:1: family: is [1], but it must be a name of small letters"),
        ("  budget:", "  budget: 8\n  x:", "house.yml:11: settings.budget: must be keys with values"),
        (
            "    type: [DDTREE]",
            "    type: list",
            "house.yml:7: settings.spec_algorithm.type: is 'list', but it must be one of",
        ),
        ("    type: [DDTREE]", "    maximum: 3", "settings.spec_algorithm: type is missing"),
        (
            "{line: Initialized DDTREE worker.}",
            "{lines: x}",
            "settings.spec_algorithm.witnesses.0.lines: did you mean line?",
        ),
        ("{line: Initialized DDTREE worker.}", "{line: x, relation: eq}", "a line is present, or it has a field to compare"),
        ("{line: Initialized DDTREE worker.}", "x", "settings.spec_algorithm.witnesses.0: must be keys with values"),
        (
            "    flag: --speculative-algorithm",
            "    flag: speculative",
            "house.yml:8: settings.spec_algorithm.flag: is 'specul",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(read, line, instead, said):
    assert line in HOUSE
    with pytest.raises(fork.BadContract) as bad:
        read(HOUSE.replace(line, instead, 1))
    assert said in str(bad.value)


@pytest.mark.parametrize("text", ["", "[]", "text", "settings: []", "family: x", "family:"])
def test_what_is_no_contract_at_all_is_said_in_sentences(read, text):
    with pytest.raises(fork.BadContract, match=r"house.yml:1: the file: "):
        read(text)


@pytest.mark.parametrize("text, said", [("a: 1\na: 2", "a stands twice"), ("a: {", "expected"), ("1: x", "1 is no name")])
def test_a_file_that_yaml_reads_otherwise_than_people_is_refused(with_lines, text, said):
    with pytest.raises(yaml.MarkedYAMLError) as error:
        with_lines(text)
    assert said in error.value.problem


PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Declare
      declared_settings:
        instances: [{name: k26}]
        shared: {spec_algorithm: ddtree, draft_model: /d, budget: 8, SETTINGS}
        contract: house.yml
        prefix: sglang_service_
"""


FLAVOUR = HOUSE.replace("  budget:", "  flavour:\n    type: text\n  budget:")


@pytest.mark.parametrize(
    "settings, text, said",
    [
        ("topk: 4", HOUSE, "ok=1"),
        ("topk: 4, flavour: plain", FLAVOUR, "ok=1"),
        ("topk: 4, flavour: plain", HOUSE, "flavour: no setting has this name"),
        ("topk: 9", HOUSE, "topk: declared 9, but it must be at most 8 (budget)"),
        (
            "topk: 4",
            HOUSE.replace("maximum: budget", "maxi: budget"),
            "house.yml:19: settings.topk.maxi: did you mean maximum?",
        ),
        ("topk: 4", HOUSE + "family: again\n", "house.yml:30: family stands twice"),
    ],
)
def test_a_play_refuses_what_the_forks_contract_does_not_allow(
    tmp_path, monkeypatch, ansible_playbook, settings, text, said
):
    (tmp_path / "house.yml").write_text(text)
    (tmp_path / "play.yml").write_text(PLAYBOOK.replace("SETTINGS", settings))
    monkeypatch.chdir(tmp_path)
    done = ansible_playbook("play.yml", "-i", "localhost,")
    assert said in done.stdout + done.stderr
    assert (done.returncode == 0) == said.startswith("ok=")


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path, monkeypatch, ansible_playbook):
    (tmp_path / "play.yml").write_text(PLAYBOOK.replace("SETTINGS", "topk: 4"))
    monkeypatch.chdir(tmp_path)
    done = ansible_playbook("play.yml", "-i", "localhost,")
    assert done.returncode == 2 and "house.yml: No such file or directory" in done.stdout
    for text in (b"family: \xff", b"family: \x07"):
        (tmp_path / "house.yml").write_bytes(text)
        done = ansible_playbook("play.yml", "-i", "localhost,")
        assert done.returncode == 2 and "house.yml: is no text in UTF-8: " in done.stdout


# ---- the proposal ----

SERVER_ARGS = """
parser.add_argument("--speculative-algorithm", type=str)
parser.add_argument("--speculative-num-draft-tokens", type=int)
parser.add_argument("--max-size", type=int)
"""
FORK_ARGS = """
parser.add_argument("--speculative-ddtree-budget", type=int)
parser.add_argument("--speculative-ddtree-topk", type=int)
parser.add_argument("--speculative-ddtree-prune", action="store_true")
"""
FORK_LOG = 'logger.info("Initialized DDTREE worker. block_size=%s, tree_budget=%s, tree_topk=%s, prune=%s", 1, 2, 3, True)\n'


def package(directory, arguments, log=""):
    files = {"srt/server_args.py": arguments, "srt/speculative/worker.py": log}
    for name, text in files.items():
        path = directory / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def propose(*arguments):
    return subprocess.run([ROOT / "propose-contract", *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path):
    package(tmp_path / "checkout/python", SERVER_ARGS + FORK_ARGS + 'parser.add_argument("--draft-x")', FORK_LOG)
    return tmp_path / "checkout"


def test_a_proposal_names_what_the_release_lacks_and_is_a_contract(tmp_path, checkout, read):
    base = package(tmp_path / "release", SERVER_ARGS + 'parser.add_argument("--draft-x")')
    done = propose(checkout, "--base", base)
    assert (done.returncode, done.stderr) == (0, "")
    rules = read(done.stdout)
    assert rules.families[0].options == (
        "--speculative-ddtree-budget", "--speculative-ddtree-prune", "--speculative-ddtree-topk",
    )  # fmt: skip
    assert rules.families[0].algorithms[0] == "DDTREE"
    said = {s.name: [(w.head, w.field, w.expect) for w in s.witnesses] for s in rules.settings if s.family == "fork"}
    worker = "Initialized DDTREE worker."
    assert said == {
        "spec_algorithm": [(worker, None, "declared")],
        "budget": [(worker, "tree_budget", "declared")],
        "topk": [(worker, "tree_topk", "declared")],
        "ddtree_prune": [(worker, "prune", "declared == True")],
    }


def test_without_its_release_all_is_proposed_that_the_contract_does_not_know(checkout):
    assert "flag: --draft-x" in propose(checkout).stdout


def test_a_wheel_is_read_as_it_is(tmp_path, checkout):
    wheel = tmp_path / "sglang-0.5.13-py3-none-any.whl"
    subprocess.run([sys.executable, "-m", "zipfile", "-c", wheel, checkout / "python/sglang"], check=True)
    assert propose(wheel).stdout == propose(checkout).stdout != ""


def test_a_release_needs_no_proposal(tmp_path):
    done = propose(package(tmp_path, SERVER_ARGS))
    assert done.returncode == 1 and "no option for speculative decoding beyond the built-in contract" in done.stderr


@pytest.mark.parametrize("path", ["nowhere", "empty", "broken.whl"])
def test_what_is_no_engine_is_said_in_a_sentence(tmp_path, path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.whl").write_text("no zip")
    done = propose(tmp_path / path)
    assert done.returncode == 1 and "Traceback" not in done.stderr and done.stderr.strip()


def test_the_built_in_contract_is_untouched(read):
    before = contract.BUILT_IN
    read(HOUSE)
    assert contract.BUILT_IN is before and json.dumps(contract.BUILT_IN.names())


def test_its_cut_lines_are_known_by_the_last_field_that_the_installed_engine_prints(read):
    witnesses = [w for e in house_plan(read(HOUSE)).expectations for w in e.witnesses if w.get("field") == "topk"]
    assert [w["last"] for w in witnesses] == ["window"]


def test_its_harmless_lines_are_no_alarms(read):
    rules = read(
        HOUSE.replace("    can_be_off: true\n", "    can_be_off: true\n    benign: [window is ignored in warm-up]\n")
    )
    assert "window is ignored in warm-up" in house_plan(rules).benign
