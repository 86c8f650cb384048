"""One test host on which faults are made to happen: deployed once by the real playbook, put right after each."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/integration"))
from deployment import Going, environment, hosts, python  # noqa: E402  found by the line above

INVENTORY = Path(__file__).with_name("inventory")
UNIT = "sglang-k26.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
JSON = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}

PRELUDE = f"""
export LC_ALL=C
unit={UNIT} file={UNIT_PATH}
started() {{ journalctl --output=cat --all _SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value $unit); }}
ready() {{
  for n in $(seq 300); do started | grep --quiet --text 'fired up and ready to roll!' && return; sleep 0.1; done
  echo 'never ready' >&2; return 1
}}
restarted() {{ systemctl reset-failed $unit 2>/dev/null || true; systemctl restart $unit; }}
"""
# What a fault may not leave behind.
SNAPSHOT = """
for place in /etc/systemd /etc/lying-engine /run/systemd/system /srv/models /opt/sglang; do
  test ! -e $place || find $place -not -path '*__pycache__*' \\( -type f -o -type l \\) -printf '%p %s %m %u\\n' | sort
done
sha256sum $file
systemctl show $unit -p FragmentPath -p DropInPaths -p NeedDaemonReload -p ActiveState -p UnitFileState -p User \\
  -p ExecStart -p Environment | sed 's/start_time=.*//'
systemctl show-environment
ss --no-header --listening --tcp --numeric | awk '{print $4}' | sort
findmnt --noheadings --raw --output TARGET | grep --invert-match -e ^/proc -e ^/run/credentials | sort
systemctl --failed --no-legend
ls /run/*go /run/kept /run/engine /etc/*.env /etc/*.yaml 2>/dev/null || true
"""
# What people did instead: the exit status of the restart, and whatever this prints.
OLD_CHECK = f"journalctl -u {UNIT} --since '8 min ago' --no-pager 2>&1 | grep draft_window_size"


@dataclass(frozen=True)
class Said:
    """What was said of a start: verdict, the hop that was named, and the message."""

    verdict: str
    hop: str
    message: str


def up(addresses):
    """Boot the hosts ({name: address}) and deploy honestly, by the project's own playbook."""
    layer = python("testhosts.lying_engine", "build").strip()
    hosts("down", *addresses)
    hosts("up", "--layer", layer, *(f"{name}={address}" for name, address in addresses.items()))
    run = Going("-i", INVENTORY, "deploy.yml", "--limit", ",".join(addresses))
    if run.end():
        raise SystemExit(run.output)


class Host:
    """A host of the inventory after an honest deployment."""

    def __init__(self, name):
        self.name = name
        self.plan = json.loads(self.shell("cat /var/lib/sglang-deploy/k26/verified.json"))["plan"]
        self.shell("ready")
        self.before = self.snapshot()

    def shell(self, script):
        """A script on the host, as root, with the words of PRELUDE; what it printed."""
        try:
            return hosts("exec", self.name, "bash", "-euc", PRELUDE + script, stderr=subprocess.PIPE)
        except subprocess.CalledProcessError as failed:
            said = failed.stderr or failed.stdout
            raise RuntimeError(f"{self.name}: `{script.strip()}` ended with {failed.returncode}: {said}") from None

    def begin(self, script):
        """The same, running beside us; its Popen."""
        command = [sys.executable, "-m", "testhosts", "exec", self.name, "bash", "-euc", PRELUDE + script]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def snapshot(self):
        return self.shell(SNAPSHOT)

    def inject(self, fault):
        """Make it happen; the exit status of the restart."""
        parts = ["mkdir -p /etc/lying-engine"]
        if fault.scenario:
            parts.append(f"echo {shlex.quote(json.dumps(fault.scenario))} > /etc/lying-engine/30000.json")
        if fault.drop_in:
            parts.append(f"mkdir -p {UNIT_PATH}.d; echo {shlex.quote(fault.drop_in)} > {UNIT_PATH}.d/fault.conf")
            parts.append("systemctl daemon-reload")
        parts += [fault.before, "status=0; restarted >/dev/null 2>&1 || status=$?", fault.after, "echo status=$status"]
        return int(re.search(r"status=(\d+)\n*$", self.shell("\n".join(parts)))[1])

    def put_right(self, fault):
        """Undo it, and start honestly."""
        self.shell(f"""
            systemctl stop $unit 2>/dev/null || true
            rm -rf /etc/lying-engine {UNIT_PATH}.d
            {fault.undo}
            systemctl daemon-reload
            journalctl --quiet --rotate; journalctl --quiet --vacuum-time=1s  # the next fault has one start before it
            restarted
            ready""")

    def prove(self, state_dir=None, **demands):
        """The module sglang_startup on the host, through Ansible; what it said."""
        asked = {"plan": self.plan, "unit_path": UNIT_PATH, "demands": {"hold": 1, "timeout": 60, **demands}}
        if state_dir:
            asked["state_dir"] = state_dir
        command = ["ansible", "-i", INVENTORY, self.name, "-m", "sglang_startup", "-a", json.dumps(asked)]
        done = subprocess.run(command, cwd=ROOT, env=environment(**JSON), text=True, capture_output=True)
        answer = re.search(r"^\S+ \| (\w+)!? => (\{.*^\})", done.stdout, re.MULTILINE | re.DOTALL)
        if not answer:
            raise RuntimeError(f"{self.name}: no answer of the module:\n{done.stdout}{done.stderr}")
        return read(json.loads(answer[2]), failed=answer[1] == "FAILED")

    def old_way(self, status):
        """What `systemctl restart` and the search of the last eight minutes would have told."""
        printed = self.shell(OLD_CHECK + " || true")
        values = set(re.findall(r"draft_window_size=(\w+), compact_cache", printed))
        if status:
            return f"red: restart ended with {status}"
        if not values:
            return "prints nothing"
        return "green" if values == {"2048"} else f"prints {' and '.join(sorted(values))}"


def read(result, failed):
    """The answer of the module as a table needs it."""
    if not failed:
        broken = [v for v in result["verdicts"] if v["verdict"] not in ("match", "unstated")]
        if not broken:
            return Said("proved", "-", "")
        first = broken[0]
        shown = {None: "none"}
        declared, found = (shown.get(first[side], first[side]) for side in ("declared", "found"))
        return Said("warned", first["hop"], f"{first['setting']}: declared {declared}, found {found}")
    message = result["msg"]
    named = re.search(r"\((\w+) hop, (\w+)\)", message)
    if named:
        return Said(named[2], named[1], message)
    return Said("cannot read", "-", message) if result.get("unreadable") else Said("failed", "start", message)
