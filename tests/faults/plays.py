"""Faults that need a whole play: what a deployment says of each, and what it leaves behind.

The host runs window 2048, verified, before each. A deployment to port 30001 meets the scenario that is given; what it goes
back to is on port 30000 and honest.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field

import host as stage
from deployment import Going
from faults import AWAY, DRAFT, READY, SITE, lines

PLAY = "play"  # what these are shown on is a host of its own
STATE = "/var/lib/sglang-deploy/k26"
WENT_BACK, BOTH, UNTOUCHED, STOPPED, PROVED = "went back", "both causes", "untouched", "stopped, disabled", "proved"
LOADS = lines(("Load weight end", "wait", "/run/go"))
GO = "touch /run/go"


@dataclass(frozen=True)
class Play:
    """words: what the run must say. restored: how it must leave the host. The rest makes it happen.

    before: shell before the run. at, during: when the run prints `at`, `during(run)` is called. undo: shell afterwards.
    """

    group: str
    name: str
    words: tuple
    restored: str
    scenario: dict = field(default_factory=dict)
    arguments: tuple = ("-e", "window=1024", "-e", "sglang_service_port=30001")
    playbook: str = "deploy.yml"
    before: str = ""
    at: str = ""
    during: object = None
    undo: str = ""
    engine: str = PLAY


class Run(Going):
    """One run for this host alone."""

    def __init__(self, host, playbook, *arguments):
        super().__init__("-i", stage.INVENTORY, playbook, "--limit", host.name, *arguments)
        self.host, self.declared = host, arguments

    @property
    def message(self):
        """The first failure, without the way back."""
        found = re.search(r"^\[ERROR\]: Task failed: \w+ failed: (.*?)\n(?:Origin|  saved)", self.output, re.M | re.S)
        return found[1] if found else ""


def killed_and_repeated(run):
    """The same controller again: it replaces the run that is gone and goes on with the very start that it made."""
    start = run.host.shell("systemctl show -p InvocationID --value $unit")
    run.kill()
    again = Run(run.host, "deploy.yml", *run.declared)
    again.until("weights loaded")
    run.host.shell(GO)
    status = again.end()
    same = start == run.host.shell("systemctl show -p InvocationID --value $unit")
    run.seen += [again.output, f"repeated: status {status}, the same start: {same}\n"]


def second_run(run):
    other = Run(run.host, "deploy.yml", "-e", "window=512")
    status = other.end()
    run.host.shell(GO)
    run.seen += [other.output.replace("changed=0", "the second changed=0"), f"the second ended with {status}\n"]


def shell(script):
    return lambda run: run.host.shell(script)


def bad(name, *words, restored=WENT_BACK, **how):
    return Play("whole plays", name, words, restored, **how)


PLAYS = (
    # ---- a change that does not hold goes back ----
    bad("the worker drops the window", "window: declared 1024, found none (effective hop, differs)", scenario={"run": AWAY}),
    bad("the process drops the window", "window: declared 1024, found none (echoed hop, differs)", scenario={"echo": AWAY}),
    bad(
        "a worker meets an exception", "torch.OutOfMemoryError: CUDA out of memory",
        scenario=lines(("Load weight begin", "raise", "torch.OutOfMemoryError: CUDA out of memory.")),
    ),
    bad(
        "it hangs while it loads", "hangs: nothing has moved for", scenario=lines(("Load weight begin", "hang")),
        arguments=("-e", "window=1024", "-e", "sglang_service_port=30001", "-e", "sglang_service_stall_timeout=6"),
    ),
    bad(
        "it is ready, and dies after 3 s", "an illegal memory access was encountered",
        scenario={"at": [{"line": "max_total_num_tokens=", "do": "raise", "after": 3,
                          "value": "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"}]},
        arguments=("-e", "window=1024", "-e", "sglang_service_port=30001", "-e", "sglang_service_hold=8"),
    ),
    bad(
        "its generation fails", "generation: declared an answer", "500",
        scenario={"answers": {"/generate": {"status": 500}}},
    ),
    bad("its evidence is cut", "the evidence cannot be read", scenario=lines((DRAFT, "cut", 60))),
    bad("it ends with 0 when it is ready", "exit status 0", scenario=lines((READY, "exit", 0))),
    bad(
        "it is not ready in time", "is not proved", "(timeout 8 s)", scenario=LOADS,
        arguments=("-e", "window=1024", "-e", "sglang_service_port=30001", "-e", "sglang_service_start_timeout=8"),
    ),
    bad(
        "the unit is deleted while it loads", "unit: declared loaded, found not-found", scenario=LOADS, at="weights loaded",
        during=shell("rm /etc/systemd/system/$unit; systemctl daemon-reload; systemctl kill --signal=KILL $unit"),
    ),
    bad(
        "what it goes back to is broken too", "window: declared 1024, found none",
        "back     failed too, and nothing else was touched", "window: declared 2048, found none", restored=BOTH,
        scenario={"run": AWAY},
        before=f"echo {shlex.quote(json.dumps({'run': AWAY}))} > /etc/lying-engine/30000.json",
    ),
    bad(
        "a first deployment fails", "torch.OutOfMemoryError", "no start of it was ever verified", restored=STOPPED,
        scenario=lines(("Load weight begin", "raise", "torch.OutOfMemoryError: CUDA out of memory.")),
        before=f"systemctl disable --quiet --now $unit; rm -r {STATE} /etc/systemd/system/$unit; systemctl daemon-reload",
    ),
    # ---- what is found before the service is touched ----
    bad(
        "a foreign drop-in takes the flag away", "window: declared 1024, found none (unit hop, differs)", "fault.conf",
        restored=UNTOUCHED,
        before="mkdir -p /etc/systemd/system/$unit.d; printf '[Service]\\nExecStart=\\nExecStart=%s\\n' \"$(sed -n "
        "'s/^ExecStart=//p' /etc/systemd/system/$unit | sed 's/--speculative-draft-window-size 2048//')\" "
        "> /etc/systemd/system/$unit.d/fault.conf",
        undo="rm -r /etc/systemd/system/$unit.d; systemctl daemon-reload",
    ),
    bad(
        "systemd itself hands a variable to every unit",
        "SGLANG_SIMULATE_ACC_LEN: declared none, found 4 (unit hop, differs)", restored=UNTOUCHED,
        before="systemctl set-environment SGLANG_SIMULATE_ACC_LEN=4",
        undo="systemctl unset-environment SGLANG_SIMULATE_ACC_LEN",
    ),
    bad(
        "another process holds the port", "port 30001 of sglang-k26.service is held by python3 (pid", restored=UNTOUCHED,
        before="systemd-run --quiet --unit=other python3 -m http.server --bind 127.0.0.1 30001; "
        "until ss -ltn | grep -q :30001; do sleep 0.1; done", undo="systemctl stop other",
    ),
    bad(
        "the disk is full where units are", "No space left on device", restored=UNTOUCHED,
        before="mkdir /run/units; cp -a /etc/systemd/system/. /run/units; "
        "mount -t tmpfs -o size=64k none /etc/systemd/system; cp -a /run/units/. /etc/systemd/system; "
        "dd if=/dev/zero of=/etc/systemd/system/full bs=1k 2>/dev/null || true",
        undo="umount /etc/systemd/system; rm -r /run/units; systemctl daemon-reload",
    ),
    bad(
        "a state of a later form", "verified.json has form 9, and this project reads form 1", restored=UNTOUCHED,
        playbook="playbooks/rollback.yml", arguments=(),
        before=f"cp -p {STATE}/verified.json /run/kept; sed -i 's/^ \"version\": 1/ \"version\": 9/' {STATE}/verified.json",
        undo=f"mv /run/kept {STATE}/verified.json",
    ),
    # ---- the controller, the connection, the host ----
    bad(
        "the controller is killed in mid-wait, and repeats", "repeated: status 0, the same start: True", restored=PROVED,
        scenario=LOADS, at="weights loaded", during=killed_and_repeated,
    ),
    bad(
        "two deployments at once", "is being changed by", "the second changed=0", "the second ended with 2", restored=PROVED,
        scenario=LOADS, at="weights loaded", during=second_run,
    ),
    bad(
        "sshd is gone while it loads", "connection lost, trying again", restored=PROVED, scenario=LOADS, at="weights loaded",
        during=shell(
            "sessions=$(pgrep -P $(systemctl show -p MainPID --value ssh)); systemctl stop ssh; kill -KILL $sessions; "
            f"systemctl start ssh; {GO}"
        ),
    ),
    # ---- what was changed between two runs heals ----
    bad(
        "the unit was changed by hand", "Restart, because", restored=PROVED, arguments=(),
        before="sed -i 's/window-size 2048/window-size 1024/' /etc/systemd/system/$unit; systemctl daemon-reload; "
        "systemctl restart $unit",
    ),
    bad(
        "the engine was patched in place", "Restart, because plan: declared", restored=PROVED, arguments=(),
        before=f"cp -p {SITE}/sglang/launch_server.py /run/kept; echo '# by hand' >> {SITE}/sglang/launch_server.py",
        undo=f"mv /run/kept {SITE}/sglang/launch_server.py",
    ),
    bad(
        "the model was replaced at the same path", "Restart, because plan: declared", restored=PROVED, arguments=(),
        before="touch -d 2020-01-01 /srv/models/tiny-qwen3/config.json", undo="touch /srv/models/tiny-qwen3/config.json",
    ),
    bad(
        "the key was replaced", "Restart, because plan: declared", restored=PROVED,
        arguments=("-e", "sglang_service_key_file=/etc/key.yaml"),
        before="install -o root -g sglang -m 640 /dev/null /etc/key.yaml; echo 'api-key: \"sk-1\"' > /etc/key.yaml",
        at="PLAY RECAP",
        during=lambda run: key_replaced(run),
        undo="rm /etc/key.yaml",
    ),
)  # fmt: skip


def key_replaced(run):
    run.host.shell("echo 'api-key: \"sk-2\"' > /etc/key.yaml")
    again = Run(run.host, "deploy.yml", "-e", "sglang_service_key_file=/etc/key.yaml")
    status = again.end()
    run.seen += [again.output if status == 0 else f"the second ended with {status}"]


def show(host, play):
    """(what was said, how the host was left, what the old way says, problems) of one fault in a whole play."""
    before = start(host)
    host.shell(
        f"mkdir -p /etc/lying-engine; echo {shlex.quote(json.dumps(play.scenario))} > /etc/lying-engine/30001.json\n"
        + play.before
    )
    run = Run(host, play.playbook, *play.arguments)
    if play.during and any(play.at in line for line in run.lines()):
        play.during(run)
    status = run.end()
    problems = [f"does not say '{words}'" for words in play.words if words not in run.output]
    left = left_behind(host, status, before, run)
    if left != play.restored:
        problems.append(f"must be {play.restored}, is {left}")
    said = stage.read({"msg": run.message}, failed=True) if status else stage.Said("proved", "-", "")
    old = host.old_way(0) if status else "-"
    problems += [run.output] if problems else []
    again = put_right(host, play)
    if again.end():
        problems.append(f"the honest deployment afterwards is not proved: {again.output}")
    return said, left, old, problems


def put_right(host, play):
    """Undo it, and deploy honestly; the run."""
    host.shell(f"rm -rf /etc/lying-engine /run/go; {play.undo}")
    return Run(host, "deploy.yml")


def start(host):
    return host.shell("systemctl show -p InvocationID --value $unit").strip()


def left_behind(host, status, before, run):
    """How the run left the host: one of the words above, or what it looks like."""
    state = host.shell("systemctl show -p ActiveState -p UnitFileState --value $unit; sglang-deploy status || true")
    if status == 0 or "repeated: status 0" in run.output:
        return PROVED if "proved: runs what was verified" in state else state
    # Ansible shows the lines of the task as well, with their braces.
    if re.search(r"back     failed too, and nothing else was touched: [^{]", run.output):
        return BOTH
    if start(host) == before:
        return UNTOUCHED
    if state.startswith("inactive\ndisabled"):
        return STOPPED
    went = "and it is proved again" in run.output and "  proved: runs what was verified" in state and "window 2048" in state
    return WENT_BACK if went else state
