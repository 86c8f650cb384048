"""What is written into a unit and what is read back from systemd's typed answer."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.sglang_proof.systemd_unit import (
    busctl_argv,
    environment_line,
    exec_start,
    object_path,
    parse_cmdline,
    parse_environ,
    parse_properties,
    quote,
)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("--port", "--port"),
        ("", '""'),
        ("two words", '"two words"'),
        ("50%", '"50%%"'),
        ("${HOME}", '"$${HOME}"'),
        ('{"a": 1}', r'"{\"a\": 1}"'),
        ("C:\\x", r'"C:\\x"'),
        ("one\ttab\nline", r'"one\ttab\nline"'),
        ("\x1b[1m", r'"\x1b[1m"'),
        ("\x85", r'"\xc2\x85"'),
        (";", '";"'),
        ("Köln, 東京", '"Köln, 東京"'),
    ],
)
def test_an_argument_is_quoted(value, written):
    assert quote(value) == written


def test_exec_start_is_one_line():
    assert exec_start(["/opt/s g/bin/python", "-m", "a\nb"]) == r'"/opt/s g/bin/python" -m "a\nb"'


@pytest.mark.parametrize("program", ["python3", "@/bin/python3", "/opt/$X/python3", '/a"b', "/a\\b", "/a\nb"])
def test_a_program_that_systemd_would_read_otherwise_is_refused(program):
    with pytest.raises(ValueError, match="absolute path"):
        exec_start([program])


def test_a_variable_keeps_dollars_and_doubles_percents():
    assert environment_line("X", "$1 50%") == 'Environment="X=$1 50%%"'


@pytest.mark.parametrize(("name", "value"), [("X", "\x1b"), ("X", "\r"), ("1X", ""), ("X Y", ""), ("X", "\ud800")])
def test_a_variable_that_systemd_would_drop_is_refused(name, value):
    with pytest.raises(ValueError, match=r"variable|Unicode"):
        environment_line(name, value)


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_what_no_process_can_be_given_is_refused(value):
    with pytest.raises(ValueError, match=r"NUL|Unicode"):
        quote(value)


def test_the_object_of_a_unit():
    assert object_path("sglang@3-a.service") == "/org/freedesktop/systemd1/unit/sglang_403_2da_2eservice"
    assert object_path("9.service").endswith("/_39_2eservice")
    assert busctl_argv("x.service")[-1] == ""


RUNNING = {
    "Id": ("s", "sglang.service"),
    "LoadState": ("s", "loaded"),
    "LoadError": ("(ss)", ["", ""]),
    "ActiveState": ("s", "active"),
    "SubState": ("s", "running"),
    "Result": ("s", "success"),
    "UnitFileState": ("s", "enabled"),
    "FragmentPath": ("s", "/etc/systemd/system/sglang.service"),
    "DropInPaths": ("as", ["/etc/systemd/system/sglang.service.d/10.conf"]),
    "NeedDaemonReload": ("b", False),
    "ExecStart": (
        "a(sasbttttuii)",
        [["/bin/python", ["/bin/python", "--x=$$1", "${HOME}"], False, 0, 0, 0, 0, 0, 0, 0]],
    ),
    "Environment": ("as", ["A=b=c", "E="]),
    "EnvironmentFiles": ("a(sb)", [["/etc/sglang.env", False]]),
    "MainPID": ("u", 71),
    "InvocationID": ("ay", [0, 255] + [1] * 14),
    "ExecMainStartTimestamp": ("t", 1790000000500000),
    "ExecMainCode": ("i", 0),
    "ExecMainStatus": ("i", 0),
    "NRestarts": ("u", 2),
    "ControlGroup": ("s", "/system.slice/sglang.service"),
    "User": ("s", "sglang"),
}


def answer(properties):
    data = {name: {"type": kind, "data": data} for name, (kind, data) in properties.items()}
    return json.dumps({"type": "a{sv}", "data": [data]})


def test_a_running_service_is_read():
    unit = parse_properties(answer(RUNNING))
    assert unit.exists
    assert unit.argv == ("/bin/python", "--x=$1", "${HOME}")
    assert unit.expanded == ("${HOME}",)
    assert unit.environment == {"A": "b=c", "E": ""}
    assert unit.environment_files == ("/etc/sglang.env",)
    assert unit.invocation_id == "00ff" + "01" * 14
    assert unit.exec_main_start == 1790000000.5
    assert (unit.main_pid, unit.n_restarts, unit.user) == (71, 2, "sglang")


def test_a_missing_unit_has_no_process():
    missing = {
        **RUNNING,
        "LoadState": ("s", "not-found"),
        "ExecStart": ("a(sasbttttuii)", []),
        "InvocationID": ("ay", []),
    }
    unit = parse_properties(answer(missing))
    assert (unit.exists, unit.argv, unit.invocation_id) == (False, (), "")


@pytest.mark.parametrize("text", ["", "Call failed", "{}", '{"data": []}', '{"data": [{}]}', '{"data": [{"Id": 1}]}'])
def test_an_answer_that_is_none_is_no_stopped_unit(text):
    with pytest.raises(ValueError, match="Not the properties of a unit"):
        parse_properties(text)


def test_proc_files_keep_empty_arguments_and_odd_bytes():
    assert parse_cmdline(b"python\0\0-m\0\xff\0") == ["python", "", "-m", "\udcff"]
    assert parse_cmdline(b"") == []
    assert parse_environ(b"A=b=c\0E=\0garbage\0") == {"A": "b=c", "E": ""}
