"""Judges a host that runs something new by its numbers and those of hosts that run the old. Pure, no I/O.

A sample is what an engine's /metrics said at one time, {name: [value, …]} over all label sets. A check is
{"name", "metric", "per", "samples", "at_least", "fail_below", "at_most", "fail_above", "against"}.
"""

from __future__ import annotations

import math
import re
import statistics

PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"
REQUESTS = "sglang:num_requests_total"
NUMBERS = ("at_least", "fail_below", "at_most", "fail_above")
CHECKS = {  # as an option of a module
    "type": "list",
    "elements": "dict",
    "default": [],
    "options": {
        "name": {"type": "str", "required": True},
        "metric": {"type": "str"},
        "per": {"type": "str"},
        "query": {"type": "str"},
        "samples": {"type": "int", "default": 20},
        "against": {"type": "str", "choices": ["old", "nothing"], "default": "old"},
        **{name: {"type": "float"} for name in NUMBERS},
    },
    "mutually_exclusive": [("metric", "query")],
    "required_one_of": [("metric", "query"), ("at_least", "at_most")],
}
LINE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)(?: \d+)?\Z")  # of Prometheus' text format


class NoNumber(Exception):
    """An answer of Prometheus has not one number. `str()` says what it has, as a predicate."""


class NoDataYet(NoNumber):
    """It may have one later."""


def parse(text):
    """A sample from the text of /metrics; lines that are no numbers are left out."""
    sample = {}
    for line in text.splitlines():
        found = LINE.match(line)
        try:
            sample.setdefault(found[1], []).append(float(found[2])) if found else None
        except ValueError:
            continue
    return sample


def measure(check, before, after):
    """(value, number of requests it rests on) of one host between two samples; the value is None where it said none."""
    metric = check["metric"]
    if check.get("per"):
        return _ratio(before, after, metric, check["per"])
    if f"{metric}_sum" in after:  # the mean of a histogram
        return _ratio(before, after, f"{metric}_sum", f"{metric}_count")
    value = statistics.mean(after[metric]) if metric in after else None
    return value, _grown(before, after, REQUESTS)


def _ratio(before, after, upper, lower):
    number = _grown(before, after, lower)
    return (_grown(before, after, upper) / number if number else None), number


def _grown(before, after, name):
    return sum(after.get(name, ())) - sum(before.get(name, ()))


def number(answer):
    """The number in an answer of Prometheus' /api/v1/query. Raises NoNumber where it has another, LookupError, TypeError or
    ValueError where it is no such answer."""
    kind, result = answer["data"]["resultType"], answer["data"]["result"]
    if kind not in ("vector", "scalar"):
        raise NoNumber(f"answered with a {kind}, and one number is wanted")
    values = [row["value"] for row in result] if kind == "vector" else [result]
    if not values:
        raise NoDataYet("has no data for it")
    if len(values) > 1:
        raise NoNumber(f"answered with {len(values)} numbers, and one is wanted")
    value = float(values[0][1])
    if math.isnan(value):
        raise NoDataYet("answered NaN, as where nothing was counted")
    return value


def judge(check, value, number, old):
    """(outcome, sentence). old: the value on hosts that run the old, None without any."""
    unit = f"{check['name']}: {_shown(value)}"
    if check["against"] == "old":
        unit += f", {_shown(old)} on hosts not yet changed"
    if value is None or (check["against"] == "old" and not old):
        return INCONCLUSIVE, f"{unit}; there is nothing to compare"
    if number is not None and number < check["samples"]:
        return INCONCLUSIVE, f"{unit}; it rests on {number:g} requests, and {check['samples']} are wanted"
    measured = value / old if check["against"] == "old" else value
    at_least, at_most = check.get("at_least"), check.get("at_most")
    fail_below = check.get("fail_below") if check.get("fail_below") is not None else at_least
    fail_above = check.get("fail_above") if check.get("fail_above") is not None else at_most
    wanted = " and ".join(
        f"at {word} {_shown(bound)}" for word, bound in (("least", at_least), ("most", at_most)) if bound is not None
    )
    ratio = f"; {_shown(measured)} times the old" if check["against"] == "old" else ""
    sentence = f"{unit}{ratio}, wanted {wanted}"
    if (fail_below is not None and measured < fail_below) or (fail_above is not None and measured > fail_above):
        return FAIL, sentence
    if (at_least is None or measured >= at_least) and (at_most is None or measured <= at_most):
        return PASS, sentence
    return INCONCLUSIVE, sentence


def overall(outcomes):
    """One failure fails; what could not be told stops."""
    return next((outcome for outcome in (FAIL, INCONCLUSIVE) if outcome in outcomes), PASS)


def _shown(value):
    return "nothing" if value is None else f"{value:.3g}"
