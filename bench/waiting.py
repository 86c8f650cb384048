"""How soon the wait ends after the line, or the death, that decides it. Prints seconds; nothing of it is a test.

    sudo python3 bench/waiting.py

A scripted unit on a test host says what an engine says; `startup.prove` watches it there as `sglang_startup` does. Counted
from the journal's own time stamp of the deciding record to the return of the call.
"""

from __future__ import annotations

import importlib
import json
import sys

from project import ROOT, give, on_host, python

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/unit")]
importlib.import_module("conftest")  # it puts the project's module_utils where stage looks for them
from stage import DRAFT_LINE, PYTHON, UNIT_PATH, make_plan, start_lines  # noqa: E402  needs both

HOST = "bench1"
PLAN = make_plan(host="127.0.0.1")
LINES = start_lines(PLAN)
ENDS = {
    "a contradiction": [DRAFT_LINE.format(window=None, compact=False)],
    "a crash": [
        "[2026-11-29 14:16:09] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        None,  # it ends
    ],
}
ENGINE = """
import os, sys, time
time.sleep(3)
print({first!r}, flush=True)
time.sleep(3)
for line in {end!r}:
    if line is None:
        os.kill(os.getpid(), 9)
    print(line, flush=True)
time.sleep(60)
"""
# Runs on the host: starts the unit, watches it, and says how long after the deciding record it returned.
WATCH = """
import json, subprocess, sys, time
sys.path.insert(0, "/root/bench")
from module_utils import sglang_host
from module_utils.sglang_proof import startup
from module_utils.sglang_proof.plan import Plan
plan = Plan.from_dict(json.load(open("/root/bench/plan.json")))
host = sglang_host.Host()
subprocess.run("systemctl daemon-reload; systemctl reset-failed sglang-k26; systemctl restart sglang-k26", shell=True,
               stderr=subprocess.DEVNULL)
try:
    startup.prove(host, plan, sys.argv[1], until=host.clock() + 60)
except startup.NotProved as failure:
    returned, said = time.time(), str(failure).splitlines()[0]
exited = ["UNIT=sglang-k26.service", "MESSAGE_ID=98e322203f7a4ed290d09fe03c09fe15"]  # systemd: Main process exited
what = exited if sys.argv[2] == "a crash" else ["_SYSTEMD_UNIT=sglang-k26.service"]
shown = subprocess.run(["journalctl", "-n1", "-ojson", *what], stdout=subprocess.PIPE).stdout
decided = int(json.loads(shown)["__REALTIME_TIMESTAMP"]) / 1e6
print(json.dumps([returned - decided, said]))
"""


def write(path, text):
    on_host(HOST, "sh", "-c", f"mkdir -p $(dirname {path}) && cat > {path}", input=text)


def main():
    python("testhosts", "up", HOST)
    try:
        give(HOST)
        environment = "".join(f"Environment={name}={value}\n" for name, value in PLAN.environment.items())
        write(UNIT_PATH, f"[Service]\nType=exec\nExecStart={' '.join(PLAN.argv)}\n{environment}")
        write("/root/bench/plan.json", json.dumps(PLAN.to_dict()))
        on_host(HOST, "sh", "-c", f"mkdir -p $(dirname {PYTHON}); ln -sf /usr/bin/python3 {PYTHON}")
        for name, end in ENDS.items():
            write("/usr/lib/python3/dist-packages/sglang/launch_server.py", ENGINE.format(first=LINES[0], end=end))
            seconds, said = json.loads(on_host(HOST, "python3", "-c", WATCH, UNIT_PATH, name).splitlines()[-1])
            print(f"from {name} to the failure: {seconds:.2f} s ({said})")
    finally:
        python("testhosts", "down", HOST)


if __name__ == "__main__":
    main()
