#!/usr/bin/python
"""Watches a start for a while under traffic, and compares its numbers with those of hosts that run the old."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_soak
short_description: Watch a start under traffic, and analyse it
description:
  - Fails if O(start) does not live to the end of O(seconds), or does not answer then.
  - Each of O(checks) has one of three outcomes. C(pass); C(fail), and the module fails; C(inconclusive), where the number
    lies between the bounds or rests on too few requests, or Prometheus has none, and the module ends well with RV(outcome)
    saying so.
options:
  unit:
    description: The unit.
    type: str
    required: true
  start:
    description: Its start that was proved, RV(sglang_startup#module:start).
    type: dict
    required: true
  url:
    description: Where its engine answers, seen from this host.
    type: str
    required: true
  peers:
    description: The same of hosts that are not changed yet. Where there are none, what is compared with them passes unasked.
    type: list
    elements: str
    default: []
  prometheus:
    description:
      - URL of a Prometheus for checks with a C(query), reached from this host. Name and password in it are sent as such.
    type: str
  seconds:
    description: How long.
    type: int
    default: 0
  checks:
    description: What is looked at, and its bounds.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: For people.
        type: str
        required: true
      metric:
        description: A name in C(/metrics) of the engine; of a histogram without C(_sum), its mean.
        type: str
      per:
        description: A counter; the growth of C(metric) is divided by its growth.
        type: str
      query:
        description: A PromQL query with one number as its answer, instead of C(metric). Its bounds are of the number itself.
        type: str
      samples:
        description: Requests that a C(metric) must rest on.
        type: int
        default: 20
      against:
        description: V(old) compares the ratio to the hosts that run the old, V(nothing) the number itself.
        type: str
        choices: [old, nothing]
        default: old
      at_least:
        description: Passes from here.
        type: float
      fail_below:
        description: Fails below, by default where it does not pass.
        type: float
      at_most:
        description: Passes up to here.
        type: float
      fail_above:
        description: Fails above, by default where it does not pass.
        type: float
attributes:
  check_mode:
    support: full
    details: Nothing is waited for.
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Watch it for five minutes
  rollout_soak:
    unit: sglang-k26.service
    start: "{{ proved.start }}"
    url: http://127.0.0.1:30000
    peers: ["http://192.0.2.12:30000"]
    seconds: 300
    checks:
      - {name: acceptance length, metric: "sglang:spec_accept_length", at_least: 0.95, fail_below: 0.8}
"""

RETURN = r"""
outcome:
  description: C(pass), C(fail) or C(inconclusive).
  type: str
  returned: outside check mode
says:
  description: A sentence for each check.
  type: list
  elements: str
  returned: outside check mode
"""

import statistics

from ansible.module_utils import prometheus
from ansible.module_utils import rollout_analysis as analysis
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotRead, Host

LOOK = 2  # seconds between two looks at the start
ANSWER = 60  # seconds for /health, which waits behind a long prefill


def main():
    module = AnsibleModule(
        {
            "unit": {"type": "str", "required": True},
            "start": {"type": "dict", "required": True},
            "url": {"type": "str", "required": True},
            "peers": {"type": "list", "elements": "str", "default": []},
            "prometheus": {"type": "str", "no_log": True},
            "seconds": {"type": "int", "default": 0},
            "checks": analysis.CHECKS,
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False)
    params = module.params
    try:
        before = {url: sample(url) for url in [params["url"], *params["peers"]]} if params["checks"] else {}
        watch(Host(), params)
        judged = [judge(check, params, before) for check in params["checks"]]
    except Wrong as error:
        module.fail_json(msg=str(error), outcome=analysis.FAIL)
    except CannotRead as error:
        module.fail_json(msg=str(error))
    says = [f"{outcome}: {sentence}" for outcome, sentence in judged]
    outcome = analysis.overall([outcome for outcome, _ in judged])
    if outcome == analysis.FAIL:
        module.fail_json(msg="The analysis failed.\n" + "\n".join(f"  {line}" for line in says), outcome=outcome, says=says)
    module.exit_json(changed=False, outcome=outcome, says=says)


class Wrong(Exception):
    """The start did not live, or does not answer."""


def watch(host, params):
    """Raises Wrong if the start that was proved ends, or does not answer at the end."""
    start = params["start"]["invocation"], params["start"]["pid"]
    until = host.clock() + params["seconds"]
    while True:
        now = identity(host, params["unit"])
        if now != start:
            raise Wrong(
                f"{params['unit']}: its start did not live through a soak of {params['seconds']} s "
                f"(invocation {start[0][:8]} was followed by {now[0][:8] or 'none'})\n"
                f"  next     journalctl _SYSTEMD_INVOCATION_ID={start[0]} on the host"
            )
        if host.clock() >= until:
            break
        host.sleep(max(0, min(LOOK, until - host.clock())))
    try:
        prometheus.fetch(params["url"] + "/health", ANSWER)
    except CannotRead as error:
        raise Wrong(f"{params['unit']} does not answer any more: {params['url']}/health {error}") from None


def identity(host, name):
    unit = host.unit(name)
    return unit.invocation_id, unit.main_pid


def judge(check, params, before):
    if check["query"]:
        try:
            value = prometheus.ask(params["prometheus"], check["query"])
        except (CannotRead, analysis.NoNumber) as error:
            return analysis.INCONCLUSIVE, f"{check['name']}: rollout_prometheus {error}; asked: {check['query']}"
        return analysis.judge({**check, "against": "nothing"}, value, None, None)
    if check["against"] == "old" and not params["peers"]:
        return analysis.PASS, f"{check['name']}: not asked, no host that runs the old is left"
    values = {url: analysis.measure(check, before[url], sample(url)) for url in before}
    value, number = values.pop(params["url"])
    known = [old for old, requests in values.values() if old is not None and requests >= check["samples"]]
    return analysis.judge(check, value, number, statistics.median(known) if known else None)


def sample(url):
    """What /metrics says now; a peer that does not answer says nothing."""
    try:
        return analysis.parse(prometheus.fetch(url + "/metrics", 10))
    except CannotRead:
        return {}


if __name__ == "__main__":
    main()
