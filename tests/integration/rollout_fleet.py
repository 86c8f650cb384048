"""Eight hosts with the stand-in engine behind the real gateway, as tests of a rollout see them."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from deployment import Deployment, Going, hosts, python
from load import Load

INVENTORY = Path(__file__).with_name("fleet")
GATEWAY = "http://10.213.77.160:8000"
NAMES = [f"fleet{number}" for number in range(1, 9)]
LAYERS = (("testhosts.lying_engine", ["build"]), ("testhosts.model_gateway", []))
RATE = 20  # requests a second
MINIMUM = 4  # hosts that must go on serving, as the inventory declares
HONEST = {"token_seconds": 0.05}


class Fleet:
    names, inventory, url, minimum = NAMES, INVENTORY, GATEWAY, MINIMUM

    def __init__(self):
        self.hosts = {name: Deployment(name) for name in self.names}

    def playbook(self, *arguments):
        return self.hosts[self.names[0]].playbook(*arguments, inventory=self.inventory)

    def deploy(self, *arguments):
        return self.playbook("deploy.yml", *arguments)

    def done(self, run):
        assert run.status == 0, run.output
        return run

    def starts(self):
        """host → the invocation that runs."""
        return {name: host.start()[1] for name, host in self.hosts.items()}

    def serving(self):
        """Names of the hosts that the gateway gives requests to."""
        return {f"fleet{url[-7]}" for url in self.ready()}

    def ready(self):
        """URLs of the engines that the gateway gives requests to."""
        with urllib.request.urlopen(f"{self.url}/workers", timeout=10) as answer:
            return [worker["url"] for worker in json.load(answer)["workers"] if worker["status"] == "ready"]

    def told(self, scenario, *names):
        """From its next start on, an engine behaves so (testhosts/lying_engine/README.md)."""
        text = json.dumps(scenario)
        for host in map(self.hosts.get, names):
            host.shell(f"umask 022; mkdir -p /etc/lying-engine; printf %s '{text}' >/etc/lying-engine/{host.port}.json")

    @contextmanager
    def under_load(self):
        """Requests all the time, none of which may be lost or begun twice; and never fewer hosts than declared."""
        least = len(self.serving())
        with Load(self.url, "tiny", RATE, prefix=uuid4().hex) as load:  # the engines' journals have earlier loads too
            done = threading.Event()

            def watch():
                nonlocal least
                while not done.wait(0.5):
                    least = min(least, len(self.serving()))

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                yield
            finally:
                done.set()
                watcher.join()
        assert (load.outcome.failed, load.outcome.dropped) == ({}, {})
        received = self.received()
        assert load.outcome.sent
        assert {name: received[name] for name in load.outcome.sent if received[name] != 1} == {}
        assert least >= self.minimum

    def received(self):
        """How often an engine began each request, by its id: what the engines logged of it."""
        counts = Counter()
        for host in self.hosts.values():
            lines = host.shell(f"journalctl -o cat --no-pager -u {host.unit} | grep -o \"rid='[^']*\" || true").splitlines()
            counts.update(line[5:] for line in lines)
        return counts

    def windows(self):
        """What each running engine said that its worker attends to."""
        said = {name: re.findall(r"draft_window_size=(\w+), compact", host.journal()) for name, host in self.hosts.items()}
        return {name: values[-1] for name, values in said.items()}


@contextmanager
def booted():
    """The fleet, every host of it serving with a window of 1024."""
    addresses = {name: f"10.213.77.16{name[-1]}" for name in ["fleet0", *NAMES]}
    with serving(Fleet, addresses, "-e", "window=1024") as fleet:
        yield fleet


@contextmanager
def serving(kind, addresses, *arguments):
    """A fleet of this kind, booted, its gateway installed and every engine of it deployed with these arguments."""
    layers = [python(module, *what).strip() for module, what in LAYERS]
    hosts("down", *addresses)
    layered = (word for layer in layers for word in ("--layer", layer))
    hosts("up", *layered, *(f"{name}={address}" for name, address in addresses.items()))
    fleet = kind()
    fleet.told(HONEST, *fleet.names)
    fleet.done(fleet.playbook("playbooks/gateway.yml"))
    # Nobody serves yet, so all may begin at once.
    policy = {"rollout_batches": [len(addresses)], "rollout_apart": "", "traffic_minimum_serving": 0}
    fleet.done(fleet.deploy(*arguments, "-e", json.dumps(policy)))
    yield fleet
    hosts("down", *addresses)


def begun_until_it_restarts(host, *arguments, inventory=INVENTORY):
    """A run of deploy.yml that has just restarted a host."""
    run, task = Going("-i", inventory, "deploy.yml", *arguments), ""
    for line in run.lines():
        task = line if line.startswith("TASK") else task
        if "Restart, because" in task and line.startswith(f"changed: [{host}]"):
            return run
    raise AssertionError(run.output)
