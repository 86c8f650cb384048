"""One strict reader of declared values."""

import pytest
from ansible.module_utils.sglang_proof.settings import OFF, UNSET, BadValue, Choice, Integer, Number, Switch, Text, read


@pytest.mark.parametrize("raw, value", [(2048, 2048), ("2048", 2048), ("0", 0), ("-5", -5)])
def test_whole_numbers_are_read_from_yaml_and_from_extra_vars(raw, value):
    assert read(Integer(), raw) == value


@pytest.mark.parametrize(
    "raw",
    [
        "2_048",
        "2048.0",
        2048.0,
        " ",
        "",
        "2048 ",
        "+5",
        "007",
        "0x10",
        "1e3",
        "\uff12\uff10\uff14\uff18",
        "abc",
        True,
        [2048],
        {},
        "2048\n",
    ],
)
def test_what_only_looks_like_a_number_is_refused(raw):
    with pytest.raises(BadValue, match="a whole number"):
        read(Integer(), raw)


@pytest.mark.parametrize("most", [10**18 - 1, 1 - 10**18])
def test_a_whole_number_has_the_same_limit_however_it_is_written(most):
    for written in (int, str):
        assert read(Integer(), written(most)) == most
        for beyond in (most + most // abs(most), most * 10):
            with pytest.raises(BadValue, match="a whole number"):
                read(Integer(), written(beyond))


@pytest.mark.parametrize("raw", [None, "none", "None", "NONE", "null"])
def test_off_is_said_in_words_or_by_json_null(raw):
    assert read(Integer(), raw) is OFF


def test_unset_is_not_off():
    assert read(Integer(), "unset") is UNSET


@pytest.mark.parametrize("raw, value", [("0.80", 0.8), (0.8, 0.8), ("1", 1.0), (0, 0), ("0.0", 0.0)])
def test_numbers(raw, value):
    assert read(Number(0, 1), raw) == value


@pytest.mark.parametrize("raw", ["1.5", "-0.1", "nan", "0.8 ", True, "1e-3"])
def test_numbers_out_of_range_or_form_are_refused(raw):
    with pytest.raises(BadValue, match="from 0 to 1"):
        read(Number(0, 1), raw)


@pytest.mark.parametrize("raw", ["", " x", "x ", "a\nb", "--port", "a\0b", "a\x1b[0m", 5, ["x"]])
def test_text_that_could_be_something_else_is_refused(raw):
    with pytest.raises(BadValue):
        read(Text(), raw)


@pytest.mark.parametrize("raw", ["Kimi K2.6", "100%", "$HOME", 'a "b"', "ü"])
def test_text_may_hold_what_systemd_would_expand(raw):
    assert read(Text(), raw) == raw


def test_words_fold_only_where_the_engine_does():
    assert read(Choice(("DFLASH",), fold="upper"), "dflash") == "DFLASH"
    with pytest.raises(BadValue, match="one of cuda, cpu"):
        read(Choice(("cuda", "cpu")), "CUDA")


@pytest.mark.parametrize("raw, value", [(True, True), ("true", True), (False, OFF), ("False", OFF)])
def test_switches(raw, value):
    assert read(Switch(), raw) is value


@pytest.mark.parametrize("raw", ["yes", "1", 1, "on"])
def test_a_switch_is_true_or_false_and_nothing_like_it(raw):
    with pytest.raises(BadValue, match="true or false"):
        read(Switch(), raw)
