#!/usr/bin/python
"""Refuses an analysis that Prometheus will not be able to answer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_queries
short_description: Put the queries of an analysis to Prometheus before a rollout begins
description:
  - A Prometheus that is away, a query that it does not understand and one that answers with more than one number would leave
    a rollout undecided when its first host has changed already. All of them fail here, in one message.
  - That there is no data yet is no failure.
options:
  prometheus:
    description: URL of the Prometheus, reached from this host. Name and password in it are sent as such.
    type: str
    required: true
  checks:
    description: The O(rollout_soak#module:checks) of C(rollout_soak); those without a C(query) are not looked at.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Ask Prometheus before anything is changed
  rollout_queries:
    prometheus: http://192.0.2.1:9090
    checks:
      - {name: errors, query: "sum(rate(sglang:num_aborted_requests_total[5m]))", at_most: 0.1}
"""

RETURN = r"""#"""

from ansible.module_utils import prometheus
from ansible.module_utils import rollout_analysis as analysis
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_proof.errors import CannotRead


def main():
    module = AnsibleModule(
        {
            "prometheus": {"type": "str", "required": True, "no_log": True},
            "checks": analysis.CHECKS,
        },
        supports_check_mode=True,
    )
    problems = list(unanswered(module.params["prometheus"], module.params["checks"]))
    if problems:
        module.fail_json(
            msg="\n".join(
                [
                    "rollout_analysis: this rollout could not be judged by its numbers. Nothing was changed.",
                    *(f"  {problem}" for problem in problems),
                    "  next     try the query on the page of Prometheus itself, or correct rollout_prometheus",
                ]
            )
        )
    module.exit_json(changed=False)


def unanswered(url, checks):
    """A sentence for each query that cannot be answered, also not later."""
    for check in checks:
        if not check["query"]:
            continue
        try:
            prometheus.ask(url, check["query"])
        except analysis.NoDataYet:
            continue
        except (CannotRead, analysis.NoNumber) as error:
            yield f"{check['name']}: rollout_prometheus {error}; asked: {check['query']}"


if __name__ == "__main__":
    main()
