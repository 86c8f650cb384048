"""Several engines on a host, and hosts of one rack: who leaves traffic with whom, who goes back, who goes on serving.

The engines are the stand-in, testhosts/lying_engine. Some minutes on two cores: make fleet.
"""

from __future__ import annotations

import re

import pytest
from faults import DRAFT_LINE
from rollout_fleet import HONEST
from several import ENGINES, RACKS, booted

# The founding failure: an engine that is told 2048 has a worker that runs without a window.
TOLD, RUNS = (DRAFT_LINE.format(window=window, compact=compact) for window, compact in ((2048, True), (None, False)))
LIE = {**HONEST, "at": [{"line": TOLD, "do": "instead", "value": RUNS}]}


@pytest.fixture(scope="module")
def fleet():
    with booted() as fleet:
        yield fleet


def away(serving):
    """Hosts of which an engine gets no requests."""
    return {name.split()[0] for name in ENGINES if name not in serving}


def keeps_racks_apart(seen):
    """The hosts that were away together, at every time."""
    together = [away(serving) for serving in seen]
    assert all(len({RACKS[host] for host in hosts}) == len(hosts) for hosts in together)
    return together


def changed(fleet, before):
    """The engines that were started since."""
    return {name for name, start in fleet.starts().items() if start != before[name]}


def test_both_engines_of_a_host_change_and_no_two_hosts_of_a_rack_are_away_together(fleet):
    before = fleet.starts()
    with fleet.under_load():
        run = fleet.done(fleet.deploy("-e", "window_of_all=512"))
    assert "4 hosts, 4 to restart" in run.output
    assert changed(fleet, before) == set(ENGINES)
    assert set(fleet.windows().values()) == {"512"} and fleet.serving() == set(ENGINES)
    assert {"apart2", "apart3"} in keeps_racks_apart(fleet.seen)  # the policy allows four at once
    assert "batch 2 apart2, apart3: k26, k27: window: declared 512, the process runs with 1024" in run.said
    assert "batch 3 apart4: k26, k27, k28: window: declared 512" in run.said
    for unit in ("sglang-k26.service", "sglang-k27.service"):
        assert len(re.findall(rf"^apart\d  {unit}  SGLang", run.output, re.MULTILINE)) == 4


def test_one_engine_of_each_host_changes_while_the_others_serve(fleet):
    before = fleet.starts()
    with fleet.under_load():
        fleet.done(fleet.deploy("-e", "window_of_all=512", "-e", "instance=k27", "-e", "window=256"))
    second = {name for name in ENGINES if name.endswith("k27")}
    assert changed(fleet, before) == second
    assert fleet.windows() == {name: "256" if name in second else "512" for name in ENGINES}
    assert set().union(*(set(ENGINES) - serving for serving in fleet.seen)) == second
    keeps_racks_apart(fleet.seen)


def test_an_engine_that_only_one_host_has(fleet):
    before = fleet.starts()
    wanted = ("-e", "window_of_all=512", "-e", "instance=k28", "-e", "window=256")
    run = fleet.deploy(*wanted)
    assert run.status == 2 and "instance: declared k28, but apart1 has k26, k27 (sglang_service_instances)." in run.said
    assert changed(fleet, before) == set()
    fleet.done(fleet.deploy(*wanted, "--limit", "apart4"))
    assert changed(fleet, before) == {"apart4 k28"}


def test_the_second_engine_of_a_host_goes_back_and_the_first_which_is_proved_stays(fleet):
    before, old = fleet.starts(), fleet.windows()
    fleet.told(LIE, "apart1 k27")
    with fleet.under_load():
        run = fleet.deploy("-e", "window_of_all=2048")
    assert run.status == 2
    assert "window: declared 2048, found none (effective hop, differs)" in run.said
    assert "back sglang-k27.service runs again what was verified" in run.said
    assert "stays sglang-k26.service, as this run changed and proved it" in run.said
    assert "rollout ends: 1 failed, 0 allowed stands apart2, apart3, apart4 not reached" in run.said
    assert changed(fleet, before) == {"apart1 k26", "apart1 k27"}
    assert fleet.windows() == {**old, "apart1 k26": "2048"} and fleet.serving() == set(ENGINES)

    fleet.told(HONEST, "apart1 k27")
    between = fleet.starts()
    fleet.done(fleet.deploy("-e", "window_of_all=2048"))
    assert changed(fleet, between) == set(ENGINES) - {"apart1 k26"}
    assert set(fleet.windows().values()) == {"2048"} and fleet.serving() == set(ENGINES)


def test_a_host_serves_as_long_as_one_of_its_engines_does(fleet):
    before = fleet.starts()
    all_serve = ("-e", "traffic_minimum_serving=4", "--limit", "apart1")
    run = fleet.deploy(*all_serve, "-e", "window_of_all=1024")
    assert run.status == 2
    assert "traffic_minimum_serving: declared 4, but without http://10.213.77.231:30001 the gateway" in run.said
    assert "would have 3 serving (10.213.77.232, 10.213.77.233, 10.213.77.234)" in run.said
    assert "traffic it serves as before, its engine was not touched" in run.said
    assert changed(fleet, before) == set() and fleet.serving() == set(ENGINES)

    fleet.done(fleet.deploy(*all_serve, "-e", "window_of_all=2048", "-e", "instance=k26", "-e", "window=1024"))
    assert changed(fleet, before) == {"apart1 k26"} and fleet.serving() == set(ENGINES)


def test_a_rack_that_one_host_does_not_have_is_refused_before_anything_is_touched(fleet, tmp_path):
    (tmp_path / "hosts.yml").write_text('{"sglang": {"hosts": {"apart4": {"rack": ""}}}}')
    run = fleet.deploy("-e", "window_of_all=512", "-i", str(tmp_path / "hosts.yml"))
    assert run.status == 2 and run.changed == 0
    assert "rollout_apart: declared nothing for apart4, and west for apart1. Legal is a value for each host" in run.said
