"""Changes a service on its host: stop, wait until what it needs is free, start; put a unit back.

Reading is done through the Host that is handed in; `systemctl` runs one command of systemctl.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import NamedTuple

from .sglang_host import CannotRead, run
from .sglang_proof import verdict

# Seconds until a stopped engine's port and GPU memory are free: the driver frees 96 GB in some seconds, a killed rank's
# in some more.
PATIENCE = 120


class Held(Exception):
    """What the service needs is not free, or its unit cannot be changed. `str()` says who holds it, and what to do."""


def systemctl(*arguments):
    """Raises CannotRead with what systemctl said."""
    run(["systemctl", *arguments])


def restart(host, plan, patience=PATIENCE, systemctl=systemctl):
    """Stop the plan's unit, wait until its port and GPUs are free, start it. Raises Held, CannotRead."""
    stop(plan.unit, systemctl)
    wait_until_free(host, plan, patience)
    systemctl("start", plan.unit)


def stop(unit, systemctl=systemctl):
    systemctl("stop", unit)
    # systemd counts every start, also ours: a unit that was started too often in its window would refuse this one.
    with contextlib.suppress(CannotRead):  # nothing is loaded that could have failed
        systemctl("reset-failed", unit)


def wait_until_free(host, plan, patience=PATIENCE):
    """Until nobody holds the port or the GPUs of a service that is stopped. Raises Held."""
    until = host.clock() + patience
    while True:
        held = held_by(host, plan) or memory_held(host, plan)
        if not held:
            return
        if host.clock() >= until:
            raise Held(
                f"{held['what']} of {plan.unit} is still held by {held['held_by']}, {patience} s after the service was "
                "stopped. It was not started.\n"
                "  next     end what holds it (a rank that was left over: kill -9 PID), then ansible-playbook deploy.yml"
            )
        host.sleep(0.5)


def held_by(host, plan, control_group=""):
    """Who else holds the port, or a GPU: {"what", "held_by", "unit"}; None if nobody does."""
    owner = host.listener(plan.port, control_group, plan.host)
    if owner and not owner.ours:
        return {"what": f"port {plan.port}", "held_by": owner.name, "unit": owner.unit}
    if not on_gpu(plan):
        return None
    held = host.gpu_holder(visible(plan), control_group)
    return held and {"what": f"GPU {held[0]}", "held_by": held[1].name, "unit": held[1].unit}


def memory_held(host, plan):
    """A GPU whose memory nobody uses and that is not free: what a killed rank leaves behind."""
    full = host.gpu_memory_held(visible(plan)) if on_gpu(plan) else None
    return full and {"what": f"GPU {full[0]}", "held_by": f"no process that nvidia-smi shows ({full[1]} MiB)", "unit": None}


def on_gpu(plan):
    return verdict.option_value(plan.argv, "--device") != "cpu"


def visible(plan):
    return plan.environment.get("CUDA_VISIBLE_DEVICES")


class Back(NamedTuple):
    """What going back did: the plan that is to be proved again, or None; a sentence; the unit file before and after.

    restarts: whether a service that runs was, or will be, stopped for it.
    """

    plan: object
    did: str
    changed: bool = False
    unit_before: str = ""
    unit_after: str = ""
    restarts: bool = False


def go_back(host, state, unit, path, failed=None, proved=False, patience=PATIENCE, dry=False, systemctl=systemctl):
    """Put back the last verified state of a unit whose file is at `path`. Raises Held, CannotRead, state.Unusable.

    failed: the digest of the plan whose start failed; without it, on demand, what runs is what is left.
    proved: that start had been proved, and was found wrong later; what was verified before it counts again.
    Where no start of the failed plan was made, only the unit file is put back, and what runs is left alone.
    """
    now = host.unit(unit)
    running = host.process(now.main_pid) if now.main_pid else None
    target = state.verified() if failed else _wanted(state, running)
    if target is None and failed:
        return _give_up(unit, now, state, failed, dry, systemctl)
    if target is None and state.verified():
        return Back(None, f"{unit} runs what was verified last, and nothing was verified before it: nothing to go back to")
    if target is None:
        return Back(None, f"no start of {unit} was ever verified, so there is nothing to go back to")
    if failed == target.plan.digest and proved:
        rejected, target = target, state.verified("before")
        if not dry:
            state.reject(rejected.plan)
        if target is None:
            return Back(None, f"{unit} goes on, and counts as verified no more: nothing was verified before it")
    if failed == target.plan.digest:
        return Back(None, f"{unit} was left as it is: what was verified last is the same plan")
    before = _content(path)
    attempt = state.attempt()
    if failed and not proved and attempt["digest"] != failed:
        if before != target.unit and not dry:
            _put(path, target.unit)
            systemctl("daemon-reload")
        did = f"{unit} was not restarted, and its unit file is again what was verified"
        return Back(None, did, before != target.unit, before, target.unit)
    found_wrong = attempt["failed"] and attempt["digest"] == target.plan.digest
    carries = _carries(running, target.plan) and not found_wrong
    if not dry:
        if before != target.unit:
            _put(path, target.unit)
        systemctl("daemon-reload")
        if not carries:
            state.open_attempt(target.plan, back=True)
            restart(host, target.plan, patience, systemctl)
        elif attempt["digest"] == failed:
            state.close_attempt()
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(target.evidence["start"]["since"]))
    did = f"{unit} runs again what was verified in its start of {when}"
    if carries:
        did = f"{unit} was not restarted, and still runs what was verified in its start of {when}"
    return Back(target.plan, did, before != target.unit or not carries, before, target.unit, not carries)


def _wanted(state, running):
    """What a way back on demand goes to: what was verified last, or before it if that is what runs; or None."""
    attempt, last = state.attempt(), state.verified()
    if attempt["back"]:  # another way back began, and did not come to its end
        for kept in (last, state.verified("before")):
            if kept and kept.plan.digest == attempt["digest"]:
                return kept
    return state.verified("before") if last and _carries(running, last.plan) else last


def _carries(running, plan):
    return bool(running) and not verdict.start_differences(plan, *running)


def _give_up(unit, now, state, failed, dry, systemctl):
    """A first start that failed: it must neither go on failing nor come back at boot."""
    if now.main_pid and state.attempt()["digest"] != failed:
        return Back(None, f"{unit} was left as it runs: this start was not made here, and none was ever verified")
    if not dry:
        stop(unit, systemctl)
        systemctl("disable", unit)
        state.close_attempt()
    return Back(None, f"{unit} is stopped and disabled: no start of it was ever verified", changed=now.exists)


def _content(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise Held(f"{path} cannot be read: {error}") from None


def _put(path, text):
    """As a whole or not at all."""
    new = f"{path}.new"
    try:
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(new, 0o644)
        os.replace(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise Held(f"{path} cannot be written: {error.strerror}") from None
