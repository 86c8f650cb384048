"""What a careful person reads from a start-up log: real runs, and the shapes that logs take on their way."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
from ansible.module_utils.sglang_proof.journal import Record, read_log
from ansible.module_utils.sglang_proof.startup_log import READY, StartupLog, Unreadable, parse_echo, read_prefix
from hypothesis import given
from hypothesis import strategies as st

CORPUS = Path(__file__).with_name("corpus")
DRAFT = "Initialized DFLASH draft runner."
POOL = "max_total_num_tokens="
STAMP = "[2026-05-20 10:00:00] "
DRAFT_LINE = (
    f"{DRAFT} attention_backend=triton, model=DFlashDraftModel, block_size=8, draft_window_size=2048, compact_cache=True"
)


def read(*lines):
    """Read a log of these lines: texts are the service's, records are taken as they are."""
    log = StartupLog((DRAFT, POOL))
    for line in lines:
        log.add(line if isinstance(line, Record) else Record(line))
    return log


def read_file(name):
    log = StartupLog((DRAFT, POOL))
    with (CORPUS / name).open("rb") as lines:
        for record in read_log(lines):
            log.add(record)
    return log


# Real runs

OLD, NEW = "speculative_dflash_draft_window_size", "speculative_draft_window_size"

# log: fields of server_args, its window's name, window, asked and granted requests, tokens of the pool
STARTS = {
    "0.5.11-window": (368, OLD, 64, 4, 4, 4096),
    "0.5.11-nowindow": (368, OLD, None, 4, 4, 4096),
    "0.5.11-window-logms": (368, OLD, 64, 4, 4, 4096),
    "0.5.11-tp2-window": (368, OLD, 64, 4, 4, 4096),
    "0.5.11-maxreq5000": (368, OLD, None, 5000, 2048, 4096),
    "0.5.12-window": (381, NEW, 64, 4, 4, 4096),
    "0.5.13-nowindow": (396, NEW, None, 4, 4, 4096),
    "0.5.14-window": (404, NEW, 64, 4, 4, 4096),
    "0.5.15-window": (422, NEW, 64, 4, 4, 4096),
    "0.5.16-window": (445, NEW, 64, 4, 4, 4096),
    "0.5.17-maxreq5000": (458, NEW, None, 5000, 2048, 4096),
    "0.5.18-window": (472, NEW, 64, 4, 4, 4096),
    "0.5.19-nowindow": (488, NEW, None, 4, 4, 4096),
    "0.5.20-nowindow": (499, NEW, None, 4, 4, 4096),
    "0.5.21-window": (519, NEW, 64, 4, 4, 4096),
    "0.5.22-nowindow": (536, NEW, None, 4, 4, 4096),
    "0.5.23-window": (546, NEW, 64, 4, 4, 4096),
    "0.5.23-context-larger-than-pool": (546, NEW, 64, 4, 4, 1024),
    "0.5.23-dp2-window": (546, NEW, 64, 4, 4, 4096),
}
SPEAKERS = {"0.5.11-tp2-window": [{"TP": 0}], "0.5.23-dp2-window": [{"DP": 1}, {"DP": 0}]}


@pytest.mark.parametrize("name", STARTS)
def test_a_real_start_reads_as_a_person_reads_it(name):
    fields, window_name, window, asked, granted, tokens = STARTS[name]
    log = read_file(f"{name}.log")
    echo = log.echo
    assert echo.problem is None
    assert echo.release == name.split("-")[0]
    assert len(echo.values) + len(echo.unreadable) == fields
    assert (echo.values[window_name], echo.values["max_running_requests"]) == (window, asked)
    assert echo.values["speculative_algorithm"] == "DFLASH"

    draft, pool = log.statements[DRAFT], log.statements[POOL]
    speakers = SPEAKERS.get(name, [{}])
    assert [statement.speaker for statement in draft] == [statement.speaker for statement in pool] == speakers
    for statement in draft:
        assert statement.fields == {
            "attention_backend": "triton",
            "model": "DFlashDraftModel",
            "block_size": 8,
            "draft_window_size": window,
            "compact_cache": window is not None,
        }
    for statement in pool:
        read_off = {"max_total_num_tokens": tokens, "max_running_requests": granted, "context_len": 2048}
        assert read_off.items() <= statement.fields.items()
        assert statement.fields["available_cpu_mem"].endswith(" GB")

    assert log.ready.text.endswith("The server is fired up and ready to roll!")
    assert (log.unreadable, log.suppressed) == ([], [])
    assert log.failure() is None, "a healthy run that was stopped did not fail, whatever tracebacks it printed"


def test_values_that_are_no_literals_are_unreadable_and_spoil_nothing_else():
    echo = read_file("0.5.15-window.log").echo
    assert echo.unreadable == {"cuda_graph_config"}
    assert echo.values["port"] == 30123
    assert "max_bs" not in echo.values, "a nested name is no setting"


def test_a_plain_server_has_no_draft_line():
    log = read_file("0.5.11-plain.log")
    assert log.statements[DRAFT] == []
    assert log.echo.values["speculative_algorithm"] is None
    assert log.statements[POOL][0].fields["max_running_requests"] == 2048


def test_log_level_warning_leaves_no_evidence_and_no_failure():
    log = read_file("0.5.23-window-loglevel-warning.log")
    assert (log.echo, log.ready, log.statements[DRAFT], log.failure()) == (None, None, [], None)


FAILURES = {
    "0.5.11-fail-badflag": ("bad_flag", "unrecognized arguments: --no-such-flag 1"),
    "0.5.11-fail-window-wrong-flag-name": ("bad_flag", "arguments: --speculative-draft-window-size 64"),
    "0.5.23-fail-badflag": ("bad_flag", "unrecognized arguments: --no-such-flag 1"),
    "0.5.11-fail-window-lt-block": ("refused", "window_size=4, block_size=8."),
    "0.5.23-fail-window-lt-block": ("refused", "window_size=4, block_size=8."),
    "0.5.23-fail-unknown-algorithm": ("refused", "Unknown speculative algorithm name: DFLASHX"),
    "0.5.23-fail-no-gpu-no-device": ("exception", "RuntimeError: No accelerator (CUDA"),
    "0.5.11-fail-missing-draft-dir": ("missing_model", "'/srv/models/absent-draft'"),
    "0.5.19-fail-missing-draft-dir": ("missing_model", "'/srv/models/absent-draft'"),
    "0.5.23-fail-missing-model-dir": ("missing_model", "'/srv/models/absent'"),
    "0.5.11-fail-port-in-use": ("port", "('127.0.0.1', 30111): address already in use"),
    "0.5.11-fail-tp2-omp-bind": ("exception", "AssertionError: SGLANG_CPU_OMP_THREADS_BIND is not set"),
    "0.5.23-fail-tp2-omp-bind": ("exception", "AssertionError: SGLANG_CPU_OMP_THREADS_BIND is not set"),
    "0.5.11-fail-crash-during-warmup-verify": ("exception", "AttributeError: 'NoneType' object"),
    "0.5.15-fail-crash-after-uvicorn-during-warmup": ("exception", "no attribute 'view'"),
    "0.5.23-fail-crash-after-uvicorn-during-warmup": ("exception", "NotImplementedError: sgl_kernel stub"),
    "0.5.19-fail-deprecated-window-flag-accepted-then-no-gpu": ("exception", "'_cuda_setDevice'"),
    "0.5.11-fail-scheduler-sigkilled-like-oom": ("exited", "crashed with exit code -9"),
    "0.5.23-fail-scheduler-sigkilled-like-oom": ("exited", "crashed with exit code -9"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_start_names_its_true_cause(name):
    kind, words = FAILURES[name]
    cause = read_file(f"{name}.log").failure()
    assert (cause.kind, words in cause.sentence) == (kind, True), cause
    assert "\n" not in cause.sentence
    assert cause.record.cursor.startswith("line ")


# Causes in the shapes of larger hosts

TRACEBACK = "Traceback (most recent call last):"
HIT = f"Scheduler hit an exception: {TRACEBACK}"
FRAMES = ('  File "/opt/sglang/scheduler.py", line 7, in run', "    self.step()")
SIGQUIT = STAMP + "Received sigquit from a child process. It usually means the child failed."


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        ("memory", "ValueError: Not enough memory. Please try to increase --mem-fraction-static."),
        ("port", "ValueError: Port is already in use. dist_init_port=30201"),
        (
            "unreadable_model",
            "PermissionError: [Errno 13] Permission denied: '/models/k/model-1.safetensors'",
        ),
        ("missing_model", "FileNotFoundError: [Errno 2] No such file: '/models/k/model-1.safetensors'"),
        ("exception", "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"),
        ("exception", "RuntimeError: NCCL error: unhandled system error"),
    ],
)
def test_the_kind_of_an_exception_in_a_scheduler(kind, line):
    log = read(f"[2026-05-20 10:00:00 TP3] {HIT}", *FRAMES, line, "", SIGQUIT)
    assert (log.failure().kind, log.failure().sentence) == (kind, line)


def test_the_first_rank_that_failed_is_the_cause_and_the_others_are_noise():
    log = read(
        f"[2026-05-20 10:00:00 DP1 TP2] {HIT}",
        *FRAMES,
        "RuntimeError: CUDA error: device-side assert triggered",
        "CUDA kernel errors might be asynchronously reported at some other API call",
        f"[2026-05-20 10:00:01 DP0 TP0] {HIT}",
        *FRAMES,
        "torch.distributed.DistBackendError: NCCL communicator was aborted",
        SIGQUIT,
        TRACEBACK,
        *FRAMES,
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -3). Maybe the OOM killer.",
    )
    assert log.failure().sentence == "RuntimeError: CUDA error: device-side assert triggered"


def test_an_exception_without_words_is_told_with_its_place():
    log = read(STAMP + HIT, *FRAMES, "AssertionError", SIGQUIT)
    assert log.failure().sentence == 'AssertionError (File "/opt/sglang/scheduler.py", line 7, in run)'


def test_a_cause_shows_no_secret():
    log = read("usage: sglang serve [-h]", "sglang serve: error: unrecognized arguments: --hf-token sk-secret")
    assert log.failure().sentence.endswith("arguments: --hf-token [REDACTED]")


def test_a_failed_warm_up_is_a_cause_of_its_own():
    log = read(
        STAMP + "server_args={'tp_size': 1}",
        f"{STAMP}Initialization failed. warmup error: {TRACEBACK}",
        *FRAMES,
        "AssertionError: res=<Response [503]>, res.text=''",
        SIGQUIT,
    )
    assert log.failure().kind == "warmup"
    assert "<Response [503]>" in log.failure().sentence


def test_a_traceback_before_further_progress_was_not_the_end():
    log = read(TRACEBACK, *FRAMES, "ImportError: no module named optional", STAMP + "server_args={'tp_size': 1}")
    assert log.failure() is None


DIED = Record(STAMP + "Subprocess scheduler_0 (pid=77) crashed with exit code -9. Triggering SIGQUIT …", pid=70)


def manager(text):
    return Record(text, origin="manager")


def kernel(pid):
    return Record(f"Out of memory: Killed process {pid} (sglang::schedul) total-vm:1kB", origin="kernel")


def test_a_process_that_the_kernel_killed_is_told_apart_from_one_that_died():
    exited = manager("sglang.service: Main process exited, code=killed, status=9/KILL")
    assert read(DIED, exited).failure().kind == "exited"
    assert read(DIED, exited, kernel(77)).failure().kind == "killed_by_kernel"
    assert read(DIED, exited, kernel(5)).failure().kind == "exited", "the kernel killed somebody else's process"
    assert read(DIED, manager("x.service: Failed with result 'oom-kill'.")).failure().kind == "killed_by_kernel"


def test_only_the_kernel_or_systemd_can_say_that_the_kernel_killed():
    log = read("Out of memory: Killed process 77 (sglang::schedul)", "x.service: Failed with result 'oom-kill'.")
    assert log.failure() is None


def test_a_start_that_never_reached_the_engine_has_the_reason_of_systemd():
    log = read(
        manager("sglang.service: Failed at step EXEC spawning /opt/absent/python: No such file or directory"),
        manager("sglang.service: Main process exited, code=exited, status=203/EXEC"),
    )
    assert log.failure().kind == "exited"
    assert "/opt/absent/python" in log.failure().sentence


def test_what_follows_our_own_stop_is_no_failure():
    stop = manager("Stopping sglang.service - SGLang...")
    exited = manager("sglang.service: Main process exited, code=killed, status=9/KILL")
    assert read(stop, STAMP + HIT, *FRAMES, "RuntimeError: shutting down", exited).failure() is None


# Server_args=


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("""'{"a": 1, "tp_size": 9}'""", '{"a": 1, "tp_size": 9}'),
        (r"""'it\'s, (x=1) [y'""", "it's, (x=1) [y"),
        ("{'decode': {'tp_size': 9, 'backend': 'x'}}", {"decode": {"tp_size": 9, "backend": "x"}}),
        ("[1, 2.5, -1, None, True]", [1, 2.5, -1, None, True]),
        ("[]", []),
        ("b'it, (x=1)'", b"it, (x=1)"),
    ],
)
def test_values_are_read_by_grammar(printed, value):
    for form in (f"ServerArgs(_a={printed}, tp_size=2)", f"{{'_a': {printed}, 'tp_size': 2}}"):
        assert parse_echo(form) == ({"_a": value, "tp_size": 2}, frozenset())


@pytest.mark.parametrize(
    "printed",
    [
        "CudaGraphConfig(decode=Phase(tp_size=9, bs=[1, 2]))",
        "[LoRARef(lora_id='x, tp_size=9', pinned=False)]",
        "<enum 'KernelPreference'>",
        "<Component.FULL: 'it', tp_size=9>",
        "<|MASK|>",
        "<it's>",
        "x<y",
        "<Phase <Inner <Leaf>>, tp_size=9>",
        "torch.bfloat16",
        "'the start...the end'",
    ],
)
def test_a_value_that_is_no_literal_is_unreadable_alone(printed):
    for form in (
        f"ServerArgs(_a={printed}, tp_size=2, b='x')",
        f"{{'_a': {printed}, 'tp_size': 2, 'b': 'x'}}",
    ):
        assert parse_echo(form) == ({"tp_size": 2, "b": "x"}, {"_a"})


@pytest.mark.parametrize(
    "text",
    [
        "{'model_path': '/srv/x', 'tp_size': 2",  # cut after a value
        "{'model_path': '/srv/x', 'tp_",  # cut in a name
        "{'model_path': '/sr",
        "{'model_path': '/srv/x'...'tp_size': 2}",  # elided
        "{'bs': [1, 2, ...], 'tp_size': 2}",
        "{'bs': [1, 2, …, 'tp_size': 2}",
        "{'a': (1], 'tp_size': 2}",
        "{'tp_size': 2} [truncated]",
        "{'tp_size': 2, 'tp_size': 4}",
        "{'tp_size': 2, 'dp'}",
        "ServerArgs(model_path='/srv/x', tp_size=2",
        "ServerArgs(model_path='/srv/x', tp_size=",
        "ServerArgs(tp_size=2, ...)",
        "ServerArgs()",
        "{}",
        "namespace(tp_size=2)",
        "",
    ],
)
def test_a_line_that_is_not_whole_is_unreadable_with_a_reason(text):
    log = read(f"{STAMP}server_args={text}")
    assert (log.echo.values, bool(log.echo.problem)) == ({}, True)
    assert log.unreadable[0].problem == log.echo.problem


@pytest.mark.parametrize(
    "text, problem",
    [
        ("{'a': [(1], 'tp_size': 2}", "']' where ')' was expected: parts of the line are missing"),
        ("{'a': ([1), 'tp_size': 2}", "')' where ']' was expected: parts of the line are missing"),
        ("{'a': <x (b]>}", "']' where ')' was expected: parts of the line are missing"),
        ("{'a': 1} 2", "text follows the closing bracket"),
        ("{'a': 1, 'a': 2}", "a is there twice"),
        ("{'a': 1, b}", "what follows a is no field"),
        ("[1]", "neither ServerArgs(…) nor a dict, but …"),
        ("namespace(a=1)", "neither ServerArgs(…) nor a dict, but namespace…"),
    ],
)
def test_a_line_that_is_not_whole_says_what_is_missing(text, problem):
    assert read(f"{STAMP}server_args={text}").echo.problem == problem


def test_a_wrapped_line_gives_nothing_of_its_pieces():
    line = f"{STAMP}server_args={{'tp_size': 2, {', '.join(f'{chr(39)}f{n}{chr(39)}: {n}' for n in range(99))}}}"
    log = read(*(line[at : at + 304] for at in range(0, len(line), 304)))
    assert "cut or wrapped" in log.echo.problem


@pytest.mark.parametrize(
    "decoy",
    [
        "{'server_args_fa4_gate': True, 'tp_size': 9}",
        "{'model_path': '/srv/x', 'tp_size': 9}",
        f"{STAMP}Server Arguments: server_args={{'tp_size': 9}}",
        f"{STAMP}Request(text=\"server_args={{'tp_size': 9}}\")",
        "[2026-05-20 10:00:00 TP3] server_args={'tp_size': 9}",  # a rank is not the launcher
        f"ran with {DRAFT_LINE}",
        f"{STAMP}'{DRAFT_LINE}'",
        f"{STAMP}waiting for: The server is fired up and ready to roll!",
        "[2026-05-20 10:00:00 TP0] The server is fired up and ready to roll!",
    ],
)
def test_a_decoy_is_not_taken(decoy):
    log = read(decoy)
    assert (log.echo, log.ready, log.statements[DRAFT], log.unreadable) == (None, None, [], [])


def test_two_echoes_that_differ_are_an_error_and_two_that_agree_are_one():
    two, four = STAMP + "server_args={'tp_size': 2}", STAMP + "server_args={'tp_size': 4}"
    assert read(two, two).echo.values == {"tp_size": 2}
    log = read(two, four)
    assert (log.echo.values, "more than once" in log.echo.problem) == ({}, True)
    assert [echo.values["tp_size"] for echo in log.echoes] == [2, 4]


# Statements


def test_values_of_a_statement_have_types():
    log = StartupLog(("Ready.",))
    log.add(Record("Ready. i=3, f=1.5, e=1e-5, n=None, t=True, s=<|MASK|>, bs=[1, 2], mem=79.10 GB, neg=-1"))
    (statement,) = log.statements["Ready."]
    assert statement.fields == {
        "i": 3, "f": 1.5, "e": 1e-5, "n": None, "t": True, "s": "<|MASK|>",
        "bs": "[1, 2]", "mem": "79.10 GB", "neg": -1,
    }  # fmt: skip


@pytest.mark.parametrize("printed, value", [("9" * 40, int("9" * 40)), ("9" * 41, "9" * 41), ("-.5", -0.5), ("1.", 1.0)])
def test_a_number_of_a_statement_is_one_that_is_short(printed, value):
    log = StartupLog(("Ready.",))
    log.add(Record(f"Ready. n={printed}"))
    assert log.statements["Ready."][0].fields == {"n": value}


@pytest.mark.parametrize(
    "fields, problem",
    [
        ("a=1, b=2, a=3", "a is there twice"),
        ("a=1, " + "x" * 50, f"no key=value: {'x' * 40!r}"),
        ("a=1, b=", "no key=value: 'b='"),
        ("", "no fields"),
    ],
)
def test_a_statement_that_is_none_says_why(fields, problem):
    log = StartupLog(("Ready.",))
    log.add(Record(f"Ready. {fields}"))
    assert log.statements["Ready."][0].problem == problem


@pytest.mark.parametrize("length", range(len("Initialized DF"), len(DRAFT_LINE)))
def test_a_cut_draft_line_is_a_statement_that_can_not_be_read(length):
    (statement,) = read(STAMP + DRAFT_LINE[:length]).statements[DRAFT]
    assert (statement.fields, bool(statement.problem)) == ({}, True)


@pytest.mark.parametrize("gone", ["model=DFlashDraftModel", "size=8, draft_window_", "runner. attention"])
@pytest.mark.parametrize("mark", ["...", "…"])
def test_an_elided_draft_line_is_a_statement_that_can_not_be_read(gone, mark):
    log = read(STAMP + DRAFT_LINE.replace(gone, mark))
    assert (log.statements[DRAFT][0].fields, len(log.unreadable)) == ({}, 1)


@pytest.mark.parametrize(
    ("prefix", "speaker"),
    [
        ("", {}),
        ("[2026-05-20 10:00:00] ", {}),
        ("[2026-05-20 10:00:00.123 TP3] ", {"TP": 3}),
        ("[10:00:00 TP3] ", {"TP": 3}),
        ("[2026-05-20 10:00:00 DP0 TP1 EP1] ", {"DP": 0, "TP": 1, "EP": 1}),
        ("[2026-05-20 10:00:00 PP1 TP0] ", {"PP": 1, "TP": 0}),
        ("[2026-05-20 10:00:00 ATTN_CP0 MOE_DP1 TP12] ", {"ATTN_CP": 0, "MOE_DP": 1, "TP": 12}),
    ],
)
def test_the_prefix_says_who_speaks(prefix, speaker):
    assert read_prefix(prefix + "body [1] x") == (speaker, "body [1] x", bool(prefix))
    (statement,) = read(prefix + DRAFT_LINE).statements[DRAFT]
    assert (statement.speaker, statement.fields["draft_window_size"]) == (speaker, 2048)


def test_a_record_without_text_and_a_note_of_dropped_messages_are_kept():
    lost, dropped = Record(None, problem="null"), Record("Suppressed 9 messages from x", origin="journald")
    log = read(lost, dropped)
    assert (log.unreadable, log.suppressed) == ([lost], [dropped])


OVERRIDDEN = "Overlap scheduler is disabled because of x."


@pytest.mark.parametrize(
    "lines, told",
    [
        ([STAMP + OVERRIDDEN, STAMP + OVERRIDDEN], [OVERRIDDEN]),
        ([STAMP + OVERRIDDEN, STAMP + "Window was reduced to 8"], [OVERRIDDEN, "Window was reduced to 8"]),
        ([OVERRIDDEN], []),  # the text of somebody else's print
        ([STAMP + READY, STAMP + OVERRIDDEN], []),  # told of a request
        ([STAMP + "Load weight begin."], []),
    ],
)
def test_what_the_engine_made_otherwise_until_it_was_ready_is_told_once(lines, told):
    assert read(*lines).overrides == told


# Properties

NAMES = st.text(string.ascii_lowercase + "_", min_size=1, max_size=12)
TEXTS = st.text(max_size=30).filter(lambda text: "..." not in text and "…" not in text)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, min_size=1), st.data())
def test_what_is_printed_in_either_form_is_read_back(settings, data):
    as_call = f"ServerArgs({', '.join(f'{name}={value!r}' for name, value in settings.items())})"
    for printed in (as_call, repr(settings)):
        assert parse_echo(printed) == (settings, frozenset())
        cut = data.draw(st.integers(0, len(printed) - 1))
        with pytest.raises(Unreadable):
            parse_echo(printed[:cut])


@given(st.lists(st.binary() | st.text().map(lambda text: text.encode("utf-8", "replace"))))
def test_arbitrary_bytes_never_raise_and_never_are_evidence(lines):
    log = read(*read_log(lines))
    log.failure()
    assert (log.echo, log.ready, log.statements) == (None, None, {DRAFT: [], POOL: []})


@given(st.text(alphabet="'\"\\()[]{}<>,=:.… ab1[REDACTED]", max_size=60))
def test_arbitrary_punctuation_after_a_head_never_raises(text):
    log = read(STAMP + "server_args=" + text, STAMP + DRAFT + text, STAMP + POOL + text)
    assert log.echo is not None
    assert len(log.statements[DRAFT]) == len(log.statements[POOL]) == 1


@pytest.mark.parametrize("shape", ["'", '"', "<", "[", " ", "\\", "a.", "'a' ", "0", "a=", ",", "%", "]", "('"])
def test_long_lines_are_read_in_linear_time(shape):
    """200 kB of the worst: what is quadratic here hangs the suite."""
    noise = shape * (200_000 // len(shape))
    read(noise, f"{STAMP}server_args={{{noise}", STAMP + DRAFT + noise, f"100%{noise}{STAMP}{noise}").failure()
    mixed = "".join(random.Random(0).choices(shape + "'\" =,<([", k=200_000))
    read(f"{STAMP}server_args={{'a': {mixed}")


def test_a_line_that_only_looks_like_an_alarm_is_none():
    log = StartupLog((), alarming=("the window is ignored",), benign=("by design",))
    for line in ("x: the window is ignored by design", "x: the window is ignored here", "the window is ignored, too"):
        log.add(Record(STAMP + line))
    assert {text: record.text for text, record in log.alarms.items()} == {
        "the window is ignored": STAMP + "x: the window is ignored here"
    }
    log.add(Record(STAMP + "x is disabled because of y, by design"))
    assert log.overrides == []


def test_what_was_lost_before_the_ready_line_is_told_from_what_was_lost_later():
    lost, dropped = Record(None, problem="null"), Record("Suppressed 9 messages from x", origin="journald")
    assert read(lost, STAMP + READY, dropped).gaps == [(lost, True), (dropped, False)]


# As Linux 6.1 writes them.
CHOSEN = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/sglang-k26.service,"
    "task_memcg=/one/system.slice/sglang-k26.service,task=sglang::schedul,pid={pid},uid=997"
)
KILLED = "Memory cgroup out of memory: Killed process {pid} (sglang::schedul) total-vm:218564kB, anon-rss:30464kB"


def killed(pid, at=None):
    return [Record(text.format(pid=pid), origin="kernel", time=at) for text in (CHOSEN, KILLED)]


def of(unit, *records):
    log = read(*records)
    log.unit = unit
    return log.failure().kind


def test_a_process_that_never_logged_is_known_by_its_control_group():
    exited = Record("sglang-k26.service: Main process exited, status=9/KILL", origin="manager", time=100.0)
    assert of("sglang-k26.service", exited, *killed(4711)) == "killed_by_kernel"
    assert of("sglang-k26.service", exited, *killed(4711, at=99.9)) == "killed_by_kernel"
    assert of("sglang-k2.service", exited, *killed(4711)) == "exited", "another unit's process"
    assert of(None, exited, *killed(4711)) == "exited", "nobody knows whose unit this log is of"
    assert of("sglang-k26.service", exited, *killed(4711, at=200.0)) == "exited", "a later start was killed"


@pytest.mark.parametrize("line", ["Worker. budget=8, topk=4", "Worker. budget=8", "Worker. budget=8, topk=4, window=2048"])
def test_a_line_without_its_last_field_is_cut(line):
    log = StartupLog({"Worker.": "window"})
    log.add(Record(line))
    (statement,) = log.statements["Worker."]
    assert bool(statement.problem) == ("window" not in line)
