"""A value that is written into a unit reaches systemd and the process unchanged, on a real systemd.

Needs root on Linux and starts one test host; about fifteen seconds.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.sglang_proof import systemd_unit as unit
from hypothesis import example, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]

HOST = "quoting"
NAME = "quoting.service"
PROGRAM = "/run/50% of it, é;/python3"  # a link that the host makes to its Python
WAITS = ["-c", "import signal; signal.pause()"]

# Writes and starts the unit, reads it and its process, stops it and reads it again.
ON_THE_HOST = r"""
import base64, json, os, subprocess, sys
job = json.load(sys.stdin)
os.makedirs(os.path.dirname(job["program"]), exist_ok=True)
if not os.path.exists(job["program"]):
    os.symlink("/usr/bin/python3", job["program"])
with open("/run/systemd/system/" + job["name"], "w", encoding="utf-8") as file:
    file.write(job["text"])

def run(*argv):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout

run("systemctl", "daemon-reload")
never_started = run(*job["busctl"])
run("systemctl", "start", job["name"])
running = run(*job["busctl"])
pid = run("systemctl", "show", "--value", "--property", "MainPID", job["name"]).strip()
read = lambda name: base64.b64encode(open(f"/proc/{pid}/{name}", "rb").read()).decode()
cmdline, environ = read("cmdline"), read("environ")
run("systemctl", "stop", job["name"])
print(json.dumps({"never_started": never_started, "running": running, "stopped": run(*job["busctl"]),
                  "cmdline": cmdline, "environ": environ}))
"""


def hosts(*argv: str, **options) -> str:
    command = [sys.executable, "-m", "testhosts", *argv]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


@pytest.fixture(scope="module")
def host():
    hosts("up", HOST)
    yield HOST
    hosts("down", HOST)


def start(host: str, argv: list[str], environment: dict[str, str]) -> dict[str, str]:
    """What the host answers for a unit of these arguments and variables."""
    lines = ["[Service]", "Type=exec", *(unit.environment_line(*item) for item in environment.items())]
    job = {
        "name": NAME,
        "program": argv[0],
        "busctl": unit.busctl_argv(NAME),
        "text": "\n".join([*lines, f"ExecStart={unit.exec_start(argv)}", ""]),
    }
    return json.loads(hosts("exec", host, "python3", "-c", ON_THE_HOST, input=json.dumps(job)))


WORDS = r"""
% %% %n %i $ $$ $$$ $HOME ${HOME} $${HOME} ' " 'single' "double" \ \\ \x41 \n C:\dir\ a\
; a;b # ~ * && `id` $(id)
- -- -x @x +x !x !! :x |x {"a":[1,null],"d":"$e%f"} Köln 東京 🙂
"""
AWKWARD = st.sampled_from([*WORDS.split(), "", " ", "\t", "\n", "\u00a0", '{"a": "b c"}'])
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
MIXED = st.lists(AWKWARD | TEXT, max_size=4).map("".join)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # systemd accepts no such variable


@settings(max_examples=25, deadline=None)
@example(values=[chr(code) for code in range(1, 0x180)])
@given(values=st.lists(AWKWARD | TEXT | MIXED, max_size=40))
def test_values_arrive_unchanged(host, values):
    argv = [PROGRAM, *WAITS, *values]
    environment = {f"VALUE_{index}": value for index, value in enumerate(values) if not CONTROL.search(value)}

    answer = start(host, argv, environment)

    running = unit.parse_properties(answer["running"])
    assert list(running.argv) == argv
    assert running.expanded == ()
    assert running.environment == environment
    assert unit.parse_cmdline(base64.b64decode(answer["cmdline"])) == argv
    process = unit.parse_environ(base64.b64decode(answer["environ"]))
    assert {name: process.get(name) for name in environment} == environment
    assert process["INVOCATION_ID"] == running.invocation_id


def test_a_unit_is_read_in_every_state(host):
    answer = start(host, [PROGRAM, *WAITS], {})
    never_started, running, stopped = (
        unit.parse_properties(answer[state]) for state in ("never_started", "running", "stopped")
    )
    assert (running.active_state, running.sub_state, running.result) == ("active", "running", "success")
    assert running.main_pid > 0
    assert running.exec_main_start > 0
    assert (stopped.active_state, stopped.main_pid) == ("inactive", 0)
    assert stopped.argv == never_started.argv == running.argv
    assert len(running.invocation_id) == 32


def test_a_unit_that_does_not_exist_is_not_found(host):
    missing = unit.parse_properties(hosts("exec", host, *unit.busctl_argv("no-such.service")))
    assert (missing.exists, missing.load_state, missing.active_state) == (False, "not-found", "inactive")
    assert (missing.main_pid, missing.invocation_id, missing.argv) == (0, "", ())
