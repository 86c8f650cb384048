"""What a run costs that changes nothing, beside a bare play of as many trivial tasks on the same hosts; prints ratios.

python3 bench/plays.py [HOSTS]      8 by default; with the stand-in engine, testhosts/lying_engine
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from project import ROOT, python

VERIFY_TASKS, DEPLOY_TASKS = 3, 25  # remote tasks for each host that the project allows itself
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
    """Seconds of a run, and how many of its tasks reached a host."""
    env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ROLLOUT_REPORT_DIRECTORY": ""}
    began = time.monotonic()
    command = ["ansible-playbook", "-vvv", "-i", inventory, path, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(done.stdout)
    return time.monotonic() - began, len(re.findall(r"^Using module file", done.stdout, re.MULTILINE)), done.stdout


def bare(directory, hosts, tasks):
    """A play of so many tasks that do nothing."""
    path = directory / f"{tasks}.yml"
    pings = [{"name": f"Ping {n}", "ansible.builtin.ping": None} for n in range(tasks)]
    path.write_text(json.dumps([{"name": "Nothing", "hosts": hosts, "gather_facts": False, "tasks": pings}]))
    return path


def shown(name, hosts, seconds, least, tasks):
    local = f"{tasks / hosts:.1f} module calls a host, those on the controller among them"
    print(f"{name}: {seconds:.1f} s, {least:.1f} s for the bare play, ratio {seconds / least:.2f}; {local}", flush=True)


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
            inventory.write_text(
                json.dumps({"sglang": {**hosts["all"], "vars": {**hosts["all"].get("vars", {}), **ENGINE}}})
            )
            play(inventory, "deploy.yml")
            for name, path, group, tasks in (
                (f"verify.yml, {number} hosts", "playbooks/verify.yml", "sglang", VERIFY_TASKS),
                ("deploy.yml without a change, 1 host", "deploy.yml", names[0], DEPLOY_TASKS),
            ):
                of = number if group == "sglang" else 1
                limit = () if of == number else ("--limit", group)
                seconds, calls, _ = play(inventory, path, *limit)
                least, _, _ = play(inventory, bare(directory, group, tasks))
                shown(name, of, seconds, least, calls)
    finally:
        python("testhosts", "down", *names)


if __name__ == "__main__":
    main()
