"""Journal entries as journalctl prints them, with the shapes that a long or coloured line takes."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.sglang_proof.journal import Decoder, Record, journalctl_argv, kernel_argv, read_log
from hypothesis import given
from hypothesis import strategies as st

INVOCATION = "3f2a" * 8
STAMP = "[2026-05-20 10:00:00 TP1] "


def entry(message, **fields):
    """One line of journalctl --output=json, of the service unless the fields say otherwise."""
    common = {
        "__CURSOR": "s=1;i=2",
        "__REALTIME_TIMESTAMP": "1779271200500000",
        "_PID": "77",
        "_TRANSPORT": "stdout",
        "_STREAM_ID": "a",
        "_SYSTEMD_INVOCATION_ID": INVOCATION,
        "MESSAGE": message,
    }
    return json.dumps({name: value for name, value in {**common, **fields}.items() if value != ""}).encode()


def decode(*lines):
    decoder = Decoder()
    return [record for line in lines for record in decoder.feed(line)] + decoder.close()


def texts(*lines):
    return [record.text for record in decode(*lines)]


def test_a_record_says_what_when_and_of_which_start():
    assert decode(entry("body")) == [
        Record("body", cursor="s=1;i=2", time=1779271200.5, invocation=INVOCATION, pid=77, origin="service")
    ]


def test_the_call_asks_for_one_start_by_all_who_speak_of_it():
    argv = journalctl_argv("X")
    assert argv[:4] == ["journalctl", "--output=json", "--all", "--no-pager"]
    assert argv[-5:] == [
        "_SYSTEMD_INVOCATION_ID=X",
        "+",
        "INVOCATION_ID=X",
        "+",
        "OBJECT_SYSTEMD_INVOCATION_ID=X",
    ]
    assert "--follow" not in argv


def test_following_shows_what_was_said_before_and_goes_on_after_a_cursor():
    argv = journalctl_argv("X", follow=True, after_cursor="s=1;i=2")
    assert {"--follow", "--no-tail", "--after-cursor=s=1;i=2"} <= set(argv)


def test_the_kernel_is_asked_from_a_time_on():
    assert kernel_argv(1779271200.5)[-2:] == ["--since=@1779271200.500000", "_TRANSPORT=kernel"]


@pytest.mark.parametrize(
    ("origin", "fields"),
    [
        ("service", {}),
        (
            "manager",
            {"_TRANSPORT": "journal", "_PID": "1", "_SYSTEMD_INVOCATION_ID": "", "INVOCATION_ID": "X"},
        ),
        ("manager", {"_TRANSPORT": "journal", "INVOCATION_ID": "X"}),  # systemd's child before exec
        ("journald", {"_TRANSPORT": "driver", "N_DROPPED": "9", "OBJECT_SYSTEMD_INVOCATION_ID": "X"}),
        ("kernel", {"_TRANSPORT": "kernel", "_SYSTEMD_INVOCATION_ID": ""}),
    ],
)
def test_the_origin_is_who_wrote_the_record(origin, fields):
    assert decode(entry("text", **fields))[0].origin == origin


def test_text_comes_as_text_as_bytes_or_repeated():
    assert texts(entry("é"), entry(list("é\x1b".encode())), entry(["a", list(b"b")])) == [
        "é",
        "é\x1b",
        "a\nb",
    ]


@pytest.mark.parametrize("message", [None, "", 7, {}, [], [300], [1.5], [True], [[1], None], list(b"\xff\xfe"), "\ud800"])
def test_a_message_without_text_is_unreadable_never_empty(message):
    (record,) = decode(entry(message))
    assert (record.text, bool(record.problem), record.cursor) == (None, True, "s=1;i=2")


def test_an_empty_line_is_empty_text():
    assert [record.text for record in read_log([b"\n"])] == [""]


@pytest.mark.parametrize("line", [b"{", b"7", b"[]", b"\xff\xfe", b"-- No entries --", b"[" * 100_000])
def test_what_is_no_entry_is_unreadable(line):
    (record,) = decode(line)
    assert (record.text, bool(record.problem)) == (None, True)


def test_blank_lines_between_entries_are_nothing():
    assert decode(b"\n", b"") == []


def test_pieces_of_a_long_line_are_joined_even_within_a_character():
    half = "é".encode()
    pieces = [
        entry([*b"begin ", half[0]], _LINE_BREAK="line-max", __CURSOR="first"),
        entry("another stream", _STREAM_ID="b"),
        entry([half[1], *b" middle"], _LINE_BREAK="line-max"),
        entry(" end"),
        entry("next"),
    ]
    records = decode(*pieces)
    assert [record.text for record in records] == ["another stream", "begin é middle end", "next"]
    assert records[1].cursor == "first"


@pytest.mark.parametrize(
    "after",
    [
        (),  # the log ends
        (entry(STAMP + "next"),),  # the rest never came
        (entry("Suppressed 9 messages", _TRANSPORT="driver", N_DROPPED="9", _STREAM_ID=""), entry("the end")),
        (entry(None),),
    ],
)
def test_a_long_line_with_a_missing_piece_is_unreadable(after):
    first = decode(entry(STAMP + "server_args={'a': 1", _LINE_BREAK="line-max"), *after)[0]
    assert (first.text, "a piece is missing" in first.problem) == (None, True)
    assert "server_args=" in first.problem


def test_colour_is_removed():
    assert texts(entry("\x1b[1;33mwarning\x1b[0m x\x1b[K")) == ["warning x"]


BAR = "Loading shards:  50%|█████     | 1/2 [00:01<00:01,  1.02s/it]"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (f"{BAR}\r{BAR[:30]}", [BAR[:30]]),
        (f"\r{BAR}\r{BAR}{STAMP}body", [STAMP + "body"]),
        (f"{BAR}{STAMP}body", [STAMP + "body"]),
        (f"{BAR}{STAMP}first\r{BAR}{STAMP}second", [STAMP + "first", STAMP + "second"]),
        (f"\x1b[1m{BAR}\x1b[0m {STAMP}body", [STAMP + "body"]),
        ("windows\r", ["windows"]),
        (f"{STAMP}said: {BAR}{STAMP}quoted", [f"{STAMP}said: {BAR}{STAMP}quoted"]),
        (f"no bar {STAMP}quoted", [f"no bar {STAMP}quoted"]),
    ],
)
def test_a_record_behind_a_progress_bar_is_found(message, expected):
    assert texts(entry(message)) == texts(entry(list(message.encode()))) == expected


@pytest.mark.parametrize(
    "wrapper",
    [
        "May 20 10:00:00 node3 python[77]: ",
        "2026-05-20T10:00:00+0200 node3 python[77]: ",
        "2026-05-20T10:00:00.123456Z ",
        "2026-05-20T10:00:00.123456789Z stderr F ",
        "sglang-1  | ",
        "(WorkerDict pid=77, ip=10.0.0.1) ",
        "    ",
    ],
)
def test_what_others_put_in_front_of_a_record_is_taken_off(wrapper):
    (record,) = read_log([wrapper + STAMP + "body\n"])
    assert (record.text, record.origin, record.cursor) == (STAMP + "body", "service", "line 1")
    assert texts(entry(wrapper + STAMP + "body")) == [STAMP + "body"]


def test_stack_frames_keep_their_indentation():
    (record,) = read_log(['May 20 10:00:00 node3 python[77]:   File "x.py", line 1'])
    assert record.text == '  File "x.py", line 1'


def test_a_saved_log_of_journalctl_keeps_who_wrote_what():
    lines = [
        "May 20 10:00:00 node3 systemd[1]: sglang.service: Main process exited, code=killed, status=9/KILL",
        "May 20 10:00:00 node3 kernel: Out of memory: Killed process 77 (python)",
    ]
    assert [record.origin for record in read_log(lines)] == ["manager", "kernel"]
    assert [record.origin for record in decode(*map(entry, lines))] == ["service", "service"], "text can't claim it"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "MESSAGE",
    "_PID",
    "__REALTIME_TIMESTAMP",
    "__CURSOR",
    "_LINE_BREAK",
    "_STREAM_ID",
    "N_DROPPED",
    "INVOCATION_ID",
)


@given(st.lists(st.binary() | st.dictionaries(st.sampled_from(FIELDS), JSON).map(lambda e: json.dumps(e).encode())))
def test_whatever_is_fed_each_record_has_text_or_a_problem(lines):
    for record in decode(*lines):
        assert (record.text is None) == bool(record.problem)


@given(st.text(min_size=1).filter(lambda text: "[" not in text), st.integers(1, 5))  # [ could begin a new record
def test_a_line_in_pieces_is_the_line(text, size):
    raw = list(text.encode())
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    split = [entry(piece, _LINE_BREAK="line-max") for piece in pieces[:-1]] + [entry(pieces[-1])]
    assert texts(*split) == texts(entry(raw))
