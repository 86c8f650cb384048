"""What is declared becomes a plan, or is refused with all reasons at once."""

import re

import pytest
from ansible.module_utils.sglang_proof import contract, plan
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
        ({"draft_revison": "x"}, "did you mean draft_revision?"),
        ({"budget": 8}, "budget: declared 8, but under DFLASH nothing in SGLang 0.5.13 carries or honours it"),
        ({"topk": 4}, "topk: declared 4, but the engine rewrites it to 1 under DFLASH"),
        ({"steps": "3"}, "steps: declared 3, but the engine rewrites it to 1"),
        ({"model": "models/x"}, "an absolute path"),
        ({"draft_model": "unset", "spec_algorithm": "DFLASH"}, "spec_algorithm: declared DFLASH, which needs draft_model"),
        ({"pp": 2}, "pp: declared 2, but DFLASH runs in one stage only"),
        ({"nnodes": 2}, "the followers of an engine over several hosts print none of the lines that prove it"),
        ({"disaggregation_mode": "prefill"}, "nothing proves it"),
        ({"log_level": "warning"}, "at any other level the engine prints none of the lines that prove it"),
        ({"least_context": 8192}, "at most 4096 (context_length)"),
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


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"qqqqqq": 1}, f"qqqqqq: no setting has this name; known are {', '.join(contract.names())}"),
        ({"metrics": "yes"}, "metrics: declared 'yes', but it must be true or false"),
        ({"block_size": "x"}, "block_size: declared 'x', but it must be a whole number"),
        (
            {"block_size": "none"},
            "block_size: declared none, but it cannot be off; leave it undeclared, or say unset",
        ),
        (
            {"budget": 8},
            "budget: declared 8, but under DFLASH nothing in SGLang 0.5.13 carries or honours it; "
            "it is a setting of DDTREE (a ddtree build); remove it, or declare spec_algorithm accordingly",
        ),
        (
            {"topk": 3, "spec_algorithm": "none", "draft_model": "unset", "window": "unset", "block_size": "unset"},
            "topk: declared 3, but under plain decoding nothing in SGLang 0.5.13 carries or honours it; "
            "it is a setting of DDTREE, DFLASH, EAGLE, EAGLE3, NEXTN, STANDALONE; "
            "remove it, or declare spec_algorithm accordingly",
        ),
        (
            {"spec_algorithm": "DDTREE"},
            "spec_algorithm: declared DDTREE, which the installed upstream build lacks",
        ),
        ({"window": "x" * 58}, f"window: declared '{'x' * 58}', but it must be a whole number, or none"),
        (
            {"window": "x" * 59},
            f"window: declared '{'x' * 56}… (61 characters), but it must be a whole number, or none",
        ),
        ({"mem_fraction": 0}, "mem_fraction: declared 0, but it must be a number from 0.01 to 0.99"),
    ],
)
def test_a_refusal_says_what_to_do(changes, problem):
    assert problem in problems(**changes)


def test_what_is_not_declared_is_where_sglang_has_it():
    declaration = plan.declared({"spec_algorithm": "none", "model": "/m"}, "upstream", {}, "0.5.13")
    made = plan.make("k26", PYTHON, declaration, engine())
    assert (made.host, made.port, made.replicas, made.model) == ("127.0.0.1", 30000, 1, "/m")


def test_the_digest_is_short_enough_to_read_out():
    assert re.fullmatch(r"[0-9a-f]{16}", make_plan().digest)


def test_what_needs_no_host_is_refused_without_one():
    with pytest.raises(plan.Refused, match="at least 8"):
        plan.declared({**SETTINGS, "window": 4})


def test_a_bound_that_is_not_known_yet_refuses_nothing():
    assert plan.declared({"spec_algorithm": "DFLASH", "draft_model": "/d", "window": 4}).values["window"] == 4


def test_topk_1_is_what_dflash_does_anyway():
    assert "--speculative-eagle-topk 1" in " ".join(make_plan(topk=1).argv)


def test_an_option_that_the_installed_engine_lacks_is_found_before_a_load():
    flags = [o.flag for o in engine().options if o.flag != "--speculative-draft-window-size"]
    (problem,) = problems(facts=engine(flags=[*flags, "--speculative-draft-windows", "--speculative-draft-window-sizes"]))
    assert (
        "has no option --speculative-draft-window-size; the nearest it has is --speculative-draft-window-sizes;" in problem
    )


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
        (["-h"], "has no such option"),
        (["--disable-cuda-graph", "4", "--nope"], "has no such option"),
    ],
)
def test_arguments_outside_the_contract(extra, said):
    declaration = plan.declared(SETTINGS, "upstream", CONFIGS, "0.5.13")
    with pytest.raises(plan.Refused, match=said):
        plan.make("k26", PYTHON, declaration, engine(), extra_args=extra)
    assert plan.make("k26", PYTHON, declaration, engine(), extra_args=["--disable-cuda-graph", "word", "-1"])


@pytest.mark.parametrize("settings, name", [(SETTINGS, "block_size"), ({"spec_algorithm": "NGRAM"}, "draft_tokens")])
def test_an_option_that_two_settings_carry_is_the_one_of_the_algorithm(settings, name):
    declaration = plan.declared(settings, "upstream", CONFIGS, "0.5.13")
    with pytest.raises(plan.Refused, match=f"this is the setting {name}; declare {name}"):
        plan.make("k26", PYTHON, declaration, engine(), extra_args=["--speculative-num-draft-tokens", "4"])


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


def test_the_order_of_variables_is_no_reason_for_a_restart():
    declaration = plan.declared(SETTINGS, "upstream", CONFIGS, "0.5.13")
    variables = {"NCCL_DEBUG": "INFO", "LANG": "C"}
    reverse = dict(reversed(variables.items()))
    digests = {plan.make("k26", PYTHON, declaration, engine(), environment=e).digest for e in (variables, reverse)}
    assert len(digests) == 1


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
    assert problem == (
        "window: declared 2048, but this engine would run with none "
        "(speculative_draft_window_size, asked of its own argument resolver)"
    )
    del resolved["speculative_draft_window_size"]
    assert list(plan.contradictions(made, resolved)) == [
        "window: the engine's resolver knows no field speculative_draft_window_size"
    ]


def test_the_resolver_is_not_asked_of_what_no_option_carries():
    made = make_plan(facts=ddtree(), spec_algorithm="DDTREE", budget=8, topk=4)
    resolved = {e.echoed_as: e.echoed for e in made.expectations if e.echoed_as}
    (problem,) = plan.contradictions(made, {**resolved, "port": 1})
    assert problem.startswith("port: declared 30000, but this engine would run with 1 (")


@pytest.mark.parametrize(
    "release, window, said",
    [
        ("0.5.13", 2048, "2048, 2048 tokens (its own window: 64, which SGLang honours from 0.5.14 on)"),
        ("0.5.13", "none", "all, all tokens (its own window: 64, which SGLang honours from 0.5.14 on)"),
        ("0.5.23", 2048, "64, 2048 tokens (its own window: 64)"),
        ("0.5.23", 16, "16, 16 tokens (its own window: 64)"),
        ("0.5.23", "none", "64, all tokens (its own window: 64)"),
    ],
)
def test_the_notes_say_what_the_drafters_layers_attend_to(release, window, said):
    assert make_plan(release, window=window).notes == (f"drafter layers attend to {said}",)


@pytest.mark.parametrize("gone", ["sliding_window", "layer_types"])
def test_a_drafter_that_does_not_tell_of_its_layers_has_no_note(gone):
    drafter = {key: value for key, value in CONFIGS["drafter"].items() if key != gone}
    declaration = plan.declared(SETTINGS, "upstream", {**CONFIGS, "drafter": drafter}, "0.5.23")
    assert plan.make("k26", PYTHON, declaration, engine("0.5.23")).notes == ()


def test_before_an_engine_is_known_none_is_named():
    with pytest.raises(plan.Refused, match="budget: declared 8, but under DFLASH nothing in SGLang carries"):
        plan.declared({**SETTINGS, "budget": 8})


@pytest.mark.parametrize(
    "found, expected, agree",
    [
        (0.80, 0.8, True), (1, 1.0, True), (True, True, True), (False, False, True), (None, None, True),
        (1, True, False), (True, 1, False), (0, False, False), (True, False, False), ("1", 1, False), (None, 0, False),
    ],
)  # fmt: skip
def test_what_the_engine_says_is_the_same_only_if_it_means_the_same(found, expected, agree):
    assert plan.same(found, expected) is agree


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


def drafter(**changes):
    configs = {
        "target": {"text_config": {"hidden_size": 32, "vocab_size": 260, "num_hidden_layers": 4}},
        "drafter": {
            "hidden_size": 32, "vocab_size": 260, "num_target_layers": 4, "dflash_config": {"target_layer_ids": [0, 2]},
            **changes,
        },
    }  # fmt: skip
    return plan.declared({"spec_algorithm": "DFLASH", "draft_model": "/d", "model": "/m"}, "upstream", configs, "0.5.23")


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"hidden_size": 64}, "its hidden_size is 64 and the target's 32"),
        ({"vocab_size": 512}, "its vocab_size is 512 and the target's 260"),
        ({"num_target_layers": 61}, "it was made for 61 layers and the target has 4"),
        ({"dflash_config": {"target_layer_ids": [0, 3]}}, "it reads the target's layers [0, 3]"),  # the last one
        ({"dflash_config": {"target_layer_ids": [-1, 2]}}, "it reads the target's layers [-1, 2]"),
    ],
)
def test_a_drafter_of_another_target_is_refused(changes, said):
    with pytest.raises(plan.Refused, match="draft_model: declared /d, but ") as refused:
        drafter(**changes)
    assert said in str(refused.value)


def test_a_drafter_of_this_target_is_not_refused():
    assert drafter()
    assert drafter(dflash_config={"target_layer_ids": [0, 1]}, num_target_layers=4)


EAGLE = {"spec_algorithm": "EAGLE", "model": "/m", "draft_model": "/d"}


def eagle(**changes):
    declaration = plan.declared({**EAGLE, **changes}, "upstream", {}, "0.5.23")
    return plan.make("k26", PYTHON, declaration, engine("0.5.23"))


def test_nextn_is_echoed_as_eagle():
    (algorithm,) = [e for e in eagle(spec_algorithm="nextn").expectations if e.setting == "spec_algorithm"]
    assert (algorithm.value, algorithm.echoed) == ("NEXTN", "EAGLE")


def test_eagle_chooses_steps_topk_and_draft_tokens_where_none_is_declared():
    assert {e.setting for e in eagle().expectations} == set(EAGLE)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"steps": 3, "topk": 1, "draft_tokens": 9}, "the engine rewrites it to steps + 1 at topk 1, steps is 3"),
        ({"steps": 3}, "steps: declared 3, which needs topk"),
        ({"topk": 1, "steps": 3}, "which needs draft_tokens"),
        ({"steps": 3, "topk": 4, "draft_tokens": 16, "adaptive": True}, "one candidate per step"),
        ({"window": 2048}, "under EAGLE nothing"),
        ({"spec_algorithm": "STANDALONE", "adaptive": True}, "under STANDALONE nothing"),
    ],
)
def test_what_eagle_would_rewrite_is_refused(changes, said):
    with pytest.raises(plan.Refused) as refused:
        eagle(**changes)
    assert said in str(refused.value)


def test_a_tree_of_eagle_has_any_number_of_draft_tokens():
    assert "--speculative-num-draft-tokens 16" in " ".join(eagle(steps=3, topk=4, draft_tokens=16).argv)


def test_adaptive_speculation_claims_only_what_it_starts_with():
    made = eagle(steps=3, topk=1, draft_tokens=4, adaptive=True)
    assert [note.split(":")[0] for note in made.notes if "starts with" in note] == ["steps", "draft_tokens"]
    (adaptive,) = [e for e in made.expectations if e.setting == "adaptive"]
    assert adaptive.echoed is True
    assert adaptive.contradict == ("speculative_adaptive disabled:",)


def test_ngram_needs_no_drafter():
    made = eagle(spec_algorithm="NGRAM", draft_model="unset", draft_tokens=12)
    assert "--speculative-num-draft-tokens 12" in " ".join(made.argv)


@pytest.mark.parametrize(
    "budget, topk, note",
    [
        (8, 4, "topk: 4 is a cap; budget 8 at block size 8 gives 2 candidates per node"),
        (21, 4, "topk: 4 is a cap; budget 21 at block size 8 gives 4 candidates per node"),
        (7, 4, "topk: inert, budget 7 at block size 8 is a plain chain"),
    ],
)
def test_the_note_says_what_becomes_of_topk(budget, topk, note):
    made = make_plan(facts=ddtree(), spec_algorithm="DDTREE", budget=budget, topk=topk)
    assert note in made.notes


@pytest.mark.parametrize("budget, topk, reached", [(8, 2, True), (8, 4, False), (21, 4, True), (7, 2, False)])
def test_topk_is_exact_where_it_was_asked_for(budget, topk, reached):
    declared = {"spec_algorithm": "DDTREE", "budget": budget, "topk": topk, "topk_exact": "true"}
    if reached:
        made = make_plan(facts=ddtree(), **declared)
        assert "topk_exact" not in {e.setting for e in made.expectations}
        assert not [argument for argument in made.argv if "exact" in argument]
    else:
        (problem,) = problems(facts=ddtree(), **declared)
        assert f"topk {topk} is not reached by budget {budget} at block size 8" in problem


def test_a_tree_needs_the_triton_kernels():
    (problem,) = problems(facts=ddtree(), spec_algorithm="DDTREE", budget=8, attention_backend="flashinfer")
    assert "a tree (a budget of block_size = 8 or more) needs attention_backend triton" in problem
    assert make_plan(facts=ddtree(), spec_algorithm="DDTREE", budget=7, attention_backend="flashinfer")


def test_a_switched_off_word_is_echoed_as_the_engine_says_it():
    made = make_plan(disaggregation_mode="none", moe_a2a_backend=None, metrics=False)
    assert {e.setting: e.echoed for e in made.expectations if e.value is None} == {
        "disaggregation_mode": "null",
        "moe_a2a_backend": "none",
        "metrics": False,
    }


@pytest.mark.parametrize("name", ["trust_remote_code", "metrics"])
def test_a_switch_is_off_by_any_word_for_it(name):
    for off in ("none", "false", False, None):
        (switch,) = [e for e in make_plan(**{name: off}).expectations if e.setting == name]
        assert (switch.value, switch.echoed) == (None, False)


def test_switches_of_one_algorithm_can_be_off():
    assert "--speculative-adaptive" not in eagle(steps=3, topk=4, draft_tokens=16, adaptive=False).argv
    assert make_plan(facts=ddtree(), spec_algorithm="DDTREE", budget=8, topk=4, topk_exact=False)


def test_the_least_context_is_asked_of_the_scheduler_and_told_to_nobody():
    made = make_plan(least_context=2048)
    (expectation,) = [e for e in made.expectations if e.setting == "least_context"]
    assert (expectation.carrier, expectation.echoed_as) == ("", None)
    assert expectation.witnesses == (
        {
            "hop": "effective",
            "source": "granted",
            "field": "memory_usage.token_capacity",
            "relation": "ge",
            "value": 2048,
        },
    )
    assert made.argv == make_plan().argv


def texts(made):
    return {line["text"] for line in made.forbidden}


def test_forbidden_lines_travel_with_the_plan():
    assert "DFLASH non-greedy verification is unavailable" in texts(make_plan(device="cuda"))
    assert texts(make_plan()) == texts(make_plan(device="cuda"))  # what is not known is no excuse
    assert all(line["severity"] and line["reason"] for line in make_plan().forbidden)


def test_what_belongs_to_the_cpu_demo_is_not_forbidden_there():
    assert texts(make_plan(device="cpu")) == {"Simulated acceptance"}


def test_lines_of_one_algorithm_are_forbidden_under_it_only():
    assert texts(eagle(device="cuda")) == {"Simulated acceptance"}


@pytest.mark.parametrize(
    "variable, device, said",
    [
        ("SGLANG_SIMULATE_ACC_LEN", "cpu", "it makes acceptance up"),
        ("SGLANG_LOGGING_CONFIG_PATH", "cuda", "it replaces the log format"),
        ("SGLANG_USE_CPU_ENGINE", "cuda", "[CG]PU .* only device: cpu may say"),
        ("SGLANG_USE_CPU_ENGINE", "unset", "[CG]PU .* only device: cpu may say"),
        ("TRITON_INTERPRET", "cuda", "[CG]PU .* only device: cpu may say"),
        ("SGLANG_DDTREE_MAX_TOPK", "cuda", "this is the setting topk"),
        ("SGLANG_USE_CPU_ENGINE", "cpu", None),
        ("NCCL_P2P_LEVEL", "cuda", None),
    ],
)
def test_variables_that_would_make_the_evidence_worthless_are_refused(variable, device, said):
    declaration = plan.declared({**SETTINGS, "device": device}, "upstream", CONFIGS, "0.5.13")
    if said is None:
        assert variable in plan.make("k26", PYTHON, declaration, engine(), environment={variable: "1"}).environment
    else:
        with pytest.raises(plan.Refused, match=f"environment {variable}: {said}"):
            plan.make("k26", PYTHON, declaration, engine(), environment={variable: "1"})


def test_the_block_size_of_a_drafter_is_noted_where_another_is_declared():
    assert "block_size: the drafter was trained for blocks of 8, declared are 16" in make_plan(block_size=16).notes


def test_a_revision_of_a_directory_is_noted_as_inert():
    assert any(note.startswith("revision: the model is a directory") for note in make_plan(revision="v1").notes)


@pytest.mark.parametrize(
    "algorithm, hint",
    [
        ("EAGLE33", "; did you mean EAGLE3?"),
        ("DFLSH", "; did you mean DFLASH?"),
        ("dflsh", "; did you mean DFLASH?"),
        ("", ""),
        (5, ""),
    ],
)
def test_an_unknown_algorithm_is_said_alone(algorithm, hint):
    known = "DFLASH, DDTREE, EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM"
    (problem,) = problems(spec_algorithm=algorithm, budget=8, windwo=1)
    assert problem == f"spec_algorithm: declared {algorithm!r}, but it must be one of {known}, or none{hint}"


@pytest.mark.parametrize("raw, known", [({"window": 1024, "topk": 4}, "nothing"), ({"window": 1024, "port": 30001}, "port")])
def test_settings_that_hide_all_others_are_named_as_the_cause(raw, known):
    with pytest.raises(plan.Refused) as refused:
        plan.declared(raw)
    (problem,) = refused.value.problems
    assert problem.startswith(
        f"model: not declared (declared is {known}). A host's or group's own sglang_service_settings hides"
    )
    assert "sglang_service_<setting>" in problem


def test_a_misspelt_model_is_said_beside_it():
    with pytest.raises(plan.Refused, match="modle: no setting has this name; did you mean model"):
        plan.declared({"modle": "/m", "window": 1024})


def test_no_plan_without_a_model():
    with pytest.raises(plan.Refused, match="model: not declared"):
        plan.make("k26", PYTHON, plan.declared({"spec_algorithm": "none"}, "upstream", {}, "0.5.13"), engine())


def collisions(one, other):
    instances = [(name, plan.declared({"model": "/m", **settings})) for name, settings in (("k26", one), ("k27", other))]
    return list(plan.collisions(instances[0], instances[1:]))


@pytest.mark.parametrize(
    "one, other, said",
    [
        ({"gpus": "0"}, {"gpus": "1"}, ["port: k26 and k27 of one host both take port 30000; each needs its own"]),
        ({"gpus": "0", "port": 30001}, {"gpus": "1"}, []),
        ({"gpus": "0,1,2"}, {"gpus": "2,3,1", "port": "30001"}, ["gpus: k26 and k27 of one host both take GPU 1, 2; each"]),
        ({"gpus": "0"}, {"port": 30001}, ["gpus: k26 and k27 of one host both take GPU 0; each"]),
        ({}, {"gpus": "0", "port": 30001}, ["gpus: k26 and k27 of one host both take GPU 0; each"]),
        ({}, {"port": 30001}, ["gpus: k26 and k27 of one host both take GPU 0 and all others; each"]),
        ({"device": "cpu"}, {"device": "cpu", "port": 30001}, []),
        ({"device": "cpu"}, {"port": 30001}, []),
        ({"gpus": "0", "host": "10.0.0.1"}, {"gpus": "1", "host": "10.0.0.2"}, []),
        ({"gpus": "0", "host": "0.0.0.0"}, {"gpus": "1", "host": "10.0.0.2"}, ["port: k26 and k27 of one host both take"]),
        ({"gpus": "0", "host": "10.0.0.1"}, {"gpus": "1", "host": "::"}, ["port: k26 and k27 of one host both take"]),
        ({"gpus": "0", "host": "10.0.0.1"}, {"gpus": "0", "host": "10.0.0.2"}, ["gpus: k26 and k27 of one host both"]),
    ],
)
def test_two_instances_of_a_host_do_not_take_the_same(one, other, said):
    found = collisions(one, other)
    assert len(found) == len(said)
    assert all(words in sentence for words, sentence in zip(said, found, strict=True))


def test_gpus_are_carried_by_the_variable_of_cuda():
    made = make_plan(gpus="0,GPU-5a1c0f1e-0000")
    assert made.environment["CUDA_VISIBLE_DEVICES"] == "0,GPU-5a1c0f1e-0000"
    assert "gpus: declared 0, but it must be numbers or UUIDs with commas" in str(problems(gpus=0))
    assert "gpus: declared '0 1'" in str(problems(gpus="0 1"))


def test_what_is_benign_travels_with_the_plan():
    tree = "--speculative-draft-window-size has no effect with speculative_algorithm=DDTREE"
    assert tree in make_plan().benign
    assert tree not in eagle().benign
    assert plan.Plan.from_dict(make_plan().to_dict()).benign == make_plan().benign
