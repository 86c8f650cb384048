"""A rollout in miniature for the tests of its report: real runs of ansible-playbook on this machine, modules that pretend.

Eight hosts n1 … n8 change in the batches 1, 3, 4. `fails` names a host whose engine ignores the window: it goes back, the
others of its batch finish, and the gate ends the rollout.
"""

from __future__ import annotations

import json

BATCHES = [["n1"], ["n2", "n3", "n4"], ["n5", "n6", "n7", "n8"]]
HOSTS = [name for batch in BATCHES for name in batch]
CAUSE = """window: declared 2048, found none (effective hop, differs).
  read in  journal 14:03:12: "Initialized DFLASH draft runner. block_size=8, draft_window_size=None, compact_cache=False"
  but      unit, process, echoed carried it
  next     journalctl -u sglang-k26.service -b on the host: look for a warning about window
  back     put back the plan of 2026-11-28, and it is proved again"""
PLAN = {
    "id": "3f2a91bc",
    "batches": BATCHES,
    "hosts": [
        {
            "name": name,
            "batch": number,
            "restart": name != "n1",
            "why": "" if name == "n1" else "window: declared 2048, the process runs with 1024",
            "seconds": [0, 0] if name == "n1" else [280, 910],
        }
        for number, batch in enumerate(BATCHES, 1)
        for name in batch
    ],
    "seconds": [560, 1820],
    "policy": {"batches": ["1", "50%", "100%"], "failures_allowed": 0, "soak": 60},
}
COLUMNS = ["setting", "declared", "echoed", "effective", "verdict", "read in"]
LINE = "journal 14:03:12 Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8"


def table(title, window, verdict, passed, key="sglang-k26.service"):
    rows = [
        ["draft_model", "/srv/models/kimi-k2.6-dflash-block-8", "/srv/models/kimi-k2.6-dflash-block-8", "-", "match", LINE],
        ["window", "2048", "2048", window, verdict, LINE],
        ["max_running_requests", "100", "100", "48", "differs*", "internal_states[0] of /server_info"],
    ]
    notes = ["max_running_requests: a warning, accepted until 2027-01-15: the pool is small on purpose"]
    return {"key": key, "title": title, "columns": COLUMNS, "rows": rows, "notes": notes, "passed": passed}


PROVED = table("sglang-k26.service  SGLang 0.5.13  invocation ed0a702f  ready after 293 s", "2048", "match", True)
BROKEN = table("sglang-k26.service  SGLang 0.5.13", "none", "differs", False)
BACK = table("gone back: sglang-k26.service  SGLang 0.5.13", "2048", "match", True, key="gone back: sglang-k26.service")
PLAY = """
- name: Plan
  hosts: engines
  gather_facts: false
  tasks:
    - name: Print the plan
      report: {rollout_plan: "{{ plan }}"}
      run_once: true
      vars: {rollout_phase: plan}

- name: Roll out
  hosts: engines
  gather_facts: false
  serial: [1, 3, 4]
  vars:
    verdict_required: true
    broken: "{{ inventory_hostname == fails }}"
  tasks:
    - name: Change
      block:
        - name: Take it out of traffic
          report: {takes: 0.1}
          when: inventory_hostname != 'n1'
          vars: {rollout_phase: drain}
        - name: Load
          report:
            tells: true
            takes: "{{ load | default(0.3 if inventory_hostname == 'n3' else 0.2) }}"
          when: inventory_hostname != 'n1'
          vars: {rollout_phase: load}
        - name: Prove
          report:
            failed: "{{ broken }}"
            msg: "{{ cause }}"
            verdict_table: "{{ table_broken if broken else table_proved }}"
          vars: {rollout_phase: prove}
      rescue:
        - name: Go back
          report: {takes: 0.2, verdict_table: "{{ table_back }}"}
          vars: {rollout_phase: back}
    - name: Say how it ended
      report:
        rollout_outcome:
          host: "{{ inventory_hostname }}"
          outcome: "{{ 'gone back' if broken else 'unchanged' if inventory_hostname == 'n1' else 'proved' }}"
          cause: "{{ cause if broken else '' }}"
    - name: End the rollout
      report: {failed: true, msg: "{{ cause }}\\n  rollout  ends: 4 hosts were not reached"}
      when: broken
      any_errors_fatal: true
    - name: Ask
      report: {failed: true, msg: not approved}
      when: asks | default(false)
      run_once: true
      any_errors_fatal: true
"""


def write(directory, fails="none"):
    """The arguments of ansible-playbook."""
    variables = {"plan": PLAN, "cause": CAUSE, "fails": fails}
    variables |= {"table_proved": PROVED, "table_broken": BROKEN, "table_back": BACK}
    (directory / "deploy.yml").write_text(PLAY)
    (directory / "hosts.json").write_text(
        json.dumps({"engines": {"hosts": {name: {} for name in HOSTS}, "vars": variables}})
    )
    return [directory / "deploy.yml", "-i", directory / "hosts.json"]
