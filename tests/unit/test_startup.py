"""Watching a start: it ends at decisive evidence, and only this start counts."""

from dataclasses import replace

import pytest
from ansible.module_utils.sglang_host import Owner
from ansible.module_utils.sglang_proof import errors, hearing, startup, verdict
from stage import (
    DRAFT_LINE,
    POOL_LINE,
    READY_LINE,
    UNIT_PATH,
    FakeHost,
    echo_line,
    make_plan,
    start_lines,
    with_alarms,
)

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


def test_an_engine_that_dies_of_its_first_request_is_named_by_its_own_reason():
    class Dies(FakeHost):
        def get(self, url, _key=None, _body=None, _timeout=30):
            if url.endswith("/generate"):
                self.invocations["i1"] += ["Scheduler hit an exception: Traceback (most recent call last):", "KeyError: 7"]
                self.dies("signal")
                raise errors.CannotRead(f"{url}: connection reset")
            return super().get(url)

    assert "ended during this start: KeyError: 7" in failure(Dies(PLAN, start_lines(PLAN)))


def test_what_a_start_up_hook_sets_is_read_from_the_workers():
    host = FakeHost(PLAN, start_lines(PLAN))
    host.processes[9] = (("python", "-c", "spawn_main"), {"SGLANG_SIMULATE_ACC_LEN": "4"})
    assert "SGLANG_SIMULATE_ACC_LEN: declared none, found 4 (process hop, differs)" in failure(host)


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
    kept = hearing.keep(PLAN, prove(host))
    host.invocations["i1"] = []
    assert prove(host, kept=kept).verdicts
    host.starts_again("i2")
    host.processes[8] = host.processes[7]
    assert isinstance(prove(host, seconds=5, kept=kept), startup.Pending)


def test_kept_evidence_of_another_plan_proves_nothing():
    host = FakeHost(PLAN, start_lines(PLAN))
    kept = {**hearing.keep(PLAN, prove(host)), "digest": "another"}
    host.invocations["i1"] = []
    assert isinstance(prove(host, seconds=5, kept=kept), startup.Pending)


def test_nothing_but_what_the_plan_asks_for_is_kept():
    lines = start_lines(PLAN, api_key="sk-very-secret")
    kept = hearing.keep(PLAN, prove(FakeHost(PLAN, lines)))
    assert "sk-very-secret" not in str(kept)


def test_the_unit_alone_can_be_asked_before_a_restart():
    host = FakeHost(PLAN)
    assert startup.check_unit(host, PLAN, UNIT_PATH)
    drop_in = "/etc/systemd/system/sglang-k26.service.d/old.conf"
    host.running = replace(host.running, argv=("/bin/true",), drop_in_paths=(drop_in,))
    with pytest.raises(startup.NotProved, match=drop_in):
        startup.check_unit(host, PLAN, UNIT_PATH)


def demands(**wanted):
    return startup.Demands(**wanted)


def test_a_hang_is_told_before_the_deadline_with_where_and_what_next():
    host = FakeHost(PLAN, [echo_line(PLAN), "[2026-11-29 14:16:01 TP3] sglang is using nccl==2.28.9"])
    said = failure(host, demands=demands(stall=120))
    assert host.clock() - 1000 < LATER / 2
    assert "sglang-k26.service hangs: nothing has moved for 120 s (limit 120 s)" in said
    assert "Phase: arguments resolved, starting workers" in said
    assert '"[2026-11-29 14:16:01 TP3] sglang is using nccl==2.28.9"' in said
    assert "head /proc/{7}/stack" in said


@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_load_that_reads_grows_or_computes_is_slow_and_no_hang(column):
    host = FakeHost(PLAN, [echo_line(PLAN), "[2026-11-29 14:16:01] Load weight begin. avail mem=90.00 GB"])
    per_second = (15_600_000, 15_600_000, 0.9)[column]
    host.usages = lambda now: {"7": [per_second * now if n == column else 0 for n in range(3)]}
    pending = prove(host, demands=demands(stall=120))
    assert pending.phase == "loading weights"
    assert pending.moves


def test_a_hang_is_told_across_the_slices_of_the_wait():
    host = FakeHost(PLAN, [echo_line(PLAN)])
    resume, slices = None, 0
    with pytest.raises(startup.NotProved, match="hangs: nothing has moved for"):
        while slices < 20:
            pending = prove(host, seconds=20, resume=resume, demands=demands(stall=120))
            resume, slices = pending.resume, slices + 1
    assert 5 <= slices <= 7


def test_lines_alone_keep_a_load_from_being_a_hang():
    host = FakeHost(PLAN, [echo_line(PLAN)])
    host.coming = [f"[2026-11-29 14:16:01] part {n}" for n in range(LATER)]
    assert isinstance(prove(host, demands=demands(stall=60)), startup.Pending)


def test_a_ready_engine_that_waits_for_requests_does_not_hang():
    host = FakeHost(PLAN, start_lines(PLAN))
    host.sleep(10_000)
    assert prove(host, demands=demands(stall=60))


def test_a_start_is_held_for_a_while_and_then_asked():
    host = FakeHost(PLAN, start_lines(PLAN))
    asked = []
    answer = host.get
    host.get = lambda url, *rest: (asked.append((host.clock(), url)), answer(url, *rest))[1]
    assert prove(host, demands=demands(hold=5))
    assert min(when for when, _ in asked) == 1005


def test_a_death_while_it_is_held_is_seen_before_it_is_asked():
    host = FakeHost(PLAN, start_lines(PLAN))
    host.coming = [lambda h: h.dies("signal")]
    host.answers = {}
    assert "ended during this start" in failure(host, demands=demands(hold=5))


def test_a_hold_longer_than_the_slice_goes_on_in_the_next():
    host = FakeHost(PLAN, start_lines(PLAN))
    assert prove(host, seconds=2, demands=demands(hold=5)).phase == "ready, held for a while"


def test_an_old_process_is_not_held_again():
    host = FakeHost(PLAN, start_lines(PLAN))
    kept = hearing.keep(PLAN, prove(host))
    host.invocations["i1"] = []
    host.sleep(600)
    assert prove(host, seconds=0, kept=kept, demands=demands(hold=5))
    assert host.clock() == 1600


def test_the_generation_says_how_many_tokens_were_accepted():
    host = FakeHost(PLAN, start_lines(PLAN))
    host.answers["/generate"]["meta_info"] = {"spec_accept_length": 1.142, "spec_verify_ct": 7}
    (generation,) = [x for x in prove(host).verdicts if x.setting == "generation"]
    assert generation.says == "1.14 tokens accepted per step"


@pytest.mark.parametrize(
    "meta, said",
    [
        ({"spec_accept_length": 3.5, "completion_tokens": 256}, None),
        (
            {"spec_accept_length": 1.02, "completion_tokens": 256},
            "acceptance: declared at least 2.0, found 1.02 (served hop",
        ),
        ({}, "acceptance: declared at least 2.0, nothing says so (served hop, missing)"),
    ],
)
def test_a_declared_floor_of_the_acceptance_is_asked_of_a_longer_probe(meta, said):
    host = FakeHost(PLAN, start_lines(PLAN))
    host.answers["/generate"]["meta_info"] = meta
    wanted = demands(acceptance={"floor": 2.0, "tokens": 256})
    if said:
        assert said in failure(host, demands=wanted)
    else:
        assert prove(host, demands=wanted)


NO_SAMPLING = "[2026-11-29 14:16:12 TP0] DFLASH non-greedy verification is unavailable on this build/device."


def forbidding(severity="critical"):
    """PLAN, of an engine that must not ignore the temperature."""
    text = "DFLASH non-greedy verification is unavailable"
    return with_alarms(PLAN, forbidden=[{"text": text, "severity": severity, "reason": "the temperature is ignored"}])


def test_a_forbidden_line_fails_a_start_that_is_otherwise_good():
    host = FakeHost(PLAN, [*start_lines(PLAN)[:2], NO_SAMPLING, *start_lines(PLAN)[2:]])
    with pytest.raises(startup.NotProved) as failed:
        startup.prove(host, forbidding(), UNIT_PATH, until=host.clock() + LATER)
    said = str(failed.value)
    assert "the engine says what it must not say: the temperature is ignored (effective hop, forbidden)" in said
    assert "non-greedy verification is unavailable" in said


def test_a_forbidden_line_that_only_warns_is_kept_and_printed_with_a_star():
    host = FakeHost(PLAN, [*start_lines(PLAN)[:3], NO_SAMPLING, READY_LINE])
    plan = forbidding("warning")
    proved = startup.prove(host, plan, UNIT_PATH, until=host.clock() + LATER)
    kept = hearing.keep(plan, proved)
    host.invocations["i1"] = []
    again = startup.prove(host, plan, UNIT_PATH, until=host.clock() + LATER, kept=kept)
    for outcome in (proved, again):
        rows = verdict.table(plan, outcome.verdicts, title="", passed=True)["rows"]
        assert [row[4] for row in rows if row[0] == "forbidden line"] == ["forbidden*"]


def test_a_forbidden_line_of_an_older_start_is_no_matter():
    host = FakeHost(PLAN, [NO_SAMPLING])
    host.starts_again("i2")
    host.processes[8] = host.processes[7]
    host.invocations["i2"] = start_lines(PLAN)
    assert startup.prove(host, forbidding(), UNIT_PATH, until=host.clock() + LATER)


def test_a_forbidden_line_during_the_first_request_is_heard():
    host = FakeHost(PLAN, start_lines(PLAN))
    answer = host.get

    def complains(url, *rest):
        host.invocations["i1"].append(NO_SAMPLING)
        return answer(url, *rest)

    host.get = complains
    with pytest.raises(startup.NotProved, match="the temperature is ignored"):
        startup.prove(host, forbidding(), UNIT_PATH, until=host.clock() + LATER)


def test_a_line_that_says_the_opposite_makes_the_setting_differ():
    plan = with_alarms(PLAN, contradict={"window": ["draft window is ignored"]})
    line = "[2026-11-29 14:16:12 TP1] The draft window is ignored here."
    host = FakeHost(PLAN, [*start_lines(PLAN)[:3], line, READY_LINE])
    with pytest.raises(startup.NotProved) as failed:
        startup.prove(host, plan, UNIT_PATH, until=host.clock() + LATER)
    assert "window: declared 2048, found otherwise (effective hop, differs)" in str(failed.value)
    assert line in str(failed.value)


def test_the_echo_of_a_forbidden_word_is_no_forbidden_line():
    plan = with_alarms(PLAN, forbidden=[{"text": "tiny-dflash", "severity": "critical", "reason": "a toy"}])
    assert startup.prove(FakeHost(PLAN, start_lines(PLAN)), plan, UNIT_PATH, until=2000)


OOM_KILL = "Out of memory: Killed process 7 (sglang::schedul) total-vm:900kB, anon-rss:800kB, file-rss:0kB"
CHILD_DIED = "[2026-11-29 14:16:09] Subprocess scheduler_0 (pid=7) crashed with exit code -9."


def test_the_kernels_kill_is_told_from_sglangs_own():
    host = FakeHost(PLAN, [echo_line(PLAN), CHILD_DIED])
    host.dies("signal")
    assert "crashed with exit code -9" in failure(host)
    assert "systemd  says signal; the kernel's records name none of its processes" in failure(host)
    host.kernel = [(995, OOM_KILL)]
    assert OOM_KILL in failure(host)
    assert "systemd  says signal; the kernel's records say the same" in failure(host)


def test_the_kernels_kill_of_an_earlier_start_explains_nothing():
    host = FakeHost(PLAN, [echo_line(PLAN), CHILD_DIED])
    host.dies("signal")
    host.kernel = [(900, OOM_KILL)]  # the same process id, before this start
    assert OOM_KILL not in failure(host)


def test_an_engine_that_should_need_a_key_must_refuse_a_request_without_it():
    host = FakeHost(PLAN, start_lines(PLAN))
    with_key = demands(key="sk-1")
    assert "api_key: declared needed, found an answer without a key (served hop, differs)" in failure(host, demands=with_key)
    answer = host.get

    def get(url, key=None, *rest):
        if key != "sk-1":
            raise errors.CannotRead(f"{url} answered 401 Unauthorized")
        return answer(url, key, *rest)

    host.get = get
    assert prove(host, demands=with_key)
    assert "model: declared /srv/models/tiny-qwen3, the evidence cannot be read" in failure(
        host, demands=demands(key="sk-2")
    )


def test_kept_evidence_does_not_hide_what_the_same_start_says_later():
    host = FakeHost(PLAN, start_lines(PLAN))
    kept = hearing.keep(PLAN, prove(host))
    host.invocations["i1"].append(DRAFT_LINE.format(window=64, compact=True))
    assert "window: declared 2048, found 64 (effective hop, differs)" in failure(host, kept=kept)


def test_dropped_messages_of_later_days_are_no_alarm():
    host = FakeHost(PLAN, start_lines(PLAN))
    kept = hearing.keep(PLAN, prove(host))
    host.invocations["i1"] = [None]  # a message that cannot be read
    assert prove(host, kept=kept)


def test_a_declared_floor_that_could_not_be_asked_is_not_passed_over():
    host = FakeHost(PLAN, start_lines(PLAN))
    answer = host.get

    def silent(url, *rest):
        if url.endswith("/server_info"):
            raise errors.CannotRead(f"{url}: timed out")
        return answer(url, *rest)

    host.get = silent
    wanted = startup.Demands(generate=False, acceptance={"floor": 2.0, "tokens": 256})
    assert "acceptance: declared at least 2.0, the evidence cannot be read" in failure(host, demands=wanted)


DROPPED = {"MESSAGE": "Suppressed 9 messages from sglang-k26.service", "N_DROPPED": "9"}


def test_what_was_lost_before_ready_could_be_a_forbidden_line():
    echoed, drafted, pooled, ready = start_lines(PLAN)
    host = FakeHost(PLAN, [echoed, drafted, pooled, DROPPED, ready])
    said = failure(host)
    assert "forbidden line: declared none, the evidence cannot be read (effective hop, unreadable)" in said
    assert "Suppressed 9 messages from sglang-k26.service" in said
    assert "LogRateLimitIntervalSec=0 must win" in said


def test_what_was_lost_before_ready_is_no_matter_where_no_line_is_forbidden():
    plan = with_alarms(PLAN)
    host = FakeHost(plan, [*start_lines(PLAN)[:3], DROPPED, READY_LINE])
    assert startup.prove(host, plan, UNIT_PATH, until=host.clock() + LATER)


def test_what_was_lost_after_ready_is_shown_and_passes():
    host = FakeHost(PLAN, [*start_lines(PLAN), DROPPED])
    proved = prove(host)
    kept = hearing.keep(PLAN, proved)
    host.invocations["i1"] = [DROPPED]  # later the ready line is gone
    for outcome in (proved, prove(host, kept=kept)):
        rows = verdict.table(PLAN, outcome.verdicts, title="", passed=True)["rows"]
        ((_, _, _, _, kind, where),) = [row for row in rows if row[0] == "forbidden line"]
        assert kind == "unreadable*"
        assert "Suppressed 9 messages" in where


def test_a_hang_that_computes_is_suspected_first_and_believed_late():
    host = FakeHost(PLAN, [echo_line(PLAN), "[2026-11-29 14:16:01 TP3] sglang is using nccl==2.28.9"])
    host.usages = lambda now: {"7": [0, 0, 8 * now]}
    pending = prove(host, seconds=250, demands=demands(stall=60, spin=280))
    assert "7.8 CPUs busy, and nothing read, taken or said for" in pending.moves
    assert pending.moves.endswith("s: a hang?")
    said = failure(host, resume=pending.resume, demands=demands(stall=60, spin=280))
    assert "hangs: it computes and does not get on for 280 s (limit 280 s), no byte read, no memory taken" in said
    assert "nccl==2.28.9" in said and "sglang_service_spin_timeout" in said


def test_computing_alone_is_no_hang_where_no_limit_is_declared():
    host = FakeHost(PLAN, [echo_line(PLAN)])
    host.usages = lambda now: {"7": [0, 0, 8 * now]}
    assert isinstance(prove(host, demands=demands(stall=60)), startup.Pending)
