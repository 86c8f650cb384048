"""Two hosts behind Debian's own HAProxy, watched by Debian's own Prometheus: what each says while a rollout goes on.

The engines are the stand-in, testhosts/lying_engine. Some minutes on two cores: make fleet.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from deployment import Deployment, hosts, python
from rollout_fleet import HONEST, Fleet

NAMES = ["other1", "other2"]
ADDRESS = "10.213.77.220"  # of other0
LAYERS = (("testhosts.lying_engine", ["build"]), ("testhosts.packages", ["haproxy", "prometheus"]))
MOVE = str(Path(__file__).parents[1] / "integration/traffic_move.yml")

PASSWORD = "s3cret-of-the-test"
SET_UP = f"""
dpkg --install /srv/packages/*.deb >/dev/null
cat >>/etc/haproxy/haproxy.cfg <<'END'
global
    stats socket ipv4@{ADDRESS}:9999 level admin
frontend all
    bind :8000
    default_backend engines
backend engines
    option httpchk GET /health
    timeout check 10s
    default-server check inter 300 rise 1
    server other1 10.213.77.221:30000
    server other2 10.213.77.222:30000
END
cat >/etc/prometheus/prometheus.yml <<'END'
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: engines
    static_configs:
      - {{targets: ["10.213.77.221:30000"], labels: {{host: other1}}}}
      - {{targets: ["10.213.77.222:30000"], labels: {{host: other2}}}}
END
cat >/etc/prometheus/web.yml <<'END' # the password, bcrypt
basic_auth_users: {{rollout: $2b$04$B0TybCHNmPLPhZ0So1bXdetgRukoSEXJvUSgIJHZ7EG/M0paqFptW}}
END
echo 'ARGS="--web.config.file=/etc/prometheus/web.yml"' >/etc/default/prometheus
systemctl restart haproxy prometheus
"""

# What HAProxy says of a server: srv_admin_state (8: drained, 1: maintenance) and srv_op_state (2: its check passes).
UP, DRAINED, DRAINED_AND_DOWN, MAINTENANCE = ("0", "2"), ("8", "2"), ("8", "0"), ("1", "0")

ACCEPTED = "sglang:spec_accept_length"
WORSE = {**HONEST, "answers": {"/metrics": {"body": f"{ACCEPTED} 1.1\n", "status": 200}}}
BESIDE_THE_OTHERS = (
    ACCEPTED + '{host="{{ inventory_hostname }}"} / on() avg(' + ACCEPTED + '{host!="{{ inventory_hostname }}"})'
)  # fmt: skip


class Behind(Fleet):
    """other1 and other2 with an engine each, and other0 with HAProxy and Prometheus."""

    names, inventory, url, minimum = NAMES, Path(__file__).with_name("other_balancers"), f"http://{ADDRESS}:8000", 1

    def __init__(self):
        super().__init__()
        self.monitor = Deployment("other0")
        self.phases = {name: [] for name in NAMES}  # what HAProxy said of each server, whenever it was something else

    def haproxy(self, command):
        """Its answer to a command, at the admin socket."""
        with socket.create_connection((ADDRESS, 9999)) as connection:
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode().strip()

    def servers(self):
        """server → (admin state, state)."""
        _, head, *rows = self.haproxy("show servers state engines").splitlines()
        servers = [dict(zip(head.removeprefix("# ").split(), row.split(), strict=True)) for row in rows]
        return {server["srv_name"]: (server["srv_admin_state"], server["srv_op_state"]) for server in servers}

    def serving(self):
        servers = self.servers()
        for name, says in servers.items():
            if self.phases[name][-1:] != [says]:
                self.phases[name].append(says)
        return {name for name, says in servers.items() if says == UP}

    def move(self, entry, *arguments):
        return self.playbook(MOVE, "-e", f"entry={entry}", *arguments)

    def analysed(self, window, query, *arguments):
        """A rollout with an analysis over Prometheus, which never prints the password."""
        analysis = {
            "rollout_soak": 5,
            "rollout_analysis": [{"name": "acceptance", "query": query, "at_least": 0.9, "at_most": 1.1}],
            "rollout_prometheus": f"http://rollout:{PASSWORD}@{ADDRESS}:9090",
        }
        run = self.deploy("-e", f"window={window}", "-e", json.dumps(analysis), *arguments)
        assert PASSWORD not in run.output
        return run

    def answered_queries(self):
        """How many Prometheus has answered, by its own count."""
        request = urllib.request.Request(f"http://{ADDRESS}:9090/metrics")
        request.add_header("Authorization", "Basic " + base64.b64encode(f"rollout:{PASSWORD}".encode()).decode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            counts = re.findall(r'http_requests_total\{code="200",handler="/api/v1/query"\} (\d+)', answer.read().decode())
        return sum(map(int, counts))


@pytest.fixture(scope="module")
def fleet():
    names = ["other0", *NAMES]
    layers = [python(module, *what).strip() for module, what in LAYERS]
    hosts("down", *names)
    hosts("up", *(word for layer in layers for word in ("--layer", layer)), *(f"{n}=10.213.77.22{n[-1]}" for n in names))
    fleet = Behind()
    fleet.told({**HONEST, "load_seconds": 2}, *NAMES)  # so that HAProxy sees it down, at three checks
    fleet.monitor.shell(SET_UP)
    yield fleet
    hosts("down", *names)


def test_engines_that_were_down_are_drained_deployed_and_taken_in(fleet):
    while fleet.serving():  # until HAProxy has looked
        time.sleep(0.1)
    fleet.done(fleet.deploy("-e", "window=1024", "-e", '{"rollout_batches": [2], "traffic_minimum_serving": 0}'))
    assert fleet.serving() == set(NAMES)


def test_no_request_is_lost_while_one_engine_after_the_other_is_restarted(fleet):
    fleet.phases = {name: [] for name in NAMES}
    with fleet.under_load():
        fleet.done(fleet.deploy("-e", "window=512"))
        assert fleet.done(fleet.deploy("-e", "window=512")).changed == 0
    assert set(fleet.windows().values()) == {"512"}
    phases = [UP, DRAINED, DRAINED_AND_DOWN, DRAINED, UP]
    assert fleet.phases == dict.fromkeys(NAMES, phases)


def test_maintenance_that_somebody_began_is_left_and_said_and_the_last_that_serves_stays(fleet):
    assert fleet.haproxy("set server engines/other2 state maint") == ""
    run = fleet.done(fleet.deploy("-e", "window=1024", "--limit", "other2"))
    assert "other2 stays in maintenance and gets no requests: somebody set that at the backend engines" in run.said
    assert "next set server engines/other2 state ready" in run.said
    assert fleet.servers() == {"other1": UP, "other2": MAINTENANCE}
    assert fleet.windows()["other2"] == "1024"

    run = fleet.move("out", "--limit", "other1")
    assert run.status == 2
    assert "traffic_minimum_serving: declared 1, but without other1 the backend engines of HAProxy on other0" in run.said
    assert "it serves as before" in run.said and fleet.servers()["other1"] == UP
    fleet.haproxy("set server engines/other2 state ready")


def test_a_balancer_that_is_not_reached_keeps_the_engine_in_at_the_others(fleet, tmp_path):
    (tmp_path / "hosts.yml").write_text('{"balancer": {"hosts": {"gone": {"ansible_host": "10.213.77.223"}}}}')
    balancers = json.dumps({"traffic_haproxy_hosts": ["other0", "gone"]})
    run = fleet.move("out", "--limit", "other1", "-e", balancers, "-i", str(tmp_path / "hosts.yml"))
    assert run.status == 2
    assert "traffic_haproxy_hosts: gone is not reached" in run.said
    assert fleet.servers()["other1"] == UP


TELL = f"""
import socket, sys
file, server, state = sys.argv[1:]
open(file, "a").write(f"{{server}} {{state}}\\n")
with socket.create_connection(("{ADDRESS}", 9999)) as connection:
    connection.sendall(f"set server engines/{{server}} state {{state}}\\n".encode())
    connection.recv(99)
"""


def test_a_command_is_run_for_each_host_and_one_that_fails_says_why(fleet, tmp_path):
    tell, told = tmp_path / "tell.py", tmp_path / "told"
    tell.write_text(TELL)
    words = {
        f"traffic_command_{way}": [sys.executable, str(tell), str(told), "{{ inventory_hostname }}", state]
        for way, state in (("out", "drain"), ("in", "ready"))
    }
    by_command = json.dumps({"traffic_kind": "command", **words})
    with fleet.under_load():
        fleet.done(fleet.deploy("-e", "window=256", "-e", by_command))
    assert told.read_text().split("\n") == ["other1 drain", "other1 ready", "other2 drain", "other2 ready", ""]
    assert fleet.done(fleet.move("in", "--limit", "other1", "-e", by_command)).changed == 0

    fails = json.dumps({**json.loads(by_command), "traffic_command_out": ["sh", "-c", "echo no such pool >&2; exit 3"]})
    run = fleet.move("out", "--limit", "other1", "-e", fails)
    assert run.status == 2
    assert "traffic_command_out: sh, run on localhost, ended with 3" in run.said
    assert "it says no such pool" in run.said and "it serves as before" in run.said
    assert told.read_text().splitlines()[4:] == ["other1 ready"] * 2


def test_numbers_in_prometheus_that_are_as_good_pass(fleet):
    before = fleet.answered_queries()
    fleet.done(fleet.analysed(128, BESIDE_THE_OTHERS))
    assert fleet.answered_queries() == before + 3  # before anything is changed, and of each host
    assert set(fleet.windows().values()) == {"128"}


def test_a_host_whose_numbers_in_prometheus_are_worse_goes_back(fleet):
    fleet.told(WORSE, "other1")
    before = fleet.starts()
    run = fleet.analysed(64, BESIDE_THE_OTHERS)
    assert run.status == 2
    assert "fail: acceptance: 0.344, wanted at least 0.9 and at most 1.1" in run.said
    assert "back sglang-k26.service runs again what was verified" in run.said
    assert "stands other2 not reached" in run.said
    assert set(fleet.windows().values()) == {"128"} and fleet.serving() == set(NAMES)
    assert fleet.starts()["other2"] == before["other2"]
    fleet.told(HONEST, "other1")


def test_where_prometheus_has_no_data_it_stops_keeps_and_asks(fleet):
    run = fleet.analysed(64, "sglang:nothing")
    assert run.status == 2
    said = "rollout_prometheus has no data for it; asked: sglang:nothing"
    assert f"other1: inconclusive: acceptance: {said}" in run.said, run.output[-3000:]
    assert "look at it; it goes on serving. other2 not reached" in run.said
    assert fleet.windows()["other1"] == "64" != fleet.windows()["other2"]
    assert fleet.serving() == set(NAMES)


@pytest.mark.parametrize(
    ("query", "away", "said"),
    [
        ("rate(sglang:spec_accept_length[1m", False, "rollout_prometheus answered 400 Bad Request: "),
        ("sglang:spec_accept_length", False, "rollout_prometheus answered with 2 numbers, and one is wanted"),
        (ACCEPTED, True, "rollout_prometheus did not answer: Connection refused"),
    ],
)
def test_an_analysis_that_cannot_be_answered_ends_the_rollout_before_anything_is_changed(fleet, query, away, said):
    fleet.monitor.shell(f"systemctl {'stop' if away else 'start'} prometheus")
    before = fleet.starts()
    run = fleet.analysed(32, query, "-vvv")
    assert run.status == 2
    assert "this rollout could not be judged by its numbers. Nothing was changed." in run.said, run.output[-3000:]
    assert f"acceptance: {said}" in run.said and f"asked: {query}" in run.said
    assert fleet.starts() == before
