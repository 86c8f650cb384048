"""What a fleet costs the controller: real runs of Ansible over many hosts that answer as one real host did. No test.

    sudo python3 bench/scale.py [HOSTS …]      (25 50 100 200)

Boots one test host with the stand-in engine and records every answer of it (bench/recorded) in three runs: a
deployment that changes a setting, one that changes nothing, and verify.yml. Plays them back for as many hosts as asked for.
The answers come at once: loads and the network cost the controller no work, but a waiting host holds a fork.
Prints seconds of work (user and system, of all processes), wall seconds and the peak of memory, shared pages counted once.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from project import ROOT, python

HOST, ADDRESS = "scale1", "10.213.77.170"
BEFORE = ["deploy.yml", "-e", "sglang_version=0.5.15 window=2048"]
RUNS = {
    "change a setting": ["deploy.yml", "-e", "sglang_version=0.5.15 window=1024"],
    "change nothing": ["deploy.yml", "-e", "sglang_version=0.5.15 window=1024"],
    "verify": ["playbooks/verify.yml", "-e", "sglang_version=0.5.15 window=1024"],
}


def inventory(directory, hosts):
    """An inventory of the demo's variables with these hosts, {name: address}."""
    directory.mkdir(exist_ok=True)
    if not (directory / "group_vars").exists():
        (directory / "group_vars").symlink_to(ROOT / "inventories/demo/group_vars")
    data = {name: {"ansible_host": address, "ansible_connection": "recorded"} for name, address in hosts.items()}
    (directory / "hosts.json").write_text(json.dumps({"sglang": {"hosts": data}}))
    return directory


def ansible(arguments, where, directory, *, tape, mode="play", **environment):
    """(process that ended, wall seconds, seconds of work, peak MB, output)."""
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "bench/recorded"),
        "ANSIBLE_NOCOLOR": "1",
        "ROLLOUT_REPORT_DIRECTORY": str(directory / "reports"),
        "TAPE": str(tape),
        "TAPE_MODE": mode,
        **environment,
    }
    before, began, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0.0
    with open(directory / "output", "w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            ["ansible-playbook", "-i", str(where), *arguments],
            cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        while True:
            try:
                process.wait(timeout=1)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, memory(process.pid))
        output.seek(0)
        said = output.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if process.returncode:
        sys.exit(said[-4000:] + f"\n{' '.join(arguments)}: ended with {process.returncode}")
    return time.monotonic() - began, work, peak, said


def memory(pid):
    """MB of a process and all its descendants, shared pages counted once (Pss)."""
    total = 0.0
    for one in [pid, *descendants(pid)]:
        try:
            total += int(re.search(r"^Pss: +(\d+)", Path(f"/proc/{one}/smaps_rollup").read_text(), re.MULTILINE).group(1))
        except (OSError, AttributeError):
            continue  # it has just ended
    return total / 1024


def descendants(pid):
    try:
        children = [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    except OSError:
        return []
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


def record(directory):
    """{run: its tape}, of one real host."""
    layer = python("testhosts.lying_engine", "build").strip()
    python("testhosts", "up", "--layer", layer, f"{HOST}={ADDRESS}")
    try:
        where = inventory(directory / "one", {HOST: ADDRESS})
        ansible(BEFORE, where, directory, tape=directory / "first.tape", mode="record")
        tapes = {run: directory / f"{run}.tape" for run in RUNS}
        for run, arguments in RUNS.items():
            ansible(arguments, where, directory, tape=tapes[run], mode="record")
    finally:
        python("testhosts", "down", HOST)
    return tapes


def main(sizes):
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        tapes = record(directory)
        print(f"{'':18} hosts  calls a host  work s  work a host s  wall s  peak MB", flush=True)
        for run, arguments in RUNS.items():
            calls = sum(line.startswith('{"what": "ansible') for line in tapes[run].read_text().splitlines())
            for size in sizes:
                where = inventory(directory / "many", {f"n{number:03d}": ADDRESS for number in range(size)})
                wall, work, peak, said = ansible(arguments, where, directory, tape=tapes[run])
                proved = len(re.findall(r"^n\d+  sglang-", said, re.MULTILINE))
                if proved != size:
                    sys.exit(f"{run}: {proved} of {size} hosts are proved")
                print(f"{run:18} {size:5} {calls:13} {work:7.0f} {work / size:14.2f} {wall:7.0f} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [25, 50, 100, 200])
