"""Four hosts with several engines each behind the real gateway, as tests of a rollout see them: by engine, `apart1 k26`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

from deployment import Deployment
from rollout_fleet import Fleet, serving

ADDRESSES = {f"apart{number}": f"10.213.77.23{number}" for number in range(5)}  # apart0 is the gateway
PORTS = {"k26": 30000, "k27": 30001, "k28": 30002}
RACKS = {"apart1": "west", "apart2": "west", "apart3": "east", "apart4": "east"}
ENGINES = [f"{host} {name}" for host in RACKS for name in PORTS if name != "k28" or host == "apart4"]


class Engine(Deployment):
    def __init__(self, name):
        host, self.instance = name.split()
        super().__init__(host)
        self.unit, self.port = f"sglang-{self.instance}.service", PORTS[self.instance]


class Several(Fleet):
    names, inventory, url, minimum = ENGINES, Path(__file__).with_name("several_instances"), "http://10.213.77.230:8000", 1

    def __init__(self):
        self.hosts = {name: Engine(name) for name in ENGINES}
        self.gateway = Deployment("apart0")
        self.seen = []  # who served, whenever it was somebody else, under the last load

    def serving(self):
        """The engines that the gateway gives requests to."""
        names = {f"http://{ADDRESSES[engine.host]}:{engine.port}": name for name, engine in self.hosts.items()}
        serving = {names[url] for url in self.ready()}
        if self.seen[-1:] != [serving]:
            self.seen.append(serving)
        return serving

    @contextmanager
    def under_load(self):
        self.seen = []
        with super().under_load():
            yield


@contextmanager
def booted():
    """All engines serving with a window of 1024."""
    with serving(Several, ADDRESSES) as fleet:
        yield fleet
