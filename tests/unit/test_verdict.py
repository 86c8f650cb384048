"""What was declared against what each hop says."""

from dataclasses import replace

import pytest
from ansible.module_utils.sglang_proof import verdict as v
from stage import FakeHost, make_plan, with_alarms
from test_plan import ddtree

PLAN = replace(make_plan(max_running_requests=4, max_total_tokens=4096), user="sglang")
LINE = v.Said(
    {"attention_backend": "triton", "block_size": 8, "draft_window_size": 2048, "compact_cache": True},
    "journal 14:03:12",
)
POOL = v.Said({"max_total_num_tokens": 4096, "context_len": 4096}, "journal 14:03:12")
HOST = FakeHost(PLAN)


def evidence(**changes):
    """A healthy start of PLAN, but for the changes."""
    healthy = v.Evidence(
        unit=HOST.running,
        unit_path=HOST.running.fragment_path,
        argv=PLAN.argv,
        environ=dict(PLAN.environment),
        echo=v.Said({e.echoed_as: e.echoed for e in PLAN.expectations}, "server_args= 14:03:02"),
        lines={"Initialized DFLASH draft runner.": [LINE], "max_total_num_tokens=": [POOL]},
        server_info=v.Said({"internal_states": [{"effective_max_running_requests_per_dp": 4}]}, "http://x/server_info"),
        model_info=v.Said({"model_path": PLAN.model}, "http://x/model_info"),
        listener=v.Said({"ours": True, "owner": "python (pid 7)"}, "port 30000"),
        generation=v.Said({"text": "ok"}, "http://x/generate"),
    )
    return replace(healthy, **changes)


def broken(**changes):
    found = v.first_broken(v.judge(PLAN, evidence(**changes)))
    return found and (found.setting, found.hop, found.verdict)


def lines(*draft):
    return {"Initialized DFLASH draft runner.": list(draft), "max_total_num_tokens=": [POOL]}


def draft(**fields):
    return replace(LINE, fields={**LINE.fields, **fields})


def echo(**changes):
    values = {e.echoed_as: e.echoed for e in PLAN.expectations}
    return v.Said({**values, **changes}, "server_args=")


def without(said, key):
    return replace(said, fields={k: value for k, value in said.fields.items() if k != key})


NOTHING = {"unit": None, "argv": None, "environ": None}  # no such unit, so no process
WINDOW = ("window", "effective")
NO_WINDOW = [a for a in PLAN.argv if a not in ("--speculative-draft-window-size", "2048")]


def test_a_healthy_start_matches_at_every_hop():
    verdicts = v.judge(PLAN, evidence())
    assert {verdict.verdict for verdict in verdicts} == {"match"}
    assert {verdict.hop for verdict in verdicts} == set(v.HOPS)


@pytest.mark.parametrize(
    "changes, named",
    [
        # unit
        (NOTHING, ("unit", "unit", "missing")),
        ({"unit": replace(HOST.running, load_state="not-found")}, ("unit", "unit", "missing")),
        ({"unit": replace(HOST.running, argv=tuple(NO_WINDOW))}, ("window", "unit", "differs")),
        (
            {"unit": replace(HOST.running, argv=(*PLAN.argv, "--speculative-draft-window-size=64"))},
            ("window", "unit", "differs"),
        ),
        ({"unit": replace(HOST.running, argv=("/bin/sh", *PLAN.argv))}, ("command", "unit", "differs")),
        ({"unit": replace(HOST.running, fragment_path="/run/systemd/system/x.service")}, ("unit", "unit", "differs")),
        ({"unit": replace(HOST.running, need_daemon_reload=True)}, ("unit", "unit", "differs")),
        ({"unit": replace(HOST.running, user="root")}, ("user", "unit", "differs")),
        ({"unit": replace(HOST.running, environment_files=("/etc/old.env",))}, ("environment", "unit", "differs")),
        (
            {"unit": replace(HOST.running, environment={**PLAN.environment, "PYTHONPATH": "/opt/other"})},
            ("PYTHONPATH", "unit", "differs"),
        ),
        ({"manager_environ": {"SGLANG_X": "1"}}, ("SGLANG_X", "unit", "differs")),
        # process
        ({"argv": None}, ("process", "process", "missing")),
        ({"argv": tuple(NO_WINDOW)}, ("window", "process", "differs")),
        (
            {"environ": {**PLAN.environment, "SGLANG_SIMULATE_ACC_LEN": "6"}},
            ("SGLANG_SIMULATE_ACC_LEN", "process", "differs"),
        ),
        ({"environ": {**PLAN.environment, "DEPLOYED_PLAN": "old"}}, ("plan", "process", "differs")),
        # echoed
        ({"echo": None, "server_info": None}, ("spec_algorithm", "echoed", "missing")),
        ({"echo": echo(speculative_draft_window_size=None)}, ("window", "echoed", "differs")),
        ({"echo": echo(speculative_num_draft_tokens=16)}, ("block_size", "echoed", "differs")),
        ({"echo": without(echo(), "speculative_draft_window_size")}, ("window", "echoed", "missing")),
        ({"echo": replace(echo(), fields={}, problem="cut")}, ("spec_algorithm", "echoed", "unreadable")),
        # effective
        ({"lines": lines(draft(draft_window_size=None, compact_cache=False))}, (*WINDOW, "differs")),
        ({"lines": lines(draft(draft_window_size=1024))}, (*WINDOW, "differs")),
        ({"lines": lines(draft(compact_cache=False))}, (*WINDOW, "differs")),
        ({"lines": lines(draft(draft_window_size="2048"))}, (*WINDOW, "differs")),
        ({"lines": lines(LINE, draft(draft_window_size=64))}, (*WINDOW, "differs")),
        ({"lines": lines(without(LINE, "draft_window_size"))}, (*WINDOW, "missing")),
        ({"lines": lines()}, ("spec_algorithm", "effective", "missing")),
        (
            {"lines": lines(replace(LINE, fields={}, problem="a piece is missing"))},
            ("spec_algorithm", "effective", "unreadable"),
        ),
        # served
        ({"listener": None}, ("port", "served", "missing")),
        ({"listener": v.Said({"ours": False, "owner": "nginx (pid 9)"}, "")}, ("port", "served", "differs")),
        ({"model_info": v.Said({"model_path": "/other"}, "")}, ("model", "served", "differs")),
        ({"model_info": v.Said({}, "", problem="answered 500")}, ("model", "served", "unreadable")),
        ({"generation": v.Said({}, "", problem="no text")}, ("generation", "served", "unreadable")),
    ],
)
def test_the_first_hop_that_does_not_match_is_named(changes, named):
    assert broken(**changes) == named


def test_what_every_service_has_in_its_environment_is_no_difference():
    common = {"LANG": "C", "INVOCATION_ID": "1", "CACHE_DIRECTORY": "/x", "USER": "sglang", "NOTIFY_SOCKET": "/y"}
    assert broken(environ={**PLAN.environment, **common}, manager_environ={"LANG": "C", "PATH": "/bin"}) is None


def test_a_variable_that_the_engines_own_python_sets_is_found_in_its_workers():
    made_up = {"8": {**PLAN.environment, "SGLANG_SIMULATE_ACC_LEN": "4", "SGLANG_SET_BY_THE_ENGINE": "1"}}
    assert broken(environs=made_up) == ("SGLANG_SIMULATE_ACC_LEN", "process", "differs")
    assert broken(environs={"8": {**PLAN.environment, "SGLANG_SET_BY_THE_ENGINE": "1"}}) is None


def test_a_release_that_was_replaced_at_its_path_says_so_itself():
    info = evidence().server_info
    assert broken(server_info=replace(info, fields={**info.fields, "version": "0.5.12"})) == (
        "sglang_version", "served", "differs",
    )  # fmt: skip
    assert broken(server_info=replace(info, fields={**info.fields, "version": PLAN.release})) is None


def test_a_secret_in_systemds_own_environment_is_named_and_not_shown():
    found = v.judge_unit(PLAN, evidence(manager_environ={"HF_TOKEN": "hf_very_secret"}))
    assert v.first_broken(found).setting == "HF_TOKEN"
    assert "hf_very_secret" not in v.sentence(PLAN, v.first_broken(found), found)


def test_a_unit_that_does_not_start_at_boot_is_shown_and_passes_as_a_warning():
    verdicts = v.judge(PLAN, evidence(unit=replace(HOST.running, unit_file_state="disabled")))
    assert v.first_broken(verdicts) is None
    rows = v.table(PLAN, verdicts, title="", passed=True)["rows"]
    assert [row[1:5] for row in rows if row[0] == "at boot"] == [["enabled", "-", "disabled", "differs*"]]


def test_a_command_line_that_differs_is_shown_from_where_it_does():
    given = make_plan(trust_remote_code=True)
    plan = replace(given, argv=(*given.argv, "--disable-cuda-graph"))

    def found(*argv):
        return v.start_differences(plan, argv, plan.environment)

    assert found(*plan.argv) == []
    assert found(*plan.argv, "--nope", "1") == [("command", "nothing", "--nope 1")]
    assert found(*plan.argv[:-1]) == [("command", "--disable-cuda-graph", "nothing")]
    assert found(*plan.argv[:-1], "--nope") == [("command", "--disable-cuda-graph", "--nope")]
    assert found("/bin/sh", *plan.argv)[0][2].startswith("/bin/sh /opt/sglang/0.5.13/bin/python -m sglang.launch_server --")


def test_an_engine_at_another_path_is_named_beside_the_settings_that_differ():
    older = "/opt/sglang/0.5.11/bin/python"
    assert v.start_differences(PLAN, (older, *PLAN.argv[1:]), PLAN.environment) == [("engine", PLAN.argv[0], older)]
    argv = (older, *NO_WINDOW[1:])
    assert [name for name, _, _ in v.start_differences(PLAN, argv, PLAN.environment)] == ["engine", "window"]


@pytest.mark.parametrize(
    "argv, value",
    [
        (["--window", "1", "--x"], "1"),
        (["--window=1"], "1"),
        (["--window", "1", "--window=2"], "2"),
        (["--window", "1", "--window", "3"], "3"),
        (["--window"], True),
        (["--window", "--x", "1"], True),
        (["--x", "--window"], True),
        (["--windows", "1", "--x=--window"], None),
    ],
)
def test_an_option_has_the_value_that_argparse_would_bind(argv, value):
    assert v.option_value(argv, "--window") == value


def test_a_process_is_read_where_linux_keeps_it():
    (process,) = v.judge_process(PLAN, evidence())
    assert (process.found, process.where) == (PLAN.digest, "/proc/7/cmdline and environ")


@pytest.mark.parametrize("unit, environ", [(HOST.running, None), (None, None), (HOST.running, {})])
def test_what_was_not_read_of_a_process_is_no_process(unit, environ):
    (process,) = v.judge_process(PLAN, evidence(unit=unit, argv=None, environ=environ))
    assert (process.verdict, process.found) == ("missing", "no process")


def test_only_the_variables_of_the_engine_are_looked_at_beside_those_of_the_plan():
    environment = {**PLAN.environment, "LANG": "C", "SGLANG_X": "1"}
    assert v.start_differences(PLAN, PLAN.argv, environment) == [("SGLANG_X", "none", "1")]


def test_the_echo_of_server_info_serves_where_the_line_is_gone():
    fields = {**echo().fields, "internal_states": [{"effective_max_running_requests_per_dp": 4}]}
    assert broken(echo=None, server_info=v.Said(fields, "http://x/server_info")) is None


def test_what_the_engine_grants_less_of_is_shown_and_passes_as_a_warning():
    info = v.Said({"internal_states": [{"effective_max_running_requests_per_dp": 2}]}, "http://x/server_info")
    verdicts = v.judge(PLAN, evidence(server_info=info))
    assert v.first_broken(verdicts) is None
    rows = v.table(PLAN, verdicts, title="", passed=True)["rows"]
    (row,) = [row for row in rows if row[0] == "max_running_requests"]
    said = "internal_states[0] of http://x/server_info effective_max_running_requests_per_dp=2"
    assert row[1:] == ["4", "4", "2", "differs*", said]


def test_every_replica_must_say_it():
    plan = make_plan(dp=2)
    said = {"window": []}
    for speakers in ([0], [0, 1], [0, 0]):
        heard = [replace(LINE, speaker={"DP": dp}) for dp in speakers]
        verdicts = v.judge_effective(plan, evidence(lines=lines(*heard)))
        said["window"].append(next(x.verdict for x in verdicts if x.setting == "window"))
    assert said["window"] == ["missing", "match", "missing"]


def test_only_the_dflash_line_under_ddtree_means_that_dflash_runs():
    plan = make_plan(facts=ddtree(), spec_algorithm="DDTREE", budget=8, topk=4)
    heard = {**lines(LINE), "Initialized DDTree worker.": []}
    verdicts = v.judge_effective(plan, evidence(lines=heard))
    assert [(x.setting, x.verdict) for x in verdicts if not x.passes] == [
        ("spec_algorithm", "missing"), ("budget", "missing"), ("budget", "missing"),
    ]  # fmt: skip


def test_off_is_proved_by_the_engine_saying_none():
    plan = make_plan(window="none")
    for found, verdict in ((None, "match"), (2048, "differs")):
        verdicts = v.judge_effective(
            plan, evidence(lines=lines(draft(draft_window_size=found, compact_cache=found is not None)))
        )
        assert next(x.verdict for x in verdicts if x.setting == "window") == verdict


def sentence(**changes):
    verdicts = v.judge(PLAN, evidence(**changes))
    return v.sentence(PLAN, v.first_broken(verdicts), verdicts)


def test_the_sentence_names_setting_values_place_and_next_command():
    line = replace(draft(draft_window_size=None), text="draft_window_size=None, compact_cache=True")
    assert sentence(lines=lines(line)) == (
        "window: declared 2048, found none (effective hop, differs).\n"
        '  read in  journal 14:03:12: "draft_window_size=None, compact_cache=True"\n'
        "  but      unit, process, echoed carried it\n"
        "  next     journalctl -u sglang-k26.service -b on the host: look for a warning about window; "
        "then declare what this engine can do, or another sglang_version"
    )
    assert "unit: declared loaded, found nothing (unit hop, missing).\n" in sentence(**NOTHING)
    assert "carried it" not in sentence(**NOTHING)
    assert "model: declared /srv/models/tiny-qwen3, the evidence cannot be read (served hop, unreadable)." in sentence(
        model_info=v.Said({}, "http://x/model_info", problem="answered 500")
    )
    assert "read in  'served model_path' said by 0 of 1 replicas in this start\n" in sentence(model_info=None)
    missing = sentence(lines=lines(without(LINE, "draft_window_size")))
    assert missing.startswith("window: declared 2048, nothing says so (effective hop, missing).\n")
    assert sentence(generation=v.Said({}, "http://x", problem="no text")).endswith(
        "  but      unit, process, echoed, effective carried it\n"
        "  next     journalctl -u sglang-k26.service -b on the host; then ansible-playbook deploy.yml"
    )


def test_a_hop_that_was_not_judged_carried_nothing():
    verdicts = v.judge_echoed(PLAN, evidence(echo=echo(speculative_draft_window_size=64)))
    assert "carried it" not in v.sentence(PLAN, v.first_broken(verdicts), verdicts)


def test_a_foreign_drop_in_is_named_with_what_to_do():
    unit = replace(HOST.running, argv=tuple(NO_WINDOW), drop_in_paths=("/etc/systemd/system/sglang-k26.service.d/old.conf",))
    verdicts = v.judge_unit(PLAN, evidence(unit=unit))
    sentence = v.sentence(PLAN, v.first_broken(verdicts), verdicts)
    assert "remove /etc/systemd/system/sglang-k26.service.d/old.conf" in sentence


def test_the_table_shows_what_was_proved_and_where():
    table = v.table(PLAN, v.judge(PLAN, evidence()), title="t", passed=True)
    (row,) = [row for row in table["rows"] if row[0] == "window"]
    assert row == [
        "window",
        "2048",
        "2048",
        "2048",
        "match",
        "journal 14:03:12 draft_window_size=2048, compact_cache=True",
    ]
    assert ["generation", "an answer", "-", "'ok'", "match", "http://x/generate"] in table["rows"]


def test_command_lines_that_differ_only_at_the_start_show_where():
    rest = ["-m", "sglang.launch_server", *["--an-option-of-ours", "value"] * 30]
    plan = replace(PLAN, argv=("/opt/sglang/0.5.13/bin/python", *rest))
    verdicts = v.judge_process(plan, evidence(argv=("/opt/sglang/0.5.23/bin/python", "-I", *rest)))
    _, declared, _, found, *_ = v.table(plan, verdicts, title="", passed=False)["rows"][-1]
    assert declared.startswith("/opt/sglang/0.5.13/bin/python -m ") and len(declared) == 160
    assert found.startswith("/opt/sglang/0.5.23/bin/python -I ") and len(found) == 160
    sentence = v.sentence(plan, v.first_broken(verdicts), verdicts)
    assert "declared /opt/sglang/0.5.13/" in sentence and ", found /opt/sglang/0.5.23/" in sentence
    assert len(sentence.splitlines()[0]) < 900


@pytest.mark.parametrize("at", [0, 1, 60, 159, 160, 200, 398, 399])
def test_wherever_two_long_texts_differ_both_cells_show_it(at):
    text = "x" * 400
    declared, found = v.apart(text[:at] + "1" + text[at + 1 :], text[:at] + "2" + text[at + 1 :])
    assert "1" in declared and "2" in found
    assert len(declared) == len(found) == 160
    assert (declared.startswith("… "), declared.endswith(" …")) == (at > 53, at < 292)


def test_a_text_that_only_goes_on_shows_its_end_and_short_ones_are_whole():
    assert v.apart("x" * 300, "x" * 300 + "end")[1].endswith("xend")
    assert v.apart("x" * 300, "x" * 300) == ("… " + "x" * 158,) * 2
    assert v.apart("2048", "1024") == ("2048", "1024")


def test_a_setting_of_the_environment_is_proved_by_the_process_and_not_echoed():
    plan = make_plan(facts=ddtree(), spec_algorithm="DDTREE", budget=8, topk=4)
    (topk,) = [x for x in v.judge_echoed(plan, evidence()) if x.setting == "topk"]
    assert (topk.verdict, topk.passes) == ("unstated", True)
    differences = v.start_differences(plan, plan.argv, {**plan.environment, "SGLANG_DDTREE_MAX_TOPK": "2"})
    assert differences == [("topk", "4", "2")]
    rows = v.table(plan, [topk], title="", passed=True)["rows"]
    assert ["topk", "4", "unstated", "-", "unstated", "SGLANG_DDTREE_MAX_TOPK is not echoed"] in rows


def test_of_two_lines_that_prove_a_setting_the_first_is_named():
    plan = make_plan(facts=ddtree(), spec_algorithm="DDTREE", budget=8, topk=4)
    worker = v.Said({"tree_budget": 8, "max_tree_nodes": 9}, "journal 14:03:13")
    heard = {**evidence().lines, "Initialized DDTree worker.": [worker]}
    verdicts = v.judge_effective(plan, evidence(lines=heard))
    assert {x.verdict for x in verdicts} == {"match"}
    assert [x.declared for x in verdicts if x.setting == "budget"] == [8, 9]  # the budget, and the nodes it makes
    row = v.table(plan, verdicts, title="", passed=True)["rows"][0]
    said = "journal 14:03:12 Initialized DFLASH draft runner., Initialized DDTree worker."
    assert row == ["spec_algorithm", "DDTREE", "-", "DDTREE", "match", said]


@pytest.mark.parametrize(
    "found, relation, wanted, holds",
    [
        (8, "ge", 8, True),
        (7, "ge", 8, False),
        (None, "ge", 8, False),
        (True, "ge", 1, False),
        ("9", "ge", 8, False),
        (9, "ge", 8, True),
        (9, "le", 8, False),
        (8, "le", 8, True),
        (7, "le", 8, True),
        (8, "le", None, False),
        ("EAGLE", "in", ["NEXTN", "EAGLE"], True),
        ("DFLASH", "in", ["NEXTN", "EAGLE"], False),
        (1, "in", [True], False),
    ],
)
def test_relations(found, relation, wanted, holds):
    assert v._related(found, relation, wanted) is holds


def capacity(*states):
    """The verdict on a context that the pool must hold, for these internal states."""
    witness = {
        "hop": "effective",
        "source": "granted",
        "field": "memory_usage.token_capacity",
        "relation": "ge",
        "value": 4096,
    }
    window = replace(PLAN.expectations[0], setting="served_context", witnesses=(witness,))
    plan = replace(PLAN, expectations=(window,), replicas=len(states))
    (said,) = v.judge_effective(plan, evidence(server_info=v.Said({"internal_states": list(states)}, "http://x")))
    return said.verdict, said.found


def test_a_granted_value_can_lie_deeper():
    assert capacity({"memory_usage": {"token_capacity": 8192}}) == ("match", 8192)
    assert capacity({"memory_usage": {"token_capacity": 1024}}) == ("differs", 1024)
    assert capacity({"memory_usage": {"token_capacity": 8192}}, {"memory_usage": {"token_capacity": 1024}})[0] == "differs"
    assert capacity({"memory_usage": {}})[0] == "missing"
    assert capacity({"memory_usage": None})[0] == "missing"


def info(state=None, **top):
    granted = {"effective_max_running_requests_per_dp": 4, **(state or {})}
    return v.Said({**top, "internal_states": [granted]}, "http://x/server_info")


STARTED = {"weight_version": "default", "speculative_accept_threshold_single": 1.0, "speculative_accept_threshold_acc": 1.0}


def test_what_the_api_changed_since_the_start_is_found():
    started = echo(**STARTED)
    unchanged = info(STARTED, speculative_draft_window_size=2048, weight_version="default")
    assert broken(echo=started, server_info=unchanged) is None
    lower = info({**STARTED, "speculative_accept_threshold_single": 0.4})
    assert broken(echo=started, server_info=lower) == ("speculative_accept_threshold_single", "served", "differs")
    swapped = v.Said({"model_path": PLAN.model, "weight_version": "step-90"}, "http://x/model_info")
    assert broken(echo=started, model_info=swapped) == ("weight_version", "served", "differs")
    assert broken(echo=started, server_info=info(speculative_draft_window_size=64)) == ("window", "served", "differs")
    assert broken(echo=started, server_info=info({"some_other_field": 1}, attention_backend="triton")) is None


def test_a_threshold_that_was_declared_lower_is_no_change():
    declared = {**STARTED, "speculative_accept_threshold_acc": 0.9}
    assert broken(echo=echo(**declared), server_info=info(declared)) is None


def test_a_change_through_the_api_says_how_to_undo_it():
    verdicts = v.judge(PLAN, evidence(echo=echo(**STARTED), server_info=info({"speculative_accept_threshold_acc": 0.1})))
    said = v.sentence(PLAN, v.first_broken(verdicts), verdicts)
    assert "speculative_accept_threshold_acc: declared 1.0, found 0.1 (served hop, differs)" in said
    assert "it was changed through the API: systemctl restart sglang-k26.service" in said


@pytest.mark.parametrize("name", ["SGLANG_API_KEY", "HF_TOKEN"])
def test_a_difference_of_a_secret_is_told_without_the_secret(name):
    plan = replace(PLAN, environment={**PLAN.environment, "HF_TOKEN": "hf_declared"})
    differences = v.start_differences(plan, plan.argv, {**plan.environment, name: "sk-here"})
    assert name in str(differences)
    assert "sk-here" not in str(differences)
    assert "hf_declared" not in str(differences)


def test_a_command_line_with_a_key_is_shown_without_it():
    differences = v.start_differences(PLAN, (*PLAN.argv, "--api-key", "sk-here"), PLAN.environment)
    assert "--api-key" in str(differences)
    assert "sk-here" not in str(differences)


def test_a_line_that_must_not_be_said_is_told_with_its_reason():
    forbidden = {"text": "Simulated acceptance", "severity": "critical", "reason": "it makes acceptance up"}
    plan = with_alarms(PLAN, [forbidden], {"window": ["window is ignored"]})
    assert v.first_broken(v.judge(plan, evidence())) is None
    simulated = v.Said({}, "journal 14:03:12", text="Simulated acceptance is on")
    verdicts = v.judge(plan, evidence(alarms={"Simulated acceptance": simulated}))
    assert v.sentence(plan, v.first_broken(verdicts), verdicts).startswith(
        "the engine says what it must not say: it makes acceptance up (effective hop, forbidden).\n"
        '  read in  journal 14:03:12: "Simulated acceptance is on"\n'
    )
    ignored = v.Said({}, "journal 14:03:12", text="the window is ignored here")
    verdicts = v.contradicted(plan, evidence(alarms={"window is ignored": ignored}))
    assert [(x.setting, x.declared, x.found) for x in verdicts] == [("window", 2048, "otherwise")]


def test_only_what_no_later_line_can_mend_ends_the_waiting():
    later = evidence(lines=lines(), server_info=None)
    assert v.contradicted(PLAN, later) == []
    fewer = v.Said({"internal_states": [{"effective_max_running_requests_per_dp": 2}]}, "http://x/server_info")
    assert v.contradicted(PLAN, replace(later, server_info=fewer)) == []  # a warning
    other = v.contradicted(PLAN, replace(later, echo=echo(speculative_num_draft_tokens=4)))
    assert [(x.setting, x.found, x.says) for x in other] == [("block_size", 4, "speculative_num_draft_tokens=4")]


@pytest.mark.parametrize(
    "accepted, verdict, found",
    [(2.0, "match", 2.0), (1.996, "differs", 2.0), (3, "match", 3), ("3", "missing", None), (None, "missing", None)],
)
def test_the_acceptance_is_at_least_what_was_declared(accepted, verdict, found):
    meta = {"spec_accept_length": accepted, "completion_tokens": 256}
    probe = v.Said({"floor": 2.0, "text": "ok", "meta_info": meta}, "http://x/generate")
    said = v.judge_served(PLAN, evidence(acceptance=probe))[-1]
    assert (said.setting, said.verdict, said.declared, said.found) == ("acceptance", verdict, "at least 2.0", found)
    if accepted in (2.0, 3):
        assert said.says == "spec_accept_length over 256 tokens"


def test_a_probe_of_the_acceptance_without_an_answer_is_unreadable():
    probe = v.Said({"floor": 2.0}, "http://x/generate", problem="answered 500")
    said = v.judge_served(PLAN, evidence(acceptance=probe))[-1]
    assert (said.setting, said.verdict, said.where) == ("acceptance", "unreadable", "http://x/generate: answered 500")


@pytest.mark.parametrize(
    "keyless, verdict",
    [
        (v.Said({}, "http://x/model_info", problem="http://x answered 401 Unauthorized"), "match"),
        (v.Said({}, "http://x/model_info", problem="http://x answered 500"), "differs"),
        (v.Said({"model_path": "/m"}, "http://x/model_info"), "differs"),
    ],
)
def test_an_engine_with_a_key_refuses_who_has_none(keyless, verdict):
    (said,) = [x for x in v.judge_served(PLAN, evidence(keyless=keyless)) if x.setting == "api_key"]
    assert said.verdict == verdict


def test_a_foreign_listener_is_named_with_what_to_do():
    said = sentence(listener=v.Said({"ours": False, "owner": "nginx (pid 9)"}, "port 30000"))
    assert "port: declared sglang-k26.service, found nginx (pid 9)" in said
    assert "  next     stop nginx (pid 9), then ansible-playbook deploy.yml" in said


def rows(**changes):
    verdicts = v.judge(PLAN, evidence(**changes))
    return {row[0]: row[1:] for row in v.table(PLAN, verdicts, title="", passed=False)["rows"]}


def test_the_table_has_a_row_for_each_setting_and_for_what_else_was_asked_or_broken():
    assert list(rows()) == [*(e.setting for e in PLAN.expectations), "generation"]
    assert rows(**NOTHING)["unit"] == ["loaded", "-", "nothing", "missing", "systemd's loaded sglang-k26.service"]


def test_the_table_shows_what_each_hop_said():
    unreadable = replace(echo(), fields={}, problem="the line is cut")
    assert rows(echo=unreadable)["window"][1:4] == ["unreadable", "2048", "unreadable"]
    assert rows(lines=lines())["window"][1:4] == ["2048", "missing", "missing"]
    assert rows(lines=lines(draft(draft_window_size=64)))["window"][1:4] == ["2048", "64", "differs"]
    assert rows(lines=lines(without(LINE, "draft_window_size")))["window"][1:4] == ["2048", "missing", "missing"]
    assert rows(lines=lines(without(LINE, "compact_cache")))["window"][1:4] == ["2048", "2048", "missing"]
    assert rows()["model"][1:4] == ["/srv/models/tiny-qwen3", "/srv/models/tiny-qwen3", "match"]


@pytest.mark.parametrize("length, shown", [(160, "x" * 155 + " last"), (161, "… " + "x" * 153 + " last")])
def test_what_is_long_is_shown_by_its_end(length, shown):
    row = rows(listener=v.Said({"ours": True, "owner": "python"}, "x" * (length - 5) + " last"))["port"]
    assert row[-1] == shown


def test_every_replica_is_proved_by_its_own_line_and_the_model_by_one_answer():
    plan = make_plan(dp=2)
    said = {
        head: [replace(line, speaker={"DP": dp}, where=f"line of {dp}") for dp in (0, 1)]
        for head, (line,) in evidence().lines.items()
    }
    effective = v.judge_effective(plan, evidence(lines=said))
    assert {(x.verdict, x.where) for x in effective} == {("match", "line of 0")}
    (model,) = [x for x in v.judge_served(plan, evidence()) if x.setting == "model"]
    assert model.verdict == "match"


def test_a_change_through_the_api_of_what_is_only_a_warning_is_one():
    started = echo(max_running_requests=4)
    changed = v.Said({**info().fields, "max_running_requests": 2}, "http://x/server_info")
    verdicts = v.judge_served(PLAN, evidence(echo=started, server_info=changed))
    (said,) = [x for x in verdicts if x.setting == "max_running_requests"]
    assert (said.verdict, said.passes, said.says) == ("differs", True, "max_running_requests=2, at the start 4")


def test_what_the_engine_does_not_answer_did_not_change():
    assert broken(echo=echo(**STARTED), model_info=None) == ("model", "served", "missing")


def test_a_unit_without_a_user_runs_as_root():
    said = sentence(unit=replace(HOST.running, user=""))
    assert said.startswith("user: declared sglang, found root (unit hop, differs).")


def test_a_drop_in_that_changes_neither_command_nor_environment_is_named_and_passes():
    paths = ("/etc/systemd/system/sglang-k26.service.d/paths.conf", "/etc/systemd/system/service.d/all.conf")
    verdicts = v.judge(PLAN, evidence(unit=replace(HOST.running, drop_in_paths=paths)))
    assert v.first_broken(verdicts) is None
    rows = v.table(PLAN, verdicts, title="", passed=True)["rows"]
    assert [row[1:5] for row in rows if row[0] == "drop-in"] == [["none", "-", path, "differs*"] for path in paths]
    assert [x.verdict for x in verdicts if x.setting == "unit"] == ["match"]


@pytest.mark.parametrize(
    "severities, early, passes",
    [(("critical", "warning"), True, False), (("warning",), True, True), (("critical",), False, True)],
)
def test_what_was_lost_weighs_as_much_as_what_it_could_have_been(severities, early, passes):
    plan = with_alarms(PLAN, forbidden=[{"text": s, "severity": s, "reason": s} for s in severities])
    gap = v.Said({"before_ready": early}, "journal 14:03:12", problem="Suppressed 9 messages")
    (verdict,) = [x for x in v.judge(plan, evidence(gap=gap)) if x.setting == "forbidden line"]
    assert (verdict.verdict, verdict.passes, verdict.where) == (
        "unreadable",
        passes,
        "journal 14:03:12: Suppressed 9 messages",
    )
    assert v.first_broken(v.judge(with_alarms(PLAN), evidence(gap=gap))) is None
