"""sglang-deploy: what runs on this host, what was verified, and the way back, without a controller.

sglang-deploy status [INSTANCE]     prove what runs, change nothing; exit status 0 only if all is proved
sglang-deploy rollback INSTANCE     to the last verified state, or to the one before it if that is what runs
sglang-deploy out INSTANCE          out of traffic, drained, until it is told to come in
sglang-deploy in INSTANCE           into traffic, if what runs is proved
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
import time
from pathlib import Path

from . import host_lease, sglang_control, sglang_registrar, sglang_traffic
from .sglang_host import CannotRead, Host
from .sglang_proof import hearing, key_file, startup
from .sglang_proof.settings import shown
from .sglang_proof.verdict import option_value
from .sglang_state import State, Unusable, Verified

STATE_DIR = "/var/lib/sglang-deploy"
LOOK = 60  # seconds that a look at a loading service may take
SLICE = 20  # seconds between two lines of a start that is waited for


class Stopped(Exception):
    """What was asked for is not so, or cannot be done. `str()` is the sentence."""


def main(arguments=None, host=None):
    options = _options(arguments)
    host = host or Host()
    try:
        return options.run(host, options) or 0
    except (Stopped, sglang_control.Held, *sglang_registrar.PROBLEMS) as error:
        print(f"sglang-deploy: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"sglang-deploy: {error.filename}: {error.strerror}; it needs root", file=sys.stderr)
        return 2


def _options(arguments):
    parser = argparse.ArgumentParser(
        prog="sglang-deploy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state-dir", default=STATE_DIR, metavar="DIR", help=f"where the states are ({STATE_DIR})")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    look = commands.add_parser("status", help="prove what runs, change nothing")
    look.add_argument("instance", nargs="?")
    look.add_argument("--json", action="store_true", help="for programs: a list of objects, one for each instance")
    look.set_defaults(run=status)
    back = commands.add_parser("rollback", help="go back, and prove it")
    back.add_argument("instance")
    back.add_argument("--timeout", type=int, default=1800, metavar="SECONDS", help="for the start (1800)")
    back.set_defaults(run=rollback)
    sglang_registrar.add_commands(commands)
    return parser.parse_args(arguments)


def status(host, options):
    """Print what each instance runs. 0 if each is proved, 2 otherwise."""
    names = [options.instance] if options.instance else _instances(options.state_dir)
    if not names:
        raise Stopped(f"{options.state_dir} has no instance. Next: ansible-playbook deploy.yml on the controller")
    found = [_look(host, State(os.path.join(options.state_dir, name)), name) for name in names]
    lease = host_lease.in_force(os.path.join(options.state_dir, "lease.json"))
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        for instance in found:
            print(_described(instance))
        if lease:
            print(f"changed now by {lease['holder']} ({lease['purpose']}), until {_when(lease['until'])} at the latest")
    return 0 if all(instance["proved"] for instance in found) else 2


def _instances(directory):
    return sorted(path.name for path in Path(directory).iterdir() if path.is_dir() and path.name != "engines")


def _look(host, state, name):
    """One instance: {"instance", "unit", "proved", "says", "attempt", "held_out", "verified", "before", "failed"}."""
    unit, attempt = f"sglang-{name}.service", state.attempt()
    found = {"instance": name, "unit": unit, "proved": False, "failed": _failed(state)}
    found["attempt"] = attempt if attempt["digest"] else None
    found["held_out"] = sglang_traffic.Hold(state.directory).read()
    for which in ("verified", "before"):
        try:
            kept = state.verified(which)
        except Unusable as error:
            found[which] = {"problem": str(error)}
            continue
        found[which] = kept and {
            "since": kept.evidence["start"]["since"],
            "release": kept.plan.release,
            "settings": {e.setting: shown(e.value) for e in kept.plan.expectations},
        }
    try:
        found["says"] = _proof(host, state, unit)
        found["proved"] = True
    except (startup.NotProved, CannotRead, Unusable, Stopped, ValueError) as error:
        found["says"] = str(error)
    return found


def _proof(host, state, unit):
    """A sentence that says which start is proved. Raises NotProved, CannotRead, Unusable, Stopped."""
    kept = state.verified()
    if kept is None:
        raise Stopped("no start was ever verified")
    demands = startup.Demands(generate=False, key=_key(kept.plan))
    until = host.clock() + LOOK
    outcome = startup.prove(host, kept.plan, _path(host, unit), until, demands, kept=state.evidence())
    if isinstance(outcome, startup.Pending):
        raise Stopped(f"still {outcome.phase}, {outcome.seconds:.0f} s after its start")
    return f"runs what was verified, since {_when(outcome.start.since)}, invocation {outcome.start.invocation[:8]}"


def _key(plan):
    path = option_value(plan.argv, "--config")
    return key_file.read(path) if path else None


def _path(host, unit):
    return host.unit(unit).fragment_path or f"/etc/systemd/system/{unit}"


def _failed(state):
    """[(path, first line of the cause)] of the failed starts that are kept, newest first."""
    paths = sorted(Path(state.directory).glob("failed/*/cause.txt"), reverse=True)
    return [[str(path.parent), path.read_text(errors="replace").partition("\n")[0] or "not written"] for path in paths]


def _described(instance):
    lines = [f"{instance['unit']}  {'proved' if instance['proved'] else 'NOT PROVED'}: {instance['says']}"]
    if instance["attempt"]:
        fate = "was found wrong" if instance["attempt"]["failed"] else "is not proved yet"
        lines.append(f"  attempt   the start of plan {instance['attempt']['digest']} {fate}")
    if instance["held_out"]:
        lines.append(f"  traffic   out since {_when(instance['held_out']['since'])}: {instance['held_out']['why']}")
    for which in ("verified", "before"):
        kept = instance[which]
        if kept and "problem" in kept:
            lines.append(f"  {which:9} {kept['problem']}")
        elif kept:
            settings = ", ".join(f"{name} {value}" for name, value in kept["settings"].items())
            lines.append(f"  {which:9} start of {_when(kept['since'])}, SGLang {kept['release']}: {settings}")
    lines += [f"  failed    {path}: {cause}" for path, cause in instance["failed"]]
    return "\n".join(lines)


def rollback(host, options):
    """Go back and prove it, alone on this host. Raises what says why not."""
    lease = os.path.join(options.state_dir, "lease.json")
    token = f"{os.uname().nodename} sglang-deploy {os.getpid()} {time.time():.0f}"
    held = host_lease.take(
        lease, token, f"{getpass.getuser()} on this host, process {os.getpid()}", "sglang-deploy rollback"
    )
    if held:
        raise Stopped(host_lease.refusal(held, "this host", f"sglang-deploy rollback {options.instance}"))
    try:
        _go_back(host, options, lease, token)
    finally:
        host_lease.give_back(lease, token)


def _go_back(host, options, lease, token):
    state = State(os.path.join(options.state_dir, options.instance))
    unit = f"sglang-{options.instance}.service"
    path = _path(host, unit)
    back = sglang_control.go_back(host, state, unit, path)
    if back.plan is None:
        raise Stopped(back.did)
    print(back.did, flush=True)
    outcome, demands = None, startup.Demands(key=_key(back.plan), hold=5, stall=300, spin=900)
    while outcome is None or isinstance(outcome, startup.Pending):
        resume = outcome.resume if outcome else None
        if outcome and outcome.seconds > options.timeout:
            raise Stopped(f"{unit} is not proved {outcome.seconds:.0f} s after its start, last phase: {outcome.phase}")
        if outcome:
            print(f"{outcome.seconds:4.0f} s  {outcome.phase}", flush=True)
            other = host_lease.renew(lease, token)
            if other:
                raise Stopped(host_lease.refusal(other, "this host", f"sglang-deploy rollback {options.instance}"))
        outcome = startup.prove(host, back.plan, path, host.clock() + SLICE, demands, kept=state.evidence(), resume=resume)
    with open(path, encoding="utf-8") as file:
        state.keep(Verified(back.plan, file.read(), hearing.keep(back.plan, outcome)))
    print(f"{unit} is proved: invocation {outcome.start.invocation[:8]}, ready after {outcome.seconds:.0f} s")


def _when(seconds):
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
