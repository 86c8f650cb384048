"""What is declared becomes a plan, or is refused with all reasons at once."""

import pytest
from ansible.module_utils.sglang_proof import plan
from ansible.module_utils.sglang_proof.facts import Option
from stage import CONFIGS, PYTHON, SETTINGS, engine, make_plan


def problems(**changes):
    with pytest.raises(plan.Refused) as refused:
        make_plan(**changes)
    return refused.value.problems


def test_the_command_line_carries_what_is_declared():
    made = make_plan()
    assert made.argv[:3] == (PYTHON, "-m", "sglang.launch_server")
    assert "--speculative-draft-window-size 2048" in " ".join(made.argv)
    assert made.unit == "sglang-k26.service"


def test_off_leaves_the_option_out_and_expects_none():
    made = make_plan(window="none")
    assert not [a for a in made.argv if "window" in a]
    (window,) = [e for e in made.expectations if e.setting == "window"]
    assert window.echoed is None
    assert [w["value"] for w in window.witnesses] == [None, False]


def test_unset_claims_nothing():
    assert "window" not in {e.setting for e in make_plan(window="unset").expectations}


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"window": "abc"}, "window: declared 'abc', but it must be a whole number, or none"),
        ({"window": "0"}, "at least 8 (block_size)"),
        ({"window": -5}, "at least 8 (block_size)"),
        ({"window": "4"}, "window: declared 4, but it must be at least 8 (block_size)"),
        ({"window": 4097}, "at most 4096 (context_length)"),
        ({"window": 4, "block_size": "unset"}, "at least 8 (block_size)"),  # the drafter's own
        ({"context_length": 8192}, "at most 4096 (target.max_position_embeddings)"),
        ({"windwo": 1024}, "did you mean window?"),
        ({"budget": 8}, "budget: declared 8, but under DFLASH nothing in SGLang 0.5.13 carries or honours it"),
        ({"topk": 4}, "topk: declared 4, but the engine rewrites it to 1 under DFLASH"),
        ({"steps": "3"}, "steps: declared 3, but the engine rewrites it to 1"),
        ({"model": "models/x"}, "an absolute path"),
        ({"block_size": None}, "block_size: declared none, but it cannot be off"),
        ({"spec_algorithm": "DDTREE"}, "spec_algorithm: declared"),
        ({"spec_algorithm": "EAGLE9"}, "spec_algorithm: declared 'EAGLE9', but it must be one of DFLASH"),
        pytest.param({"window": "9" * 100_000}, "(100002 characters)", id="100 kB of digits"),
    ],
)
def test_the_impossible_is_refused_with_its_reason(changes, said):
    (problem,) = [p for p in problems(**changes) if p.split(":")[0] in changes]
    assert said in problem
    assert len(problem) < 400


def test_all_problems_come_at_once():
    assert len(problems(window="abc", windwo=1, budget=8)) == 3


def test_what_needs_no_host_is_refused_without_one():
    with pytest.raises(plan.Refused, match="at least 8"):
        plan.declared({**SETTINGS, "window": 4})


def test_a_bound_that_is_not_known_yet_refuses_nothing():
    assert plan.declared({"spec_algorithm": "DFLASH", "window": 4}).values["window"] == 4


def test_topk_1_is_what_dflash_does_anyway():
    assert "--speculative-eagle-topk 1" in " ".join(make_plan(topk=1).argv)


def test_an_option_that_the_installed_engine_lacks_is_found_before_a_load():
    flags = [o.flag for o in engine().options if o.flag != "--speculative-draft-window-size"]
    (problem,) = problems(facts=engine(flags=[*flags, "--speculative-draft-windows"]))
    assert "has no option --speculative-draft-window-size; the nearest it has is --speculative-draft-windows" in problem


def test_a_line_that_the_installed_engine_never_logs_is_found_before_a_load():
    said = problems(facts=engine(templates=("max_total_num_tokens={}",)))
    assert all("never logs 'Initialized DFLASH draft runner.'" in problem for problem in said)
    assert {problem.split(":")[0] for problem in said} == {"spec_algorithm", "window", "block_size"}


@pytest.mark.parametrize(
    "extra, said",
    [
        (["--speculative-draft-window", "4"], "it is short for --speculative-draft-window-size"),
        (["--nope"], "has no such option"),
        (["--config=/etc/x.yaml"], "could override what is declared"),
        (["--port", "1"], "this is the setting port"),
    ],
)
def test_arguments_outside_the_contract(extra, said):
    declaration = plan.declared(SETTINGS, "upstream", CONFIGS, "0.5.13")
    with pytest.raises(plan.Refused, match=said):
        plan.make("k26", PYTHON, declaration, engine(), extra_args=extra)
    assert plan.make("k26", PYTHON, declaration, engine(), extra_args=["--disable-cuda-graph"])


def ddtree():
    flags = [o.flag for o in engine("0.5.23").options] + ["--speculative-ddtree-budget"]
    templates = (*engine().templates, "Initialized DDTree worker. block_size={}, tree_budget={}, max_tree_nodes={}")
    return engine("0.5.23", flags=flags, templates=templates)


def test_budget_topk_and_window_are_carried_under_ddtree():
    made = make_plan(facts=ddtree(), spec_algorithm="ddtree", budget="8", topk="4")
    assert made.family == "ddtree"
    assert "--speculative-ddtree-budget 8" in " ".join(made.argv)
    assert made.environment["SGLANG_DDTREE_MAX_TOPK"] == "4"
    witnesses = {e.setting: [(w.get("head"), w["field"], w["value"]) for w in e.witnesses] for e in made.expectations}
    assert ("Initialized DDTree worker.", "max_tree_nodes", 9) in witnesses["budget"]


@pytest.mark.parametrize(
    "change",
    [
        {"window": 1024}, {"facts": engine("0.5.12")}, {"port": 30001},
    ],
)  # fmt: skip
def test_the_digest_changes_with_what_makes_a_restart_necessary(change):
    assert make_plan(**change).digest != make_plan().digest == make_plan().digest


def test_the_digest_covers_further_inputs():
    declaration = plan.declared(SETTINGS, "upstream", CONFIGS, "0.5.13")
    digests = {plan.make("k26", PYTHON, declaration, engine(), inputs=i).digest for i in ({"model": 1}, {"model": 2}, None)}
    assert len(digests) == 3


def test_a_plan_survives_the_way_through_json():
    made = make_plan()
    assert plan.Plan.from_dict(made.to_dict()) == made


@pytest.mark.parametrize("data", [None, {}, {"version": 99}, "plan"])
def test_what_is_no_plan_of_this_version_is_refused(data):
    with pytest.raises(ValueError, match="no plan of version 1"):
        plan.Plan.from_dict(data)


def test_the_resolver_can_contradict():
    made = make_plan()
    resolved = {e.echoed_as: e.echoed for e in made.expectations}
    assert list(plan.contradictions(made, resolved)) == []
    (problem,) = plan.contradictions(made, {**resolved, "speculative_draft_window_size": None})
    assert "window: declared 2048, but this engine would run with none" in problem


@pytest.mark.parametrize("release, attends", [("0.5.13", "2048, 2048"), ("0.5.23", "64, 2048")])
def test_the_notes_say_what_the_drafters_layers_attend_to(release, attends):
    (note,) = make_plan(release).notes
    assert attends in note


def test_an_alias_of_a_settings_option_is_that_setting():
    facts = engine()
    facts = type(facts)(
        facts.release,
        (*facts.options, Option("--tensor-parallel-size", "tp_size", "store", "one")),
        facts.templates,
        "x",
    )
    declaration = plan.declared(SETTINGS, "upstream", CONFIGS, "0.5.13")
    with pytest.raises(plan.Refused, match="this is the setting tp"):
        plan.make("k26", PYTHON, declaration, facts, extra_args=["--tensor-parallel-size", "4"])
