"""What a run costs that changes nothing, beside bare plays of trivial tasks on the same hosts; prints ratios of medians.

python3 bench/plays.py [HOSTS]      8 by default; with the stand-in engine, testhosts/lying_engine

A bare play has as many tasks as the run may have remote tasks (LIMITS), another as many as it has module calls on each host.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from project import ROOT, python

LIMITS = {"verify.yml": 3, "deploy.yml": 25}  # remote tasks for each host that the project allows itself
TIMES = 3  # of each run, in turn
ENGINE = {
    "sglang_version": "0.5.13",
    "sglang_engine_source": "wheelhouse",
    "sglang_engine_wheelhouse": "/srv/wheelhouse",
    "sglang_engine_lock": "/srv/wheelhouse/0.5.13.txt",
    "sglang_service_hold": 1,
    "sglang_service_settings": {
        "spec_algorithm": "DFLASH", "model": "/srv/models/tiny-qwen3", "draft_model": "/srv/models/tiny-dflash",
        "block_size": 8, "window": 2048, "context_length": 4096, "device": "cpu", "host": "127.0.0.1", "port": 30000,
    },
}  # fmt: skip


def play(inventory, path, *arguments):
    """(seconds of a run, how many calls of modules it made, if -vvv makes it tell)."""
    env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ROLLOUT_REPORT_DIRECTORY": ""}
    began = time.monotonic()
    command = ["ansible-playbook", "-i", inventory, path, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(done.stdout)
    return time.monotonic() - began, len(re.findall(r"^Using module file", done.stdout, re.MULTILINE))


def bare(directory, hosts, tasks):
    """A play of so many tasks that do nothing."""
    path = directory / f"{tasks}.yml"
    pings = [{"name": f"Ping {n}", "ansible.builtin.ping": None} for n in range(tasks)]
    path.write_text(json.dumps([{"name": "Nothing", "hosts": hosts, "gather_facts": False, "tasks": pings}]))
    return path


def compare(name, path, inventory, directory, hosts):
    """Print how long a run takes over these hosts, and how long bare plays of trivial tasks do."""
    limit = ("--limit", ",".join(hosts))
    calls = play(inventory, path, "-vvv", *limit)[1] / len(hosts)
    bares = {tasks: bare(directory, hosts, tasks) for tasks in sorted({LIMITS[name], round(calls)})}
    took = {what: [] for what in (path, *bares.values())}
    for _ in range(TIMES):
        for what in took:
            took[what].append(play(inventory, what, *limit)[0])
    seconds = {what: statistics.median(times) for what, times in took.items()}
    print(f"{name} without a change, {len(hosts)} hosts: {seconds[path]:.1f} s, {calls:.1f} module calls a host")
    for tasks, what in bares.items():
        print(f"  a bare play of {tasks}: {seconds[what]:.1f} s, ratio {seconds[path] / seconds[what]:.2f}", flush=True)


def main():
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    names = [f"plays{n}" for n in range(1, number + 1)]
    layer = python("testhosts.lying_engine", "build").strip()
    python("testhosts", "up", "--layer", layer, *(f"{name}=10.213.77.{200 + n}" for n, name in enumerate(names)))
    try:
        with tempfile.TemporaryDirectory() as directory:
            directory = Path(directory)
            hosts = json.loads(python("testhosts", "inventory", *names))
            inventory = directory / "hosts.json"
            variables = {**hosts["all"].get("vars", {}), **ENGINE}
            inventory.write_text(json.dumps({"sglang": {**hosts["all"], "vars": variables}}))
            play(inventory, "deploy.yml")
            compare("verify.yml", "playbooks/verify.yml", inventory, directory, names)
            compare("deploy.yml", "deploy.yml", inventory, directory, names[:1])
    finally:
        python("testhosts", "down", *names)


if __name__ == "__main__":
    main()
