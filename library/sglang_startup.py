#!/usr/bin/python
"""Fails unless the running engine itself has said, in this start, that it runs what the plan declares."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_startup
short_description: Assert that a running SGLang says, in this start, that it runs what was declared
description:
  - Waits for the current start (systemd invocation) of the plan's unit, collects what each hop says, compares it with the
    plan and fails with the first hop that is not a match. Nothing is selected by time, so lines of an earlier start prove
    nothing.
  - The hops are C(unit) (what systemd has loaded), C(process) (command line and environment of the main process),
    C(echoed) (SGLang's C(server_args=) line), C(effective) (lines of the workers, values granted by the scheduler) and
    C(served) (who owns the listening socket, the model behind it, a generation).
  - No evidence is a failure. What was not printed, or cannot be read in full, is C(missing) or C(unreadable), never a match.
  - The wait ends at decisive evidence, which can be the first contradiction, or the end of the process with its true cause.
options:
  plan:
    description: What C(sglang_plan) returned as RV(sglang_plan#module:plan). This or O(declaration) is needed.
    type: dict
  declaration:
    description:
      - The O(sglang_plan#module:declaration) of C(sglang_plan), from which the plan is made here, without asking the
        engine's resolver. To prove what runs already then needs one connection.
    type: dict
  unit_path:
    description: Where the unit file lies. Another file of the same name that hides it is a difference.
    type: path
    required: true
  upto:
    description: V(unit) compares only what systemd has loaded, as it can be asked before a restart.
    choices: [unit, served]
    default: served
    type: str
  demands:
    description: What a start must do.
    type: dict
    suboptions:
      timeout:
        description: Seconds that the start may take, from the start of the process to the proof.
        type: int
        default: 1800
      stall:
        description:
          - Seconds without a byte read, memory taken, CPU used or a line logged that make a hang; it ends the wait before
            O(demands.timeout). 0 waits to the end.
        type: int
        default: 300
      spin:
        description:
          - Seconds of computing without a byte read, memory taken or a line logged that make a hang, as ranks do that wait
            for each other in NCCL. Compilers and the capture of CUDA graphs can do so for minutes. 0 waits to
            O(demands.timeout).
        type: int
        default: 900
      hold:
        description: Seconds that the start must live after its ready line before it is asked for a generation.
        type: int
        default: 5
      generation:
        description: Whether the engine must answer a prompt. V(waived) needs O(demands.generation_waiver).
        choices: [required, waived]
        default: required
        type: str
      generation_waiver:
        description: Why no generation is asked for, C(reason), and C(until) which day (YYYY-MM-DD) that is accepted.
        type: dict
      acceptance:
        description:
          - A probe of C(tokens) generated tokens must have at least C(floor) of them accepted per verification step. It says
            something of a trained drafter only, and nothing where it is short.
        type: dict
        suboptions:
          floor:
            description: Tokens per step, C(spec_accept_length) of the engine.
            type: float
            required: true
          tokens:
            description: Length of the probe.
            type: int
            default: 256
      key_file:
        description:
          - >-
            File on the host with the API key, one line C(api-key: "…"), as O(sglang_plan#module:declaration.key_file). A
            request without the key must be refused then.
        type: path
  may_change:
    description:
      - Whether the play would change the unit and restart it. Then, in check mode, a unit or process that does not carry the
        plan is reported as what a run would change, without a failure.
    type: bool
    default: false
  slice:
    description:
      - Return after this many seconds with RV(finished=false) if nothing decisive was said until then. 0 waits to the end.
      - The action plugin of the same name calls the module in slices and prints how the load goes on.
    type: int
    default: 0
  resume:
    description: What RV(resume) was at the end of the slice before.
    type: dict
  state_dir:
    description:
      - Directory on the host for the verified state (plan, unit and evidence of the last start that passed). A later check
        of the same start may rely on it where the journal has rotated the first lines away, and C(sglang_restore) goes back
        to it.
    type: path
  forensics:
    description:
      - Directory on the host where a start that failed is saved (its journal, stacks, kernel records and more), before
        anybody stops it. The last five are kept.
    type: path
  lease:
    description: A lease of C(host_lease) to renew while this waits, C(path) and C(token); the wait ends if another took it.
    type: dict
    suboptions:
      path:
        description: The file on the host.
        type: path
        required: true
      token:
        description: Names the run.
        type: str
        required: true
  gone_back:
    description:
      - Whether the plan is one that was gone back to. Its table says so and stands beside the failed one, and what was
        declared since (another key file, O(demands.acceptance), the end of O(demands.generation_waiver)) does not bind it.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    details:
      - Checks as always, and keeps nothing. See O(may_change).
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Prove what runs
  sglang_startup:
    plan: "{{ planned.plan }}"
    unit_path: /etc/systemd/system/sglang-k26.service
    state_dir: /var/lib/sglang-deploy/k26

- name: Ask before a restart whether systemd holds the plan
  sglang_startup:
    plan: "{{ planned.plan }}"
    unit_path: /etc/systemd/system/sglang-k26.service
    upto: unit

- name: Prove what runs, without a change
  sglang_startup:
    declaration: {instance: k26, settings: {window: 2048}, python: /opt/sglang/0.5.13/bin/python}
    unit_path: /etc/systemd/system/sglang-k26.service
"""

RETURN = r"""
finished:
  description: False if a slice ended before anything decisive.
  type: bool
  returned: success
phase:
  description: How far the load has come, for people.
  type: str
  returned: when not finished
moves:
  description: What moves, C(312 MB read in 20 s), or that nothing does.
  type: str
  returned: when not finished
usual:
  description: Seconds that the last verified start took until it was ready.
  type: int
  returned: when not finished, and such a start is known
resume:
  description: For O(resume) of the next slice.
  type: dict
  returned: when not finished
verdicts:
  description: "One dict for each setting and hop: setting, hop, verdict, declared, found, where, severity."
  type: list
  returned: success, when finished
verdict_table:
  description:
    - The same as a table, printed at the end of the run by the callback of this name; with C(runs), what the engine runs
      from, which the callback compares between hosts.
  type: dict
  returned: when finished, also on failure
start:
  description: "The start that was proved: boot_id, invocation, pid, since (Unix seconds)."
  type: dict
  returned: success
unreadable:
  description: The failure is that something could not be read, and says nothing of the start.
  type: bool
  returned: failure
"""

import contextlib
import datetime
from dataclasses import asdict
from pathlib import Path

from ansible.module_utils import host_lease, sglang_forensics, sglang_planning, sglang_runs
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotKeep, CannotRead, Host
from ansible.module_utils.sglang_proof import hearing, key_file, startup, verdict
from ansible.module_utils.sglang_proof.plan import Plan
from ansible.module_utils.sglang_state import State, Verified

OWN = ["port", "generation", "acceptance"]  # rows with a process, a text or a measure: no two hosts have the same

DEMANDS = {
    "timeout": {"type": "int", "default": 1800},
    "stall": {"type": "int", "default": 300},
    "spin": {"type": "int", "default": 900},
    "hold": {"type": "int", "default": 5},
    "generation": {"type": "str", "choices": ["required", "waived"], "default": "required"},
    "generation_waiver": {
        "type": "dict",
        "options": {"reason": {"type": "str", "required": True}, "until": {"type": "str", "required": True}},
    },
    "acceptance": {
        "type": "dict",
        "options": {"floor": {"type": "float", "required": True}, "tokens": {"type": "int", "default": 256}},
    },
    "key_file": {"type": "path", "no_log": False},
}

ARGUMENTS = {
    "plan": {"type": "dict"},
    "declaration": {"type": "dict", "options": sglang_planning.DECLARATION},
    "unit_path": {"type": "path", "required": True},
    "upto": {"type": "str", "choices": ["unit", "served"], "default": "served"},
    "demands": {"type": "dict", "options": DEMANDS, "apply_defaults": True},
    "may_change": {"type": "bool", "default": False},
    "slice": {"type": "int", "default": 0},
    "resume": {"type": "dict"},
    "state_dir": {"type": "path"},
    "forensics": {"type": "path"},
    "lease": {
        "type": "dict",
        "options": {"path": {"type": "path", "required": True}, "token": {"type": "str", "required": True, "no_log": False}},
    },
    "gone_back": {"type": "bool", "default": False},
}


def main():
    module = AnsibleModule(
        ARGUMENTS,
        supports_check_mode=True,
        mutually_exclusive=[("plan", "declaration")],
        required_one_of=[("plan", "declaration")],
    )
    plan = plan_of(module)
    try:
        waiver = accepted_waiver(module.params["demands"], module.params["gone_back"])
        if module.params["upto"] == "unit":
            verdicts = startup.check_unit(Host(), plan, module.params["unit_path"])
            module.exit_json(changed=False, finished=True, verdicts=[asdict(v) for v in verdicts])
        renew(module)
        kept = State(module.params["state_dir"]).evidence() if module.params["state_dir"] else None
        outcome = prove(module, plan, kept, generate=waiver is None)
    except startup.NotProved as failure:
        not_proved(module, plan, failure)
    except (CannotRead, CannotKeep, LeaseLost) as error:
        module.fail_json(msg=str(error), unreadable=True)
    except ValueError as error:
        module.fail_json(msg=f"{plan.unit}: {error}")
    if isinstance(outcome, startup.Pending):
        usual = {"usual": round(kept["seconds"])} if kept else {}
        module.exit_json(
            changed=False,
            finished=False,
            phase=outcome.phase,
            seconds=round(outcome.seconds),
            moves=outcome.moves,
            resume=outcome.resume,
            **usual,
        )
    keep_state(module, plan, outcome)
    title = title_of(module, plan)
    title += f"  invocation {outcome.start.invocation[:8]}  ready after {outcome.seconds:.0f} s"
    notes = [*plan.notes, *([waiver] if waiver else [])]
    module.exit_json(
        changed=False,
        finished=True,
        start=outcome.start.to_dict(),
        verdicts=[asdict(v) for v in outcome.verdicts],
        verdict_table=table_of(module, plan, outcome.verdicts, title=title, notes=notes, passed=True),
    )


def plan_of(module):
    declaration = module.params["declaration"]
    try:
        if not declaration:
            return Plan.from_dict(module.params["plan"])
        return sglang_planning.make(declaration)
    except sglang_planning.ERRORS as error:
        module.fail_json(msg=sglang_planning.told(declaration, error))
    except ValueError as error:
        module.fail_json(msg=str(error))


def prove(module, plan, kept, generate):
    """Proved or Pending. A start that is older than the timeout and still not ready has failed."""
    host, params, demands = Host(), module.params, module.params["demands"]
    unit = host.unit(plan.unit)
    left = unit.exec_main_start + demands["timeout"] - host.now() if unit.main_pid else 0
    wait = max(left, 0)
    if params["slice"]:
        wait = min(wait, params["slice"])
    # What was declared since does not bind a plan of before.
    key = verdict.option_value(plan.argv, "--config") if params["gone_back"] else demands["key_file"]
    outcome = startup.prove(
        host,
        plan,
        params["unit_path"],
        until=host.clock() + wait,
        demands=startup.Demands(
            generate=generate,
            key=key_file.read(key) if key else None,
            acceptance=None if params["gone_back"] else demands["acceptance"],
            hold=demands["hold"],
            stall=demands["stall"],
            spin=demands["spin"],
        ),
        kept=kept,
        resume=params["resume"],
    )
    if isinstance(outcome, startup.Pending) and outcome.seconds >= demands["timeout"]:
        moves = f", {outcome.moves}" if outcome.moves else ""
        raise TooLate(
            f"{plan.unit} is not proved {outcome.seconds:.0f} s after its start (timeout {demands['timeout']} s), "
            f"last phase: {outcome.phase}{moves}\n"
            f"  next     journalctl -fu {plan.unit} on the host; if it only loads slowly, raise sglang_service_start_timeout"
        )
    return outcome


def not_proved(module, plan, failure):
    broken = verdict.first_broken(failure.verdicts)
    would_change = (
        module.check_mode and module.params["may_change"] and (broken is None or broken.hop in ("unit", "process"))
    )
    passed = None if would_change else False
    table = table_of(module, plan, failure.verdicts, title=title_of(module, plan), notes=plan.notes, passed=passed)
    result = {"changed": False, "finished": True, "verdict_table": table}
    if would_change:
        table["notes"].append("check mode: a run would change this, restart the service and prove it")
        module.exit_json(**result)
    if may_write(module) and not isinstance(failure, TooLate):
        with contextlib.suppress(CannotKeep):  # then a later run asks this start again
            State(module.params["state_dir"]).fail_attempt(plan)
    module.fail_json(msg=f"{failure}{saved(module, plan, str(failure))}", **result)


class TooLate(startup.NotProved):
    """Nothing was said against the start until its time was over: it may still load, and is not made anew."""


def may_write(module):
    return module.params["state_dir"] and module.params["may_change"] and not module.check_mode


def saved(module, plan, cause):
    """Where the failed start was saved, as a line for the message; nothing where that was not asked for."""
    directory = module.params["forensics"]
    if not directory or module.check_mode:
        return ""
    try:
        path = sglang_forensics.save(Host(), plan, directory, cause)
    except (CannotKeep, CannotRead) as error:
        return f"\n  saved    nothing of this start: {error}"
    return f"\n  saved    {path} on the host: the journal of this start, stacks, kernel records"


def title_of(module, plan):
    return f"{'gone back: ' if module.params['gone_back'] else ''}{plan.unit}  SGLang {plan.release}"


def table_of(module, plan, verdicts, **parts):
    """The table of the last verdicts; that of a plan that was gone back to does not hide the one that failed."""
    table = {**verdict.table(plan, verdicts, **parts), "runs": sglang_runs.runs(plan), "own": OWN}
    return {**table, "key": f"gone back: {table['key']}"} if module.params["gone_back"] else table


def renew(module):
    """Go on holding the host. Raises LeaseLost if another run took it over in the meantime, CannotKeep."""
    lease = module.params["lease"]
    if not lease or module.check_mode:
        return
    other = host_lease.renew(lease["path"], lease["token"])
    if other:
        raise LeaseLost(host_lease.refusal(other, "this host", "the same command again"))


class LeaseLost(Exception):
    """Another run has the host: nothing may be changed any more, and nothing put back."""


def accepted_waiver(demands, gone_back):
    """The waiver as a sentence to print, None where a generation is asked for. ValueError if nobody gave it, or it ended."""
    if demands["generation"] == "required" or (gone_back and not demands["generation_waiver"]):
        return None
    if not demands["generation_waiver"]:
        raise ValueError("generation: declared waived, and sglang_service_generation_waiver says neither why nor until when")
    reason, until = demands["generation_waiver"]["reason"], demands["generation_waiver"]["until"]
    if datetime.date.fromisoformat(until) < datetime.date.today() and not gone_back:
        raise ValueError(
            f"generation: waived until {until} ({reason}), and that day is over. "
            "Declare a new date in sglang_service_generation_waiver, or require the generation again"
        )
    return f"generation: not asked, waived until {until}: {reason}"


def keep_state(module, plan, proved):
    """Plan, unit and evidence of this start, and only if another start was proved. It stands proved if they are not kept."""
    if not module.params["state_dir"] or module.check_mode:
        return
    state = State(module.params["state_dir"])
    kept = state.evidence()
    try:
        if kept and kept["start"] == proved.start.to_dict() and kept["digest"] == plan.digest:
            state.close_attempt()
            return
        with open(module.params["unit_path"], encoding="utf-8") as file:
            unit = file.read()
        state.keep(Verified(plan, unit, hearing.keep(plan, proved)))
        state.add_load(proved.seconds, read_from_disk(Host(), plan))
    except CannotKeep as error:
        module.warn(f"{plan.unit} is proved, but its evidence is not kept for the day its journal is rotated: {error}")


def read_from_disk(host, plan):
    """Whether this start found its weights in no page cache: most of them were read from a disk."""
    directories = [e.value for e in plan.expectations if e.setting in ("model", "draft_model") and e.value]
    files = [file.stat().st_size for directory in directories for file in Path(directory).glob("*.safetensors")]
    read = sum(usage[0] for usage in host.usage(host.unit(plan.unit).control_group).values())
    return read > sum(files) / 2


if __name__ == "__main__":
    main()
