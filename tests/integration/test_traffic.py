"""Two engines behind the real gateway, with requests on them all the time: who leaves, who comes back, what is lost.

The engines are the stand-in, testhosts/lying_engine, because it is restarted often; the gateway is smg itself.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from deployment import Deployment, hosts, python
from load import Load

INVENTORY = Path(__file__).with_name("traffic")
MOVE = str(Path(__file__).with_name("traffic_move.yml"))
GATEWAY = "http://10.213.77.153:8000"
KEY = "s3cret-of-the-test"
FIRST, SECOND = "http://10.213.77.151:30000", "http://10.213.77.152:30000"
STATE = "/var/lib/sglang-deploy/k26"
METRICS = "/var/lib/prometheus/node-exporter/sglang_traffic_k26.prom"
RATE = 40  # requests a second


class Fleet:
    """traffic1 and traffic2 with an engine each, traffic3 with the gateway."""

    def __init__(self):
        self.first, self.second, self.gateway = (Deployment(f"traffic{number}") for number in (1, 2, 3))

    def playbook(self, *arguments):
        return self.first.playbook(*arguments, inventory=INVENTORY)

    def move(self, entry, *arguments):
        return self.playbook(MOVE, "-e", f"entry={entry}", *arguments)

    def done(self, run):
        assert run.status == 0, run.output
        return run

    def workers(self):
        """url → status, as the gateway lists them."""
        request = urllib.request.Request(f"{GATEWAY}/workers", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return {worker["url"]: worker["status"] for worker in json.load(answer)["workers"]}

    def await_workers(self, *urls):
        """Until exactly these get requests."""
        self.await_that(lambda: {url for url, status in self.workers().items() if status == "ready"} == set(urls))

    def await_that(self, holds, seconds=240):
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, (self.workers(), self.first.shell("journalctl -u 'sglang-traffic@*' -n 30"))
            time.sleep(0.2)

    def await_metric(self, host, name, value):
        line = f'sglang_traffic_{name}{{instance="k26"}} {value}\n'
        self.await_that(lambda: line in host.shell(f"cat {METRICS}"))

    def received(self):
        """How often an engine began each request, by its id: what the engines logged of it."""
        counts = Counter()
        for host in (self.first, self.second):
            for line in host.shell(
                "journalctl -o cat --no-pager -u sglang-k26 | grep -o \"rid='[^']*\" || true"
            ).splitlines():
                counts[line[5:]] = counts.get(line[5:], 0) + 1
        return counts

    def nothing_was_lost(self, outcome):
        assert (outcome.failed, outcome.dropped) == ({}, {})
        assert len(outcome.done) == len(outcome.sent)
        received = self.received()
        assert {name: received[name] for name in outcome.sent if received[name] != 1} == {}


@pytest.fixture(scope="module")
def fleet():
    names = ("traffic1", "traffic2", "traffic3")
    layers = [python(module, *what).strip() for module, what in LAYERS]
    hosts("down", *names)
    hosts("up", *(word for layer in layers for word in ("--layer", layer)), *(f"{n}=10.213.77.15{n[-1]}" for n in names))
    fleet = Fleet()
    for host in (fleet.first, fleet.second, fleet.gateway):
        host.shell(f"umask 077; echo {KEY} >/etc/gateway.key; mkdir -p -m 755 /etc/lying-engine")
        host.shell("""umask 022; echo '{"token_seconds": 0.05}' >/etc/lying-engine/30000.json""")
    yield fleet
    hosts("down", *names)


LAYERS = (("testhosts.lying_engine", ["build"]), ("testhosts.model_gateway", []))


def restart(host):
    """By hand, and as often as one likes."""
    host.shell("systemctl stop sglang-k26; systemctl reset-failed sglang-k26 || true; systemctl start sglang-k26")


def test_the_gateway_is_installed_and_proved_without_workers(fleet):
    fleet.done(fleet.playbook("playbooks/gateway.yml"))
    assert fleet.workers() == {}
    assert fleet.done(fleet.playbook("playbooks/gateway.yml")).changed == 0


def test_the_admin_key_is_asked_for_and_stands_nowhere(fleet):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{GATEWAY}/workers", timeout=10)
    places = "/etc/systemd/system/model-gateway.service /proc/$(systemctl show -P MainPID model-gateway)/cmdline"
    assert fleet.gateway.shell(f"grep -l {KEY} {places} || true") == ""
    assert fleet.gateway.shell(f"journalctl -u model-gateway | grep -c {KEY} || true").strip() == "0"


def test_an_engine_takes_traffic_because_it_is_proved(fleet):
    fleet.done(fleet.playbook("deploy.yml", "-e", "traffic_kind=none"))
    assert fleet.workers() == {}
    fleet.done(fleet.move("main"))
    fleet.await_workers(FIRST, SECOND)
    assert fleet.done(fleet.move("main")).changed == 0
    assert fleet.done(fleet.move("in")).changed == 0


def test_no_request_is_lost_while_one_engine_after_the_other_is_restarted(fleet):
    with Load(GATEWAY, "tiny", RATE) as load:
        for host, other in ((fleet.first, SECOND), (fleet.second, FIRST)):
            fleet.done(fleet.move("out", "--limit", host.host))
            fleet.await_workers(other)
            restart(host)
            fleet.await_metric(host, "proved", 1)
            fleet.await_workers(other)  # proved, and held out all the same
            fleet.done(fleet.move("in", "--limit", host.host))
            fleet.await_workers(FIRST, SECOND)
    fleet.nothing_was_lost(load.outcome)
    assert set(load.outcome.by_engine()) == {FIRST, SECOND}


def test_the_last_that_serves_is_not_taken_out(fleet):
    run = fleet.move("out")
    assert run.status == 2
    assert "traffic_minimum_serving: declared 1" in run.said and "it serves as before" in run.said
    assert list(fleet.workers().values()).count("ready") == 1
    fleet.done(fleet.move("in"))
    fleet.await_workers(FIRST, SECOND)


def test_requests_that_are_overdue_put_the_engine_back(fleet):
    with Load(GATEWAY, "tiny", rate=1, prefix="long", tokens=400) as load:
        fleet.await_that(lambda: len(load.outcome.sent) >= 4)
        load.stop()
        run = fleet.move("out", "--limit", "traffic1", "-e", "traffic_drain_timeout=1")
        assert run.status == 2
        assert "requests in flight" in run.said and "traffic_drain_overdue=proceed" in run.said
        fleet.await_workers(FIRST, SECOND)
    fleet.nothing_was_lost(load.outcome)


def test_an_engine_that_is_restarted_by_hand_loses_nothing_and_comes_back_proved(fleet):
    start = fleet.first.start()
    with Load(GATEWAY, "tiny", RATE, prefix="hand") as load:
        fleet.await_that(lambda: load.outcome.by_engine()[FIRST] > 20)
        restart(fleet.first)
        assert fleet.first.start() != start
        fleet.await_workers(FIRST, SECOND)
        fleet.await_that(lambda: load.outcome.by_engine()[FIRST] > 200)
    fleet.nothing_was_lost(load.outcome)


def test_an_engine_that_dies_leaves_at_once_and_comes_back_proved(fleet):
    fleet.first.shell("kill -KILL $(systemctl show -P MainPID sglang-k26)")
    fleet.await_workers(SECOND)
    restart(fleet.first)  # RestartSec is not waited for
    fleet.await_workers(FIRST, SECOND)


def test_out_and_in_by_hand(fleet):
    assert "gets no new requests" in fleet.first.shell("sglang-deploy out k26")
    fleet.await_workers(SECOND)
    assert "takes traffic" in fleet.first.shell("sglang-deploy in k26")
    fleet.await_workers(FIRST, SECOND)


def test_a_gateway_that_restarts_gets_its_engines_again(fleet):
    fleet.done(fleet.playbook("playbooks/gateway.yml", "-e", "model_gateway_policy=random"))
    fleet.await_workers(FIRST, SECOND)
    assert "--policy random" in fleet.gateway.shell("systemctl cat model-gateway")


def test_a_failing_check_is_an_alarm_and_takes_nobody_out(fleet):
    drop_in = "/etc/systemd/system/sglang-k26.service.d/by-hand.conf"
    fleet.second.shell(f"mkdir -p $(dirname {drop_in}); printf '[Service]\\nEnvironment=SGLANG_BY_HAND=1\\n' >{drop_in}")
    fleet.second.shell("systemctl daemon-reload; systemctl restart sglang-traffic@k26")
    fleet.await_that(lambda: 'alarm{instance="k26"} 1' in fleet.second.shell(f"cat {METRICS}"))
    alarm = fleet.second.shell("journalctl -u sglang-traffic@k26 -p 1 -o cat --no-pager")
    assert "SGLANG_BY_HAND" in alarm and "It goes on serving" in alarm
    assert fleet.workers()[SECOND] == "ready"
    fleet.second.shell(f"rm {drop_in}; systemctl daemon-reload")


def test_another_balancer_is_told_by_its_command(fleet, tmp_path):
    told = tmp_path / "told"
    words = {f"traffic_command_{way}": ["sh", "-c", f"echo {way} >>{told}"] for way in ("out", "in")}
    variables = json.dumps({"traffic_kind": "command", **words})
    fleet.done(fleet.move("out", "--limit", "traffic1", "-e", variables))
    fleet.done(fleet.move("in", "--limit", "traffic1", "-e", variables))
    assert told.read_text() == "out\nin\n"


def test_a_host_that_reboots_into_another_unit_gets_no_requests(fleet):
    fleet.first.shell("sed -i 's/window-size 2048/window-size 1024/' /etc/systemd/system/sglang-k26.service")
    boot = fleet.first.shell("cat /proc/sys/kernel/random/boot_id")
    fleet.first.shell("systemctl --no-block reboot")
    fleet.await_that(lambda: answers(fleet.first) and fleet.first.shell("cat /proc/sys/kernel/random/boot_id") != boot)
    fleet.await_that(lambda: "It gets no requests" in fleet.first.shell("journalctl -b -p 1 -o cat --no-pager"))
    alarm = fleet.first.shell("journalctl -b -u sglang-traffic@k26 -p 1 -o cat --no-pager")
    assert "window: declared 2048, found 1024" in alarm
    fleet.await_that(lambda: answers(fleet.first, "curl -sf http://127.0.0.1:30000/health"))
    fleet.await_workers(SECOND)


def answers(host, script="true"):
    try:
        host.shell(script)
    except subprocess.CalledProcessError:
        return False
    return True
