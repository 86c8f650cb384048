#!/usr/bin/python
"""Applies the contract to one service on one host: what is declared becomes argv, environment and expectations."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_plan
short_description: Turn declared SGLang settings into a plan, and refuse what cannot run
description:
  - Applies the contract (which option carries a setting in which release, and which words of the engine prove it) to one
    instance and returns the plan that both the unit and C(sglang_startup) use, so that they cannot disagree.
  - Refuses, in seconds, what the engine would refuse or rewrite after its load, all problems at once. Besides its own rules
    it asks the installed engine's own argument resolver (the dry hop), without GPU, while the old service still serves.
  - Compares the running process with the plan. A restart is needed exactly where the process does not carry the plan.
  - Changes nothing but a cache of the resolver's last answer.
options:
  declaration:
    description: What is declared of one instance, and where its engine lies.
    type: dict
    required: true
    suboptions:
      instance:
        description: Name of the instance; its unit is C(sglang-<instance>.service).
        type: str
        required: true
      settings:
        description:
          - Declared settings, name to value. A value, C(none) (JSON null; declared off, and proved off) or C(unset).
          - Numbers may be text, as extra vars are. C(2_048), C(2048.0) and a blank are refused.
        type: dict
        required: true
      python:
        description:
          - The engine's interpreter, an absolute path. In check mode, where no engine is installed yet, there is no plan.
        type: path
        required: true
      release:
        description: The release that the engine must be. Another one is refused.
        type: str
      facts:
        description: The O(sglang_engine_facts#module:cache) of C(sglang_engine_facts), so that the engine is not read again.
        type: path
      extra_args:
        description: Further arguments of the engine; options that no setting carries, spelled in full.
        type: list
        elements: str
        default: []
      environment:
        description: Environment variables of the engine.
        type: dict
        default: {}
      key_file:
        description:
          - >-
            File on the host with the API key, the engine's C(--config); one line C(api-key: "…"), readable by the service's
            user and by no others. A key on a command line can be read by every user of the host, so C(--api-key) is refused.
        type: path
      inputs:
        description: Further data that makes a restart necessary when it changes, such as the unit's template.
        type: raw
      contract:
        description:
          - A fork's contract as the action C(declared_settings) read it, C(file), C(data) and C(lines); it wins over the
            built-in one on the builds that it recognises. See C(docs/forks.md).
        type: dict
      user:
        description: User of the service, who runs the resolver too.
        type: str
  dry_hop:
    description: Ask the engine's own resolver. It costs an import of torch where the answer is not cached.
    type: bool
    default: true
  state_dir:
    description: Directory on the host where the resolver's last answer is cached.
    type: path
attributes:
  check_mode:
    support: full
    details: Reads and asks as always; the cache is not written.
  diff_mode:
    support: none
    details: It changes nothing; the unit's template shows its own difference.
author: The contributors
"""

EXAMPLES = r"""
- name: Plan
  sglang_plan:
    declaration:
      instance: k26
      settings: "{{ sglang_service_settings }}"
      python: /opt/sglang/0.5.13/bin/python
  register: planned
"""

RETURN = r"""
plan:
  description: The plan, the argument of C(sglang_startup); null where the engine is not installed yet.
  type: dict
  returned: success
restart_needed:
  description: Whether no process runs that carries this plan, or its last start was found not to do what was declared.
  type: bool
  returned: where the engine is installed
unit:
  description:
    - What the unit's template needs, C(exec_start) and the lines of C(environment), quoted for systemd.
    - Whether the unit C(exists).
  type: dict
  returned: where the engine is installed
unproved:
  description: Whether a start of this plan was made, by this or an earlier run, and never proved.
  type: bool
  returned: where the engine is installed
loads:
  description: How long the last starts that were proved took, C(seconds), and whether they were C(cold), newest first.
  type: list
  returned: where the engine is installed
conflict:
  description: Who else holds the port or a GPU, C(what), C(held_by) and its C(unit).
  type: dict
  returned: when somebody does
differences:
  description: Why a restart is needed, as sentences. Empty where no process runs.
  type: list
  returned: where the engine is installed
dry_hop:
  description: C(asked), C(cached), or why the engine's resolver could not be asked.
  type: str
  returned: where the engine is installed
"""

import contextlib
import os
import pwd
import subprocess

from ansible.module_utils import sglang_control, sglang_planning
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotKeep, CannotRead, Host, read_json, write_json
from ansible.module_utils.sglang_proof import plan, redact, resolver, systemd_unit, verdict
from ansible.module_utils.sglang_state import NO_ATTEMPT, State

DRY_HOP_SECONDS = 300  # a cold import of torch from a slow disk takes minutes


def main():
    module = AnsibleModule(
        {
            "declaration": {"type": "dict", "required": True, "options": sglang_planning.DECLARATION},
            "dry_hop": {"type": "bool", "default": True},
            "state_dir": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params, declaration = module.params, module.params["declaration"]
    result = {"changed": False, "plan": None}
    try:
        made = sglang_planning.make(declaration, module.check_mode)
        if made is None:
            module.exit_json(**result, verdict_table=sglang_planning.unknown_table(declaration))
        if params["dry_hop"]:
            result["dry_hop"] = ask_resolver(made, declaration, params["state_dir"], module.check_mode)
            if result["dry_hop"] not in ("asked", "cached"):
                module.warn(f"sglang-{made.instance}: the engine's own resolver could not be asked: {result['dry_hop']}")
        host = Host()
        unit = host.unit(made.unit)
        process = host.process(unit.main_pid) if unit.main_pid else None
        differences = verdict.start_differences(made, *process) if process else []
        state = State(params["state_dir"]) if params["state_dir"] else None
        attempt = state.attempt() if state else NO_ATTEMPT
        conflict = sglang_control.held_by(host, made, unit.control_group)
    except sglang_planning.ERRORS as error:
        module.fail_json(msg=sglang_planning.told(declaration, error))
    failed_before = attempt["failed"] and attempt["digest"] == made.digest
    result.update(
        plan=made.to_dict(),
        unit={
            "exec_start": systemd_unit.exec_start(made.argv),
            "environment": [systemd_unit.environment_line(*item) for item in sorted(made.environment.items())],
            "exists": unit.exists,
        },
        restart_needed=process is None or bool(differences) or failed_before,
        unproved=attempt["digest"] == made.digest,
        loads=state.loads() if state else [],
    )
    if conflict:
        result["conflict"] = conflict
    result["differences"] = [f"{name}: declared {d}, the process runs with {f}" for name, d, f in differences]
    if process and failed_before and not differences:
        result["differences"] = ["its last start was not proved"]
    module.exit_json(**result)


def ask_resolver(made, declaration, state_dir, check_mode):
    """The dry hop: the installed engine's own word on this command line. Raises Refused; returns how it was answered."""
    cache = state_dir and os.path.join(state_dir, "resolver.json")
    if cache and read_json(cache) == {"accepted": made.digest}:
        return "cached"
    answer = run_resolver(declaration["python"], list(made.argv[3:]), made.environment, declaration["user"])
    if answer.refused:
        raise plan.Refused(
            [f"SGLang {made.release} refuses it itself (its own argument resolver): {redact.text(answer.refused)}"]
        )
    if answer.resolved is None:
        return answer.unasked
    problems = list(plan.contradictions(made, answer.resolved))
    if problems:
        raise plan.Refused(problems)
    if cache and not check_mode and os.path.isdir(state_dir):
        with contextlib.suppress(CannotKeep):  # it is asked again then
            write_json(cache, {"accepted": made.digest})
    return "asked"


def run_resolver(python, options, environment, user):
    identity = {}
    if user and os.geteuid() == 0:
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            entry = None  # check mode before the first deployment
        if entry:
            identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME": "/tmp", **environment}
    try:
        done = subprocess.run(
            resolver.dry_argv(python),
            input=resolver.script(options).encode(),
            capture_output=True,
            env=env,
            cwd="/",
            timeout=DRY_HOP_SECONDS,
            **identity,
        )
    except subprocess.TimeoutExpired:
        return resolver.Answer(unasked=f"The engine's resolver gave no answer in {DRY_HOP_SECONDS} s")
    except OSError as error:
        raise CannotRead(f"{python} cannot be run: {error.strerror}") from None
    return resolver.parse_answer(done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), done.returncode)


if __name__ == "__main__":
    main()
