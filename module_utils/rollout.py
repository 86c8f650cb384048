"""A rollout as data: which hosts change together, in which order, how long that takes. Pure, no I/O.

A host is {"name", "instances"}, each instance {"instance", "digest", "restart", "why", "loads", "timeout"}; a load
is {"seconds", "cold"}, a start that was proved before, and `timeout` the seconds that a start may take.
"""

from __future__ import annotations

import hashlib
import json
import math

ENOUGH = 3  # recorded loads of an instance from which its own range says more than that of its fleet
STEP = (5, 60)  # seconds that one batch takes besides loads, drain and soak: connections, modules, the proof


class Refused(Exception):
    """This rollout cannot be made as its policy says. `problems` are sentences."""

    def __init__(self, problems):
        super().__init__("\n".join(problems))
        self.problems = problems


def check(policy):
    """Raises Refused where what is declared does not go together; each value by itself is legal."""
    alone = [name for name, domain in policy["apart"].items() if not domain]
    if alone and len(alone) < len(policy["apart"]):
        name, domain = next(item for item in policy["apart"].items() if item[1])
        raise Refused(
            [
                f"rollout_apart: declared nothing for {', '.join(alone)}, and {domain} for {name}. Legal is a value for "
                "each host, or for none: a host that shares nothing has one of its own, such as its name"
            ]
        )
    asked = [check["name"] for check in policy["analysis"] if check["query"]]
    if asked and not policy["prometheus"]:
        raise Refused([f"rollout_prometheus: declared nothing, and rollout_analysis asks it for {', '.join(asked)}"])


def make(order, hosts, policy):
    """The plan of a rollout of the `hosts` that are alive. Raises Refused.

    order: the names of all hosts of the play, as `serial` takes them; who is not alive was lost before it began.
    Returns {"id", "hosts", "batches", "sizes", "seconds", "recorded", "lost", "longest", "policy"}: `sizes` are those for
    `serial`, `seconds` is [low, high], `longest` how long one batch may take if all of it fails and goes back.
    """
    check(policy)
    alive = {host["name"]: host for host in hosts}
    lost = [name for name in order if name not in alive]
    hosts = [alive.get(name, {"name": name, "instances": []}) for name in order]
    if len(lost) > policy["failures_allowed"]:
        lease = f" -e rollout_lease_host={next(iter(alive), '')}" if policy["lease_host"] in lost else ""
        raise Refused(
            [
                f"{', '.join(lost)}: failed or unreachable before the rollout began, and rollout_failures_allowed is "
                f"{policy['failures_allowed']}. Next: mend it, or leave it out with --limit 'all,!{lost[0]}'{lease}"
            ]
        )
    torn = together(lost, hosts, policy)
    if torn:
        raise Refused(
            [
                f"rollout_apart: {', '.join(lost)} failed or is unreachable, and {', '.join(torn)}, declared "
                f"{policy['apart'][torn[0]]} as well, would be out of traffic with it. Next: mend it, or leave both out "
                f"with --limit 'all,{','.join('!' + name for name in (*lost, *torn))}'"
            ]
        )
    slices = batches(hosts, policy, most_at_once(len(lost), policy))
    pool = [load for host in hosts for instance in host["instances"] for load in instance["loads"]]
    told = [
        {
            "name": host["name"],
            "batch": number,
            "apart": policy["apart"].get(host["name"], ""),
            "restart": restarts(host),
            "why": why(host),
            "seconds": load_range(host, pool),
        }
        for number, batch in enumerate(slices, 1)
        for host in batch
    ]
    ranges = [batch_range(batch, pool, policy) for batch in slices]
    return {
        "id": identity(hosts),
        "hosts": told,
        "batches": [[host["name"] for host in batch] for batch in slices],
        "sizes": [len(batch) for batch in slices],
        "seconds": total(ranges),
        "recorded": {"loads": len(pool), "cold": sum(load["cold"] for load in pool)},
        "lost": lost,
        "longest": max((longest(batch, policy) for batch in slices), default=0),
        "policy": reported(policy),
    }


def reported(policy):
    """The policy as it is printed and kept: a URL may have a password in it."""
    told = {name: value for name, value in policy.items() if name not in ("prometheus", "apart")}
    return {**told, "analysis": [check["name"] for check in policy["analysis"]]}


def identity(hosts):
    """Names what all hosts will run, so that an approval holds for this, also when a later run goes on with it."""
    wanted = {host["name"]: [[i["instance"], i["digest"]] for i in host["instances"]] for host in hosts}
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:8]


def most_at_once(lost, policy):
    """How many hosts may be away together: each holds a fork while it waits, and enough must go on serving."""
    minimum, fleet = policy["serving_minimum"], policy["fleet"]
    if minimum.endswith("%"):
        minimum = math.ceil(fleet * int(minimum[:-1]) / 100)
    return max(1, min(policy["forks"], fleet - lost - int(minimum)))


def together(lost, hosts, policy):
    """Names of the hosts that restart and must not be away while those that are lost are."""
    domains = {policy["apart"].get(name) for name in lost} - {None, ""}
    return [host["name"] for host in hosts if restarts(host) and policy["apart"].get(host["name"]) in domains]


def restarts(host):
    return any(instance["restart"] for instance in host["instances"])


def why(host):
    """Why it restarts; where it has several instances, which of them do."""
    reasons = {}
    for instance in host["instances"]:
        if instance["restart"]:
            reasons.setdefault(instance["why"], []).append(instance["instance"])
    if len(host["instances"]) == 1:
        return "".join(reasons)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


def batches(hosts, policy, most):
    """Cut the hosts, in their order, into lists of which each restarts no more than it may.

    Hosts that stay as they are go with whom they stand by: they are only proved, and cost nobody anything.
    """
    total = sum(map(restarts, hosts))
    sizes = [min(most, size_of(size, total)) for size in policy["batches"]]
    slices, away = [[]], []
    for host in hosts:
        if restarts(host):
            domain = policy["apart"].get(host["name"])
            full = len(away) >= sizes[min(len(slices), len(sizes)) - 1]
            if away and (full or (domain and domain in away)):
                slices.append([])
                away = []
            away.append(domain)
        slices[-1].append(host)
    return slices


def size_of(size, total):
    """`3`, or `25%` of those that restart, at least one."""
    size = str(size)
    return max(1, total * int(size[:-1]) // 100) if size.endswith("%") else int(size)


def load_range(host, pool):
    """[low, high] seconds in which the instances of a host that restart load, one after the other."""
    low = high = 0
    for instance in host["instances"]:
        if instance["restart"]:
            known = instance["loads"] if len(instance["loads"]) >= ENOUGH else pool
            seconds = [load["seconds"] for load in known] or [0, instance["timeout"]]
            low, high = low + min(seconds), high + max(seconds)
    return [round(low), round(high)]


def batch_range(hosts, pool, policy):
    """[low, high] seconds of one batch, as long as its slowest host; the instances of a host take their turns."""
    away = [host for host in hosts if restarts(host)]
    if not away:
        return [0, STEP[1]]
    low, high = (max(bounds) for bounds in zip(*(load_range(host, pool) for host in away)))
    soak = policy["soak"] * max(sum(instance["restart"] for instance in host["instances"]) for host in away)
    drain = policy["drain_timeout"] * max(len(host["instances"]) for host in away)
    return [low + soak + STEP[0], high + soak + STEP[1] + drain]


def longest(hosts, policy):
    """Seconds of a batch: its hosts leave one after the other, are drained, and start until their time is over; all that
    again to go back. The instances of a host take their turns, in a soak too."""
    most = max((len(host["instances"]) for host in hosts), default=0)
    start = max((sum(i["timeout"] for i in host["instances"]) for host in hosts), default=0)
    leaving = policy["traffic_timeout"] * sum(len(host["instances"]) for host in hosts if restarts(host))
    return 2 * (leaving + most * policy["drain_timeout"] + start + STEP[1]) + most * policy["soak"]


def total(ranges):
    return [sum(low for low, _ in ranges), sum(high for _, high in ranges)]


def text(plan):
    """The plan as lines for people."""
    away = [host for host in plan["hosts"] if host["restart"]]
    lines = [f"Rollout {plan['id']}: {count(len(plan['hosts']))}, {len(away)} to restart"]
    if away:
        lines[0] += f", {duration(plan['seconds'])} ({basis(plan)})"
    for number in range(1, len(plan["batches"]) + 1):
        for why, members in grouped([h for h in away if h["batch"] == number]):
            lines.append(f"  batch {number}  {', '.join(members)}: {why}")
        same = [
            h["name"] for h in plan["hosts"] if h["batch"] == number and not h["restart"] and h["name"] not in plan["lost"]
        ]
        if same:
            lines.append(f"  batch {number}  {', '.join(same)}: no restart")
    if plan["lost"]:
        lines.append(f"  without  {', '.join(plan['lost'])}: failed or unreachable")
    if away:
        first = plan["batches"][away[0]["batch"] - 1]
        cost = [h for h in away if h["name"] in first]
        loads = [2 * bound for bound in (min(h["seconds"][0] for h in cost), max(h["seconds"][1] for h in cost))]
        lines.append(
            f"  at worst a setting that does not hold takes {count(len(cost))} out of traffic, "
            f"for two loads: {duration(loads)}"
        )
    return lines


def grouped(hosts):
    """[(why, names)], hosts with the same reason together, in their order."""
    groups = {}
    for host in hosts:
        groups.setdefault(host["why"], []).append(host["name"])
    return groups.items()


def basis(plan):
    recorded = plan["recorded"]
    if not recorded["loads"]:
        return "no load was recorded yet: up to the deadline of a start"
    return f"from {recorded['loads']} recorded loads, {recorded['cold']} of them cold"


def count(hosts):
    return f"{hosts} host{'' if hosts == 1 else 's'}"


def duration(seconds):
    """`4 to 15 min`, `40 to 90 s`, `50 min to 2 h 10 min`."""
    low, high = (_duration(bound) for bound in seconds)
    if low == high:
        return high
    if low.split()[1:] == high.split()[1:] and len(low.split()) == 2:
        low = low.split()[0]
    return f"{low} to {high}"


def _duration(seconds):
    if seconds < 120:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
