"""Eight hosts behind the real gateway, with requests on them all the time: what a rollout touches, loses and leaves.

The engines are the stand-in, testhosts/lying_engine, because eight real ones do not fit; gateway and hosts are real.
"""

from __future__ import annotations

import re

from faults import DRAFT_LINE
from rollout_fleet import HONEST, NAMES, begun_until_it_restarts

# The founding failure: an engine that is told 2048 has a worker that runs without a window.
TOLD, RUNS = (DRAFT_LINE.format(window=window, compact=compact) for window, compact in ((2048, True), (None, False)))
LIE = {**HONEST, "at": [{"line": TOLD, "do": "instead", "value": RUNS}]}


def test_a_setting_that_does_not_hold_touches_one_host_which_goes_back_and_serves(fleet):
    assert fleet.serving() == set(NAMES)
    before = fleet.starts()
    fleet.told(LIE, "fleet1")
    with fleet.under_load():
        run = fleet.deploy("-e", "window=2048")
    assert run.status == 2
    assert "window: declared 2048, found none (effective hop, differs)" in run.said, run.output
    assert "back sglang-k26.service runs again what was verified" in run.said
    assert "rollout ends: 1 failed, 0 allowed stands fleet2, fleet3, fleet4, fleet5, fleet6, fleet7, fleet8 not" in run.said
    after = fleet.starts()
    assert {name for name in NAMES if after[name] != before[name]} == {"fleet1"}
    assert set(fleet.windows().values()) == {"1024"}
    assert fleet.serving() == set(NAMES)


def test_a_rollout_whose_controller_is_killed_in_the_second_batch_is_gone_on_with_and_loses_nothing(fleet):
    fleet.told(HONEST, "fleet1")
    before = fleet.starts()
    with fleet.under_load():
        begun_until_it_restarts("fleet3", "-e", "window=512").kill()
        run = fleet.done(fleet.deploy("-e", "window=512"))
    plan = re.search(r"Rollout [0-9a-f]{8}: 8 hosts, (\d) to restart, .*recorded loads", run.output)
    assert int(plan[1]) < 7  # the canary, and who had begun
    after = fleet.starts()
    assert all(after[name] != before[name] for name in NAMES)
    assert set(fleet.windows().values()) == {"512"}
    assert fleet.serving() == set(NAMES)


def test_nothing_to_change_restarts_and_drains_nobody(fleet):
    before = fleet.starts()
    run = fleet.done(fleet.deploy("-e", "window=512"))
    assert run.changed == 0
    assert "8 hosts, 0 to restart" in run.output
    assert fleet.starts() == before
