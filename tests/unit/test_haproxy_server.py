"""A server of HAProxy is drained and given requests again, with answers as HAProxy 2.6.12 gave them."""

from __future__ import annotations

import json
import re
import socket
import threading

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from stage import load

HEAD = """1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change \
srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state
""".replace("\\\n", "")
STAT = """# pxname,svname,scur,status,check_status,last_chk,
engines,FRONTEND,0,OPEN,,,
engines,one,0,DOWN,L4CON,Connection refused,
"""
UP, DOWN = 2, 0
MAINTENANCE, TRACKED, DRAINED, NOT_RESOLVED = 1, 2, 8, 32


class HAProxy:
    """The admin socket of a backend `engines`: `servers` are {name: [state, admin]}."""

    def __init__(self, path, servers):
        self.path, self.servers, self.told, self.refuses = str(path), servers, [], ""
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            with connection:
                connection.sendall(self.answer(connection.recv(999).decode().strip()).encode())

    def answer(self, command):
        if command == "show servers state engines":
            rows = [
                f"3 engines 1 {name} 192.0.2.1 {state} {admin} 1 1 3 15 3 4 6 0"
                for name, (state, admin) in self.servers.items()
            ]
            return HEAD + "\n".join(rows) + "\n\n"
        if command.startswith("show servers state"):
            return "Can't find backend.\n\n"
        if command == "show stat":
            return STAT
        self.told.append(command)
        if self.refuses:
            return self.refuses
        name, state = re.fullmatch("set server engines/(.+) state (.+)", command).groups()
        self.servers[name][1] = {"drain": DRAINED, "ready": 0}[state]
        return "\n"


@pytest.fixture
def haproxy(tmp_path):
    return HAProxy(tmp_path / "socket", {"one": [UP, 0], "two": [UP, 0]})


@pytest.fixture
def run(haproxy, monkeypatch, capsys):
    """Returns a function that runs the module and returns its result; `run.warned` are its warnings."""
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, warning: run.warned.append(warning))

    def run(state, server="one", check=False, **options):
        wanted = {"backend": "engines", "socket": haproxy.path, "timeout": 1, **options, "_ansible_check_mode": check}
        with patch_module_args({"server": server, "state": state, **wanted}), pytest.raises(SystemExit):
            load("library/haproxy_server.py").main()
        return json.loads(capsys.readouterr().out)

    run.warned = []
    return run


def test_out_and_in_once_each(haproxy, run):
    assert [run(state)["changed"] for state in ("out", "out", "in", "in")] == [True, False, True, False]
    assert haproxy.told == ["set server engines/one state drain", "set server engines/one state ready"]


def test_check_mode_says_it_and_does_nothing(haproxy, run):
    assert run("out", check=True)["changed"]
    haproxy.servers["one"] = [DOWN, DRAINED]
    assert run("in", check=True)["changed"]
    assert haproxy.told == []


@pytest.mark.parametrize("admin", [MAINTENANCE, TRACKED, MAINTENANCE | DRAINED])
@pytest.mark.parametrize("state", ["in", "out"])
def test_maintenance_is_left_and_said(haproxy, run, state, admin):
    haproxy.servers["one"] = [DOWN, admin]
    assert not run(state)["changed"] and haproxy.told == []
    assert "one stays in maintenance and gets no requests: somebody set that at the backend engines" in run.warned[0]


def test_one_whose_engine_is_down_is_drained_too(haproxy, run):
    haproxy.servers["one"] = [DOWN, 0]
    assert run("out", minimum="2")["changed"] and haproxy.servers["one"][1] == DRAINED


@pytest.mark.parametrize("other", [[DOWN, 0], [UP, DRAINED], [DOWN, MAINTENANCE], [UP, NOT_RESOLVED]])
def test_the_last_that_serves_is_not_drained(haproxy, run, other):
    haproxy.servers["two"] = other
    assert "declared 1, but without one the backend engines" in run("out", minimum="50%", fleet=2)["msg"]
    assert haproxy.told == []


def test_one_that_does_not_come_up_is_told_with_what_its_check_says(haproxy, run):
    haproxy.servers["one"] = [DOWN, DRAINED]
    result = run("in")
    assert result["failed"] and "says DOWN, L4CON (Connection refused)" in result["msg"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"server": "three"}, "traffic_haproxy_server: declared three, but the backend engines of HAProxy on"),
        ({"backend": "motors"}, "traffic_haproxy_backend: declared motors, and HAProxy on"),
        ({"socket": "/nowhere"}, "cannot be asked at /nowhere: No such file or directory"),
        ({"minimum": "half"}, "traffic_minimum_serving: declared 'half'"),
    ],
)
def test_what_is_not_there_is_named(haproxy, run, options, said):
    result = run("out", **options)
    assert result["failed"] and said in result["msg"] and haproxy.told == []


def test_a_socket_that_may_not_set_says_so(haproxy, run):
    haproxy.refuses = "Permission denied\n"
    assert "did not set one to drain: Permission denied" in run("out")["msg"]
