"""A deployment whose controller dies at a task of its own choice, and is run again: the host must end as without it.

python3 tests/faults/interrupted.py [SEEDS]
"""

from __future__ import annotations

import random
import sys

import host as stage
from plays import Run

HOST, ADDRESS = "fault4", "10.213.77.103"
ENDED = """
cat /etc/systemd/system/$unit
systemctl show $unit -p ActiveState -p SubState -p UnitFileState -p NeedDaemonReload -p DropInPaths -p User
tr '\\0' '\\n' < /proc/$(systemctl show -p MainPID --value $unit)/environ | grep -e ^DEPLOYED_PLAN -e ^SGLANG | sort
find /var/lib/sglang-deploy /opt/sglang -type f -not -path '*__pycache__*' -printf '%p %m %u\\n' | sort
ls -A /etc/systemd/system
sglang-deploy status | sed -e 's/since .*//' -e 's/start of .*, SGLang/SGLang/'
"""


def deploy(host, window, stop_at=None):
    """Run it, or kill it at the start of its task number `stop_at`; the number of tasks that began."""
    run = Run(host, "deploy.yml", "-e", f"window={window}")
    began = 0
    for line in run.lines():
        began += line.startswith("TASK [")
        if began == stop_at:
            run.kill()
            return began
    if run.process.wait():
        raise SystemExit(run.output)
    return began


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    stage.up({HOST: ADDRESS})
    host = stage.Host(HOST)
    wanted, tasks = {}, 0
    for window in (1024, 2048, 1024, 2048):  # twice, so that what was verified before is there as well
        tasks = deploy(host, window)
        wanted[window] = host.shell(ENDED)
    wrong = 0
    for seed in range(seeds):
        window = (1024, 2048)[seed % 2]
        stop_at = random.Random(seed).randrange(1, tasks)
        deploy(host, window, stop_at)
        deploy(host, window)
        ended = host.shell(ENDED)
        differs = sorted(set(ended.splitlines()) ^ set(wanted[window].splitlines()))
        wrong += bool(differs)
        print(
            f"{'WRONG' if differs else 'ok  '} seed {seed}: killed at task {stop_at} of {tasks}",
            *differs,
            sep="\n      ",
            flush=True,
        )
    stage.hosts("down", HOST)
    print(f"\n{seeds} interrupted deployments, {wrong} ended otherwise than an undisturbed one")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
