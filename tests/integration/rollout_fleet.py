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
        with urllib.request.urlopen(f"{GATEWAY}/workers", timeout=10) as answer:
            workers = json.load(answer)["workers"]
        return {f"fleet{worker['url'][-7]}" for worker in workers if worker["status"] == "ready"}

    def told(self, scenario, *names):
        """From its next start on, an engine behaves so (testhosts/lying_engine/README.md)."""
        file, text = "/etc/lying-engine/30000.json", json.dumps(scenario)
        for name in names:
            self.hosts[name].shell(f"umask 022; mkdir -p /etc/lying-engine; printf %s '{text}' >{file}")

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
        script = "journalctl -o cat --no-pager -u sglang-k26 | grep -o \"rid='[^']*\" || true"
        return Counter(line[5:] for host in self.hosts.values() for line in host.shell(script).splitlines())

    def windows(self):
        """What each running engine said that its worker attends to."""
        said = {name: re.findall(r"draft_window_size=(\w+), compact", host.journal()) for name, host in self.hosts.items()}
        return {name: values[-1] for name, values in said.items()}


@contextmanager
def booted():
    """The fleet, every host of it serving with a window of 1024."""
    names = ["fleet0", *NAMES]
    layers = [python(module, *what).strip() for module, what in LAYERS]
    hosts("down", *names)
    hosts("up", *(word for layer in layers for word in ("--layer", layer)), *(f"{n}=10.213.77.16{n[-1]}" for n in names))
    fleet = Fleet()
    fleet.told(HONEST, *NAMES)
    fleet.done(fleet.playbook("playbooks/gateway.yml"))
    # Nobody serves yet, so all may begin at once.
    policy = json.dumps({"rollout_batches": [8], "traffic_minimum_serving": 0})
    fleet.done(fleet.deploy("-e", "window=1024", "-e", policy))
    yield fleet
    hosts("down", *names)


def begun_until_it_restarts(host, *arguments):
    """A run of deploy.yml that has just restarted a host."""
    run, task = Going("-i", INVENTORY, "deploy.yml", *arguments), ""
    for line in run.lines():
        task = line if line.startswith("TASK") else task
        if "Restart, because" in task and line.startswith(f"changed: [{host}]"):
            return run
    raise AssertionError(run.output)
