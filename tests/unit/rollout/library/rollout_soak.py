#!/usr/bin/python
"""Stands for the module of this name: the port of the engine decides how the analysis ends."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

OUTCOMES = {"31000": "fail", "32000": "inconclusive"}


def main():
    names = ("unit", "start", "url", "peers", "prometheus", "seconds", "checks")
    module = AnsibleModule({name: {"type": "raw"} for name in names})
    outcome = OUTCOMES.get(module.params["url"].rpartition(":")[2], "pass")
    says = [f"{outcome}: acceptance length: 2, 3 on hosts not yet changed ({', '.join(module.params['peers'])})"]
    if outcome == "fail":
        module.fail_json(msg="The analysis failed.\n  " + says[0], outcome=outcome, says=says)
    module.exit_json(changed=False, outcome=outcome, says=says)


if __name__ == "__main__":
    main()
