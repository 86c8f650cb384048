"""Which hosts change together, in which order, and how long that takes."""

from __future__ import annotations

import pytest
from ansible.module_utils import rollout

POLICY = {
    "batches": ["1", "25%", "100%"], "failures_allowed": 0, "soak": 0, "deadline": 0, "approval": "none",
    "serving_minimum": "0", "fleet": 8, "forks": 25, "drain_timeout": 0,
    "traffic_timeout": 0, "apart": {}, "lease_host": "gpu1", "analysis": [], "prometheus": "",
}  # fmt: skip


def host(name, restart=True, loads=(), digest="d"):
    loads = [{"seconds": seconds, "cold": seconds > 500} for seconds in loads]
    why = "window: declared 2048, the process runs with none" if restart else ""
    instance = {"instance": "k26", "digest": digest, "restart": restart, "why": why, "loads": loads, "timeout": 1800}
    return {"name": name, "instances": [instance]}


def fleet(pattern, **options):
    """`RsR`: three hosts, the second stays as it is."""
    return [host(f"gpu{number}", restart=letter == "R", **options) for number, letter in enumerate(pattern, 1)]


def plan(hosts, order=None, **policy):
    return rollout.make(order or [host["name"] for host in hosts], hosts, {**POLICY, **policy})


def test_one_host_is_tried_first_then_a_quarter_then_the_rest():
    assert plan(fleet("RRRRRRRR"))["sizes"] == [1, 2, 5]


def test_the_last_size_is_used_again():
    assert plan(fleet("RRRRR"), batches=["1", "2"])["sizes"] == [1, 2, 2]


def test_hosts_that_stay_as_they_are_take_no_place():
    assert plan(fleet("ssRsRRsR"))["sizes"] == [4, 1, 3]


def test_nothing_to_restart_is_one_batch():
    made = plan(fleet("sssss"))
    assert made["sizes"] == [5]
    assert rollout.text(made) == [
        f"Rollout {made['id']}: 5 hosts, 0 to restart",
        "  batch 1  gpu1, gpu2, gpu3, gpu4, gpu5: no restart",
    ]


def test_hosts_of_one_rack_never_restart_together():
    racks = {"gpu1": "a", "gpu2": "b", "gpu3": "b", "gpu4": "a"}
    assert plan(fleet("RRRR"), batches=["4"], apart=racks)["batches"] == [["gpu1", "gpu2"], ["gpu3", "gpu4"]]


def test_a_rack_that_only_some_hosts_have_is_refused():
    with pytest.raises(rollout.Refused, match=r"rollout_apart: declared nothing for gpu2, and a for gpu1\. Legal is"):
        rollout.check({**POLICY, "apart": {"gpu1": "a", "gpu2": ""}})
    rollout.check({**POLICY, "apart": {"gpu1": "", "gpu2": ""}})


def test_no_host_restarts_while_another_of_its_rack_is_lost():
    racks = {"gpu1": "a", "gpu2": "b", "gpu3": "b"}
    lost = {"order": ["gpu1", "gpu2", "gpu3"], "apart": racks, "failures_allowed": 1}
    with pytest.raises(rollout.Refused, match=r"gpu3 failed.*gpu2, declared b as well, .*--limit 'all,!gpu3,!gpu2'"):
        plan(fleet("RR"), **lost)
    assert plan(fleet("Rs"), **lost)["lost"] == ["gpu3"]


def test_the_reason_names_the_instances_where_a_host_has_several():
    one = host("gpu1")
    instances = [{**one["instances"][0], "instance": name} for name in ("k26", "k27", "k28")]
    instances[1] |= {"restart": False, "why": ""}
    why = "window: declared 2048, the process runs with none"
    assert plan([{**one, "instances": instances}])["hosts"][0]["why"] == f"k26, k28: {why}"
    instances[0] |= {"why": "no process runs"}
    assert plan([{**one, "instances": instances}])["hosts"][0]["why"] == f"k26: no process runs; k28: {why}"


def test_no_batch_takes_more_than_may_be_missing():
    assert plan(fleet("RRRRRRRR"), serving_minimum="6")["sizes"] == [1, 2, 2, 2, 1]
    assert plan(fleet("RRRRRRRR"), serving_minimum="70%")["sizes"] == [1, 2, 2, 2, 1]
    assert plan(fleet("RRRRRRRR"), forks=3)["sizes"] == [1, 2, 3, 2]


def test_where_nobody_may_be_missing_one_host_at_a_time_is_asked_for():
    """Who serves now is known when its turn comes: the role traffic refuses then."""
    assert plan(fleet("RRR"), serving_minimum="100%")["sizes"] == [1, 1, 1]


def test_a_host_that_was_lost_before_counts_as_failed():
    hosts = fleet("RR")
    with pytest.raises(rollout.Refused, match=r"gpu3: failed or unreachable before the rollout began.*--limit 'all,!gpu3'"):
        plan(hosts, order=["gpu1", "gpu2", "gpu3"])
    made = plan(hosts, order=["gpu1", "gpu3", "gpu2"], failures_allowed=1)
    assert (made["sizes"], made["lost"]) == ([2, 1], ["gpu3"])


def test_without_the_host_of_the_lease_another_is_named_that_is_alive():
    with pytest.raises(rollout.Refused, match=r"--limit 'all,!gpu0' -e rollout_lease_host=gpu1$"):
        plan(fleet("RR"), order=["gpu0", "gpu1", "gpu2"], lease_host="gpu0")


def test_an_analysis_that_asks_a_prometheus_needs_its_url():
    query = [{"name": "errors", "query": "up"}]
    with pytest.raises(rollout.Refused, match=r"rollout_prometheus: declared nothing.*for errors"):
        plan(fleet("RR"), analysis=query)
    plan(fleet("RR"), analysis=query, prometheus="http://192.0.2.1:9090")


def test_a_lease_outlives_a_batch_whose_hosts_leave_one_by_one_and_whose_instances_soak_in_turn():
    two = [{**one, "instances": 2 * one["instances"]} for one in fleet("RRs")]
    made = plan(two, batches=["2"], soak=600, drain_timeout=300, traffic_timeout=60)
    assert made["longest"] == 2 * (4 * 60 + 2 * 300 + 2 * 1800 + rollout.STEP[1]) + 2 * 600


def test_the_range_is_that_of_the_recorded_loads():
    made = plan([host("gpu1", loads=(270, 280, 900)), host("gpu2", loads=(300, 310, 320))], batches=["1"])
    low, high = rollout.STEP
    assert made["seconds"] == [270 + 300 + 2 * low, 900 + 320 + 2 * high]
    assert made["recorded"] == {"loads": 6, "cold": 1}


def test_a_host_of_which_little_is_known_may_load_like_any_other():
    made = plan([host("gpu1", loads=(270,)), host("gpu2", loads=(900, 880, 890), restart=False)])
    assert made["hosts"][0]["seconds"] == [270, 900]


def test_without_a_record_the_deadline_is_the_bound_and_the_text_says_so():
    made = plan(fleet("R"))
    assert made["hosts"][0]["seconds"] == [0, 1800]
    assert "no load was recorded yet: up to the deadline of a start" in rollout.text(made)[0]


def test_a_batch_lasts_as_long_as_its_slowest_host_and_its_soak():
    hosts = [host("gpu1", loads=(100, 100, 100)), host("gpu2", loads=(200, 200, 200))]
    low, high = rollout.STEP
    made = plan(hosts, batches=["2"], soak=60, drain_timeout=300)
    assert made["seconds"] == [200 + 60 + low, 200 + 60 + high + 300]


def test_instances_of_a_host_are_drained_and_soak_one_after_the_other():
    one = host("gpu1", loads=(100, 100, 100))
    low, high = rollout.STEP
    made = plan([{**one, "instances": 2 * one["instances"]}], soak=60, drain_timeout=300)
    assert made["seconds"] == [2 * (100 + 60) + low, 2 * (100 + 60 + 300) + high]


def test_the_text_groups_hosts_by_reason_and_says_what_a_bad_setting_costs():
    text = rollout.text(plan(fleet("RsRRR", loads=(270, 300, 900))))
    assert "5 hosts, 4 to restart, 14 to 48 min (from 15 recorded loads, 5 of them cold)" in text[0]
    assert text[1:] == [
        "  batch 1  gpu1: window: declared 2048, the process runs with none",
        "  batch 1  gpu2: no restart",
        "  batch 2  gpu3: window: declared 2048, the process runs with none",
        "  batch 3  gpu4, gpu5: window: declared 2048, the process runs with none",
        "  at worst a setting that does not hold takes 1 host out of traffic, for two loads: 9 to 30 min",
    ]  # fmt: skip


def test_the_name_of_a_plan_outlives_a_part_of_it_being_done():
    before = plan([host("gpu1"), host("gpu2")])
    after = plan([host("gpu1", restart=False), host("gpu2")])
    other = plan([host("gpu1", digest="e"), host("gpu2")])
    assert before["id"] == after["id"] != other["id"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ([40, 90], "40 to 90 s"),
        ([240, 900], "4 to 15 min"),
        ([300, 7800], "5 min to 2 h 10 min"),
        ([60, 60], "60 s"),
        ([90, 7200], "90 s to 2 h"),
    ],
)
def test_a_range_for_people(seconds, said):
    assert rollout.duration(seconds) == said


def test_a_url_that_may_have_a_password_is_not_told():
    told = plan(fleet("R"), prometheus="http://reader:secret@192.0.2.1:9090")
    assert "secret" not in str(told)
