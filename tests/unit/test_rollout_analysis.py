"""Pass, fail, or not to be told: a new host's numbers against those of hosts that run the old."""

from __future__ import annotations

import pytest
from ansible.module_utils import rollout_analysis as analysis

CHECK = {"name": "acceptance length", "metric": "sglang:spec_accept_length", "samples": 20, "against": "old"}
BEFORE = """# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{model_name="k {2}",tp_rank="0"} 3.0
sglang:num_requests_total{tp_rank="0"} 100
sglang:num_aborted_requests_total 1
sglang:time_to_first_token_seconds_sum{tp_rank="0"} 10.0
sglang:time_to_first_token_seconds_count{tp_rank="0"} 100
sglang:odd NaN-like
"""
AFTER = (
    BEFORE.replace(" 100\n", " 150\n")
    .replace(" 10.0\n", " 35.0\n")
    .replace(" 3.0\n", " 2.0\n")
    .replace("total 1\n", "total 6\n")
)


def measured(**check):
    return analysis.measure({**CHECK, **check}, analysis.parse(BEFORE), analysis.parse(AFTER))


def test_a_gauge_is_read_at_the_end_and_rests_on_the_requests_between():
    assert measured() == (2.0, 50)


def test_of_a_histogram_the_mean_between_the_samples_counts():
    assert measured(metric="sglang:time_to_first_token_seconds") == (0.5, 50)


def test_a_rate_is_growth_over_growth():
    assert measured(metric="sglang:num_aborted_requests_total", per="sglang:num_requests_total") == (0.1, 50)


def test_what_is_not_said_is_no_number():
    assert measured(metric="sglang:unknown")[0] is None
    assert analysis.measure({**CHECK, "per": "sglang:none"}, {}, {}) == (None, 0)


@pytest.mark.parametrize(
    ("value", "outcome"), [(3.0, "pass"), (2.7, "pass"), (2.6, "inconclusive"), (2.5, "inconclusive"), (2.3, "fail")]
)
def test_between_the_bounds_nobody_can_tell(value, outcome):
    assert analysis.judge({**CHECK, "at_least": 0.9, "fail_below": 0.8}, value, 50, 3.0)[0] == outcome


@pytest.mark.parametrize(("value", "outcome"), [(1.1, "pass"), (1.3, "inconclusive"), (1.6, "fail")])
def test_an_upper_bound_on_the_number_itself(value, outcome):
    assert analysis.judge({**CHECK, "against": "nothing", "at_most": 1.2, "fail_above": 1.5}, value, 50, None)[0] == outcome


def test_without_a_second_bound_there_is_nothing_between():
    assert analysis.judge({**CHECK, "at_least": 0.9}, 2.6, 50, 3.0)[0] == "fail"


def test_too_few_requests_and_no_old_host_are_inconclusive_and_say_so():
    assert analysis.judge({**CHECK, "at_least": 0.9}, 1.0, 3, 3.0) == (
        "inconclusive", "acceptance length: 1, 3 on hosts not yet changed; it rests on 3 requests, and 20 are wanted",
    )  # fmt: skip
    assert analysis.judge({**CHECK, "at_least": 0.9}, 3.0, 50, None)[0] == "inconclusive"


def test_one_failure_fails_and_doubt_stops():
    assert analysis.overall(["pass", "inconclusive", "fail"]) == "fail"
    assert analysis.overall(["pass", "inconclusive"]) == "inconclusive"
    assert analysis.overall([]) == "pass"
