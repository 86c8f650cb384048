"""More of what can happen to a rollout of eight hosts, as docs/rollout.md has it. Half an hour on two cores: make fleet."""

from __future__ import annotations

import json
import re

from deployment import Run, hosts
from rollout_fleet import HONEST, NAMES, begun_until_it_restarts

RECORDED = [{"prompt": "the river", "tokens": 16}, {"prompt": "the fox", "tokens": 16}]
NOISE = {**HONEST, "answers": {"/generate": {"patch": {"text": "!!!!"}}}}
SLOWER = {
    **HONEST,
    "answers": {"/metrics": {"body": "sglang:num_requests_total 999\nsglang:spec_accept_length 1.1\n", "status": 200}},
}
ANALYSIS = {
    "rollout_soak": 10,
    "rollout_analysis": [
        {"name": "acceptance length", "metric": "sglang:spec_accept_length", "at_least": 0.9, "samples": 0},
    ],
}  # fmt: skip


def test_what_was_done_by_hand_is_not_done_again(fleet):
    fleet.done(fleet.deploy("-e", "window=512", "--limit", "fleet2,fleet4,fleet6"))
    before = fleet.starts()
    with fleet.under_load():
        run = fleet.done(fleet.deploy("-e", "window=512"))
    assert "8 hosts, 5 to restart" in run.output
    after = fleet.starts()
    assert {name for name in NAMES if after[name] == before[name]} == {"fleet2", "fleet4", "fleet6"}
    assert fleet.serving() == set(NAMES)


def test_answers_that_are_recorded_pass_and_noise_goes_back(fleet, tmp_path):
    file = tmp_path / "prompts.yml"
    (tmp_path / "asked.json").write_text(json.dumps({"sglang_service_prompts": RECORDED}))
    arguments = ("-e", f"@{tmp_path / 'asked.json'}", "-e", f"sglang_service_prompts_record={file}", "--limit", "fleet1")
    fleet.done(fleet.playbook("playbooks/record_answers.yml", *arguments))
    assert "answer: ' " in file.read_text()

    fleet.done(fleet.deploy("-e", f"@{file}", "-e", "window=512", "--limit", "fleet1"))
    fleet.told(NOISE, "fleet1")
    before, windows = fleet.starts(), fleet.windows()
    run = fleet.deploy("-e", f"@{file}", "-e", "window=256")
    assert run.status == 2
    assert "prompts: declared a score of 0.5, found 0.00 in the mean of 2." in run.said
    assert "back sglang-k26.service runs again what was verified" in run.said
    after = fleet.starts()
    assert {name for name in NAMES if after[name] != before[name]} == {"fleet1"}
    assert fleet.windows() == windows and fleet.serving() == set(NAMES)
    fleet.told(HONEST, "fleet1")


def test_a_host_whose_numbers_are_worse_under_traffic_goes_back(fleet):
    fleet.told(SLOWER, "fleet1")
    with fleet.under_load():
        run = fleet.deploy("-e", "window=256", "-e", json.dumps(ANALYSIS))
    assert run.status == 2
    assert re.search(r"fail: acceptance length: 1\.1, 3\.2 on hosts not yet changed; 0\.34\d* times the old", run.said)
    assert set(fleet.windows().values()) == {"512"} and fleet.serving() == set(NAMES)
    assert fleet.done(fleet.deploy("-e", "window=512")).changed == 0  # what was wrong is not the verified state
    fleet.told(HONEST, "fleet1")


def test_a_host_that_dies_in_its_turn_ends_the_rollout_when_its_batch_is_done(fleet):
    going = begun_until_it_restarts("fleet3", "-e", "window=256")
    hosts("down", "fleet3")
    run = Run(going.end(), going.output)
    assert run.status == 4
    assert "not reached: fleet3" in run.said and "stands fleet4, fleet5, fleet6, fleet7, fleet8 not reached" in run.said
    del fleet.hosts["fleet3"]
    assert fleet.windows() == {"fleet1": "256", "fleet2": "256", **dict.fromkeys(NAMES[3:], "512")}
    assert fleet.serving() == set(NAMES) - {"fleet3"}

    fleet.done(fleet.deploy("-e", "window=256", "--limit", "all,!fleet3"))
