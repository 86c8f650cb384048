"""The wait on a real host: a scripted unit says what an engine says, when the test wants it."""

from __future__ import annotations

import json
import os

import deployment
import pytest
from deployment import INVENTORY, Going
from stage import PYTHON, make_plan, start_lines

HOST, ADDRESS = "waiting1", "10.213.77.70"
UNIT_PATH = "/etc/systemd/system/sglang-k26.service"
PLAN = make_plan(host="127.0.0.1")
# Says the first lines, and the others when /run/go is there; answers on the port like an engine.
ENGINE = f"""
import http.server, json, os, sys, time
early, late = {start_lines(PLAN)[:2]!r}, {start_lines(PLAN)[2:]!r}
print(*early, sep="\\n", flush=True)
while not os.path.exists("/run/go"):
    time.sleep(0.2)

class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answers = {{"/server_info": {{"internal_states": [{{}}]}}, "/model_info": {{"model_path": {PLAN.model!r}}}}}
        body = json.dumps(answers.get(self.path, {{"text": "jumps"}})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET

server = http.server.HTTPServer(("127.0.0.1", {PLAN.port}), Engine)
print(*late, sep="\\n", flush=True)
server.serve_forever()
"""
UNIT = "\n".join(
    [
        "[Service]",
        "Type=exec",
        "ExecStart=" + " ".join(PLAN.argv),
        *(f"Environment={name}={value}" for name, value in PLAN.environment.items()),
        "",
    ]
)


@pytest.fixture(scope="module")
def host():
    deployment.hosts("down", HOST)
    deployment.hosts("up", f"{HOST}={ADDRESS}")
    yield lambda script: deployment.hosts("exec", HOST, "sh", "-euc", script)
    deployment.hosts("down", HOST)


@pytest.fixture
def loading(host):
    """A start that has said its first lines, and waits."""
    host("rm -f /run/go")
    for path, text in (("/usr/lib/python3/dist-packages/sglang/launch_server.py", ENGINE), (UNIT_PATH, UNIT)):
        host(f"mkdir -p {os.path.dirname(path)}; cat > {path} <<'END'\n{text}\nEND")
    host(f"mkdir -p {os.path.dirname(PYTHON)}; ln -sf /usr/bin/python3 {PYTHON}")
    host("systemctl daemon-reload; systemctl restart sglang-k26.service")
    return host


@pytest.fixture
def playbook(tmp_path):
    """Start a play that proves PLAN on the host."""
    task = {"plan": PLAN.to_dict(), "unit_path": UNIT_PATH, "slice": 3}

    def start(**demands):
        proves = {"sglang_startup": {**task, "demands": {"hold": 1, **demands}}}
        play = [{"hosts": HOST, "gather_facts": False, "tasks": [proves]}]
        path = tmp_path / "play.yml"
        path.write_text(json.dumps(play))
        return Going("-i", INVENTORY, "-i", f"{HOST},", "-e", f"ansible_host={ADDRESS}", path)

    return start


def test_the_wait_survives_an_sshd_that_is_gone_for_a_while(loading, playbook):
    run = playbook()
    run.until("arguments resolved, starting workers")
    loading("sessions=$(pgrep -P $(systemctl show -p MainPID --value ssh)); systemctl stop ssh; kill -KILL $sessions")
    run.until("connection lost, trying again")
    loading("systemctl start ssh; touch /run/go")
    assert run.end() == 0, run.output
    assert "sglang-k26.service  SGLang 0.5.13" in run.output


def test_a_hang_ends_the_wait_with_where_and_what_next(loading, playbook):
    run = playbook(stall=8)
    assert run.end() == 2, run.output
    assert "sglang-k26.service hangs: nothing has moved for" in run.output
    assert "last line of the start:" in run.output and "/stack on the host" in run.output
