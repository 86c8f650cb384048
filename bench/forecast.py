"""How long rollouts over eight hosts took, beside what was printed before each; how many were inside. No test.

    sudo python3 bench/forecast.py [ROLLOUTS]      10 by default; some two minutes each

The hosts are those of `make fleet`, under its load. Engines of this kind load for 4.5 to 15 minutes; the stand-in takes
times drawn from these, FASTER times as fast, and a drain may take so much less too. What a batch takes besides is as it is.
"""

from __future__ import annotations

import json
import random
import re
import sys
from datetime import datetime

from project import ROOT

sys.path.insert(0, str(ROOT / "tests/integration"))
from load import Load
from rollout_fleet import GATEWAY, HONEST, NAMES, RATE, booted

FASTER = 30
LOADS = (270, 900)  # seconds: 4.5 to 15 minutes
EARLIER = 2  # rollouts that are only recorded


def rolled_out(fleet, window, draw):
    """(seconds that it took, [low, high] that were printed), of a rollout in which each load is drawn anew."""
    for name in NAMES:
        fleet.told({**HONEST, "load_seconds": round(draw.uniform(*LOADS) / FASTER, 1)}, name)
    policy = {"rollout_batches": [1, "25%", "100%"], "traffic_drain_timeout": 300 // FASTER}
    run = fleet.done(fleet.deploy("-e", f"window={window}", "-e", json.dumps(policy)))
    page = ROOT / re.search(r"^report +(\S+)[.]html$", run.output, re.MULTILINE)[1]
    report = json.loads(page.with_suffix(".json").read_text())
    took = datetime.fromisoformat(report["ended"]).timestamp() - report["plan"]["since"]
    return took, report["plan"]["seconds"]


def main():
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    draw, inside = random.Random(0), 0
    with booted() as fleet, Load(GATEWAY, "tiny", RATE):
        for turn in range(EARLIER + number):
            took, (low, high) = rolled_out(fleet, (512, 1024)[turn % 2], draw)
            if turn < EARLIER:
                continue
            inside += low <= took <= high
            place = (took - low) / (high - low)
            print(f"printed {low} to {high} s, took {took:.0f} s, at {place:.2f} of the range", flush=True)
    print(f"{inside} of {number} inside, loads {FASTER} times as fast as real ones")


if __name__ == "__main__":
    main()
