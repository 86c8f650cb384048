"""Watching a start: it ends at decisive evidence, and only this start counts."""

from dataclasses import replace

import pytest
from ansible.module_utils.sglang_host import Owner
from ansible.module_utils.sglang_proof import startup
from stage import DRAFT_LINE, POOL_LINE, READY_LINE, UNIT_PATH, FakeHost, echo_line, make_plan, start_lines

PLAN = make_plan()
LATER = 300  # seconds of the fake host's clock


def prove(host, seconds=LATER, **kwargs):
    return startup.prove(host, PLAN, UNIT_PATH, until=host.clock() + seconds, **kwargs)


def failure(host, **kwargs):
    with pytest.raises(startup.NotProved) as failed:
        prove(host, **kwargs)
    return str(failed.value)


def test_a_good_start_is_proved_with_what_was_said_and_when():
    proved = prove(FakeHost(PLAN, start_lines(PLAN)))
    assert proved.start.invocation == "i1"
    assert all(verdict.verdict == "match" for verdict in proved.verdicts)


def test_lines_that_come_later_are_waited_for():
    host = FakeHost(PLAN)
    host.coming = start_lines(PLAN)
    assert prove(host).seconds > 0


def test_a_slice_that_ends_early_says_how_far_the_load_is():
    host = FakeHost(PLAN, [echo_line(PLAN)])
    pending = prove(host, seconds=5)
    assert isinstance(pending, startup.Pending)
    assert pending.phase == "arguments resolved, starting workers"


def test_an_older_good_start_does_not_excuse_a_newer_bad_one():
    host = FakeHost(PLAN, start_lines(PLAN))
    host.starts_again("i2")
    host.processes[8] = host.processes[7]
    host.invocations["i2"] = start_lines(PLAN, window=None)
    assert "window: declared 2048, found none (effective hop, differs)" in failure(host)


def test_an_older_good_start_does_not_prove_one_that_has_said_nothing():
    host = FakeHost(PLAN, start_lines(PLAN))
    host.starts_again("i2")
    host.processes[8] = host.processes[7]
    assert isinstance(prove(host, seconds=5), startup.Pending)


def test_a_contradiction_in_the_echo_ends_the_wait_at_once():
    host = FakeHost(PLAN, [echo_line(PLAN, speculative_draft_window_size=None)])
    assert "window: declared 2048, found none (echoed hop, differs)" in failure(host)
    assert host.clock() == 1000.0


def test_a_contradiction_that_is_still_to_come_ends_the_wait():
    host = FakeHost(PLAN, [echo_line(PLAN)])
    host.coming = [DRAFT_LINE.format(window=1024, compact=True)]
    assert "found 1024 (effective hop, differs)" in failure(host)
    assert host.clock() < 1000.0 + LATER


def test_ready_without_the_draft_line_proves_nothing():
    host = FakeHost(PLAN, [echo_line(PLAN), POOL_LINE, READY_LINE])
    assert "spec_algorithm: declared DFLASH, nothing says so (effective hop, missing)" in failure(host)


def test_a_line_that_cannot_be_read_is_no_missing_line():
    host = FakeHost(PLAN, [echo_line(PLAN), POOL_LINE, None, READY_LINE])
    assert "the evidence cannot be read (effective hop, unreadable)" in failure(host)


def test_a_new_invocation_during_the_wait_is_a_failed_start():
    host = FakeHost(PLAN, [echo_line(PLAN)])
    host.coming = [lambda h: h.starts_again()]
    assert "ended during this start" in failure(host)


def test_a_death_during_the_wait_gives_the_engines_own_reason():
    host = FakeHost(PLAN, [echo_line(PLAN)])
    host.coming = [
        "[2026-11-29 14:16:09] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/opt/x.py", line 1, in f',
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "[2026-11-29 14:16:10] Received sigquit from a child process. It usually means the child failed.",
        lambda h: h.dies("signal"),
    ]
    said = failure(host)
    assert "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static." in said
    assert "sigquit" not in said


def test_a_unit_without_a_process_says_why_it_ended():
    host = FakeHost(PLAN, ["usage: sglang serve [-h]", "sglang serve: error: unrecognized arguments: --nope"])
    host.dies()
    assert "unrecognized arguments: --nope" in failure(host)


def test_a_death_right_after_ready_is_seen():
    host = FakeHost(PLAN, start_lines(PLAN))
    answer = host.get

    def dies_on_its_first_request(url, *rest):
        host.dies("signal")
        return answer(url, *rest)

    host.get = dies_on_its_first_request
    assert "ended during this start" in failure(host)


def test_who_answers_on_the_port_must_be_this_engine():
    host = FakeHost(PLAN, start_lines(PLAN))
    host.owner = Owner(False, "python3 (pid 71, sglang.service)", "sglang.service")
    said = failure(host)
    assert "port: declared sglang-k26.service, found python3 (pid 71, sglang.service) (served hop, differs)" in said
    assert "stop python3 (pid 71, sglang.service)" in said


def test_nobody_listens_is_waited_for_and_then_said():
    host = FakeHost(PLAN, start_lines(PLAN))
    host.owner = None
    assert isinstance(prove(host, seconds=5), startup.Pending)
    assert "nobody listens" in failure(host)


def test_an_empty_generation_is_no_generation():
    host = FakeHost(PLAN, start_lines(PLAN))
    host.answers["/generate"] = {"text": ""}
    assert "generation: declared an answer, the evidence cannot be read" in failure(host)
    assert prove(host, demands=startup.Demands(generate=False))


def test_a_process_that_carries_another_plan_is_found_before_its_log_is_read():
    host = FakeHost(PLAN, start_lines(PLAN))
    argv, environment = host.processes[7]
    host.processes[7] = (tuple(a if a != "2048" else "1024" for a in argv), environment)
    assert "window: declared 2048, found 1024 (process hop, differs)" in failure(host)


def test_kept_evidence_proves_the_same_start_after_its_lines_were_rotated_away():
    host = FakeHost(PLAN, start_lines(PLAN))
    kept = startup.keep(PLAN, prove(host))
    host.invocations["i1"] = []
    assert prove(host, kept=kept).verdicts
    host.starts_again("i2")
    host.processes[8] = host.processes[7]
    assert isinstance(prove(host, seconds=5, kept=kept), startup.Pending)


def test_kept_evidence_of_another_plan_proves_nothing():
    host = FakeHost(PLAN, start_lines(PLAN))
    kept = {**startup.keep(PLAN, prove(host)), "digest": "another"}
    host.invocations["i1"] = []
    assert isinstance(prove(host, seconds=5, kept=kept), startup.Pending)


def test_nothing_but_what_the_plan_asks_for_is_kept():
    lines = start_lines(PLAN, api_key="sk-very-secret")
    kept = startup.keep(PLAN, prove(FakeHost(PLAN, lines)))
    assert "sk-very-secret" not in str(kept)


def test_the_unit_alone_can_be_asked_before_a_restart():
    host = FakeHost(PLAN)
    assert startup.check_unit(host, PLAN, UNIT_PATH)
    drop_in = "/etc/systemd/system/sglang-k26.service.d/old.conf"
    host.running = replace(host.running, argv=("/bin/true",), drop_in_paths=(drop_in,))
    with pytest.raises(startup.NotProved, match=drop_in):
        startup.check_unit(host, PLAN, UNIT_PATH)
