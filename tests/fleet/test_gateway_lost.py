"""The gateway's host loses power, in service and in a rollout: who serves when it is back, and what a run says meanwhile.

Its cable is pulled and all its processes are killed at once; what it had written is there when it boots. The engines are the
stand-in, testhosts/lying_engine. Some minutes on two cores: make fleet.
"""

from __future__ import annotations

import ipaddress
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest
from deployment import Run
from rollout_fleet import begun_until_it_restarts
from several import ADDRESSES, ENGINES, booted

from testhosts.network import interface

CABLE = interface(ipaddress.ip_address(ADDRESSES["apart0"]))
OTHERWISE = "apart2 k27"


@pytest.fixture(scope="module")
def fleet():
    with booted() as fleet:
        yield fleet


@contextmanager
def without_power(host):
    """A host that is dark: nothing of it was stopped in order, and nothing answers."""
    subprocess.run(["ip", "link", "set", CABLE, "down"], check=True)
    try:
        with suppress(subprocess.CalledProcessError):  # the command may die with its host
            host.shell("systemctl --force --force reboot")
        yield
    finally:
        subprocess.run(["ip", "link", "set", CABLE, "up"], check=True)


def await_serving(fleet, engines, seconds=120):
    """Until the gateway is back, and gives requests to exactly these."""
    until, serving = time.monotonic() + seconds, None
    while serving != engines:
        assert time.monotonic() < until, serving
        time.sleep(0.2)
        with suppress(OSError):
            serving = fleet.serving()


def test_a_gateway_that_lost_power_is_told_of_every_engine_but_the_one_that_is_not_proved(fleet):
    other = fleet.hosts[OTHERWISE]
    with without_power(fleet.gateway):
        other.shell(f"sed -i 's/window-size 1024/window-size 512/' /etc/systemd/system/{other.unit}")
        other.shell(f"systemctl daemon-reload; systemctl restart {other.unit}")
    await_serving(fleet, set(ENGINES) - {OTHERWISE})
    alarm = other.shell("journalctl -u sglang-traffic@k27 -p 1 -o cat --no-pager")
    assert "window: declared 1024, found 512 (unit hop, differs)" in alarm and "It gets no requests" in alarm


def test_a_rollout_that_meets_a_dead_gateway_touches_no_engine_and_says_what_to_do(fleet):
    before = fleet.starts()
    with without_power(fleet.gateway):
        run = fleet.deploy("-e", "window_of_all=512")
        for engine in fleet.hosts.values():
            engine.shell(f"curl -sf http://127.0.0.1:{engine.port}/health")
    assert run.status == 2
    assert "the gateway http://10.213.77.230:8000 does not answer: " in run.said
    assert "next on its host: systemctl status model-gateway" in run.said
    assert "traffic it serves as before, its engine was not touched" in run.said
    assert "stands apart2, apart3, apart4 not reached, as before; the same command goes on from here" in run.said
    assert fleet.starts() == before
    await_serving(fleet, set(ENGINES) - {OTHERWISE})


def test_a_host_that_is_proved_while_the_gateway_is_dead_is_registered_by_itself(fleet):
    before = fleet.starts()
    going = begun_until_it_restarts("apart1", "-e", "window_of_all=512", inventory=fleet.inventory)
    with without_power(fleet.gateway):
        run = Run(going.end(), going.output)
    assert run.status == 2
    last_screen = run.said[run.said.rindex("NOT PROVED") :]
    assert last_screen.count("the gateway http://10.213.77.230:8000 does not answer: ") == 1
    assert "stays sglang-k26.service, sglang-k27.service, as this run changed and proved it" in last_screen
    await_serving(fleet, set(ENGINES) - {OTHERWISE})
    assert {name for name, start in fleet.starts().items() if start != before[name]} == {"apart1 k26", "apart1 k27"}


def test_the_same_command_converges_also_if_the_gateway_boots_once_more_meanwhile(fleet):
    before = fleet.starts()
    going = begun_until_it_restarts("apart2", "-e", "window_of_all=512", inventory=fleet.inventory)
    with without_power(fleet.gateway):
        pass
    assert going.end() == 0, going.output
    await_serving(fleet, set(ENGINES))
    assert {name for name, start in fleet.starts().items() if start == before[name]} == {"apart1 k26", "apart1 k27"}
    assert set(fleet.windows().values()) == {"512"}
