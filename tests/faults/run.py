"""Makes every known fault happen on real systemd hosts, and shows what is said of each (`make faults`).

    python3 tests/faults/run.py [--only PATTERN] [--keep] [--page FILE]

Beside it stands what the old way would have said: the exit status of `systemctl restart`, and
`journalctl -u UNIT --since '8 min ago' | grep draft_window_size`. After each fault the host must be
as it was. Fails if a fault is not named as faults.py says, is green, or if an honest start is not proved.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import host as stage
import plays
from faults import DDTREE, DFLASH, FAULTS, HONEST

ENGINES = {"fault1": DFLASH, "fault2": DFLASH, "fault3": DDTREE, "fault4": plays.PLAY}
ADDRESSES = {"fault1": "10.213.77.100", "fault2": "10.213.77.101", "fault3": "10.213.77.102", "fault4": "10.213.77.103"}
LEAST_HONEST, LEAST_REAL = 60, 20
COLUMNS = ("fault", "verdict", "hop", "cause", "restored", "the old way")
HEAD = """# Faults

Each was made to happen on a real systemd host, with an honest start of the same unit a minute before it, and what is said of
it was compared with what must be said. Written by `make faults`.

*Verdict*, *hop* and *cause* are the project's answer. *Restored* says whether the last verified state came back, where a
play ran. *The old way* is what its predecessor would have told: `systemctl restart`, then
`journalctl -u UNIT --since '8 min ago' | grep draft_window_size`.

"""


@dataclass
class Shown:
    """One row: what was said of a fault, and what is wrong with that ([] if nothing)."""

    fault: object
    said: object
    old: str
    problems: list = field(default_factory=list)
    restored: str = "-"  # a module restores nothing

    def cells(self):
        cause = re.sub(r" \(\w+ hop, \w+\)\.?$", "", self.said.message.split("\n")[0])
        cause = re.sub(r"\S*/\.ansible/tmp/\S*", "…", cause)  # of the host, and another each time
        cause = cause if len(cause) < 160 else cause[:158] + " …"
        return [self.fault.name, self.said.verdict, self.said.hop, cause, self.restored, self.old]


def show(host, fault):
    """Make it happen, hear what is said, put it right."""
    if fault.engine == plays.PLAY:
        said, left, old, problems = plays.show(host, fault)
        return Shown(fault, said, old, problems, left)
    status = host.inject(fault)
    if fault.aged:
        host.prove(**fault.arguments)
        host.shell(fault.aged)
    beside = host.begin(fault.during) if fault.during else None
    try:
        said = host.prove(**fault.arguments)
    finally:
        if beside and beside.wait():
            print(f"{fault.name}: what ran beside it: {beside.stderr.read()}", file=sys.stderr)
    shown = Shown(fault, said, host.old_way(status))
    if (said.verdict, said.hop) != (fault.verdict, fault.hop):
        shown.problems.append(f"must be {fault.verdict} at the {fault.hop} hop")
    shown.problems += [f"does not say '{words}'" for words in fault.words if words not in said.message]
    host.put_right(fault)
    left = set(host.snapshot().splitlines()) ^ set(host.before.splitlines())
    shown.problems += [f"left behind: {line}" for line in sorted(left)]
    return shown


def show_all(name, faults):
    """The faults that a host takes from the common list until it is empty."""
    host = stage.Host(name)
    rows = []
    while faults:
        fault = faults.pop(0)
        try:
            row = show(host, fault)
        except Exception as error:  # one that cannot be shown must not hide the others
            row = Shown(fault, stage.Said("-", "-", ""), "-", [repr(error)])
            plays.put_right(host, fault).end() if fault.engine == plays.PLAY else host.put_right(fault)
        rows.append(row)
        mark = "ok  " if not row.problems else "WRONG"
        print(f"{mark} {name} {fault.name}: {row.said.verdict} {row.said.hop}", flush=True)
        for problem in row.problems:
            print(f"      {problem}\n      {row.said.message}", flush=True)
    return rows


def real_starts():
    """Recorded starts of the real engine, young and aged, that are proved (tests/unit/test_healthy.py)."""
    tests = ["tests/unit/test_healthy.py", "-k", "healthy_start", "-q", "--no-header", "-p", "no:cacheprovider"]
    done = subprocess.run([sys.executable, "-m", "pytest", *tests], cwd=stage.ROOT, text=True, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(done.stdout)
    return int(re.search(r"(\d+) passed", done.stdout)[1])


def text(rows):
    cells = [COLUMNS, *(row.cells() for row in rows)]
    widths = [min(max(len(line[n]) for line in cells), 70) for n in range(len(COLUMNS))]
    return "\n".join("  ".join(c[:w].ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def page(rows, summary):
    """The table as docs/faults.md; times of the day and process ids are of that run alone."""
    lines = [HEAD + summary, "", f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    group = None
    for row in rows:
        if row.fault.group != group:
            group = row.fault.group
            lines.append(f"| **{group}** |" + " |" * (len(COLUMNS) - 1))
        cells = [re.sub(r"pid \d+", "pid …", cell).replace("|", "\\|") for cell in row.cells()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression over `group: name`")
    parser.add_argument("--keep", action="store_true", help="use the hosts that run, and leave them")
    parser.add_argument("--page", type=Path, help="write the table as Markdown")
    given = parser.parse_args()
    began = time.monotonic()
    chosen = [f for f in (*FAULTS, *plays.PLAYS, *HONEST) if re.search(given.only, f"{f.group}: {f.name}")]
    waiting = {engine: [fault for fault in chosen if fault.engine == engine] for engine in ENGINES.values()}
    names = {name: ADDRESSES[name] for name, engine in ENGINES.items() if waiting[engine]}
    if not given.keep:
        stage.up(names)
    with ThreadPoolExecutor() as pool:
        shown = pool.map(lambda name: show_all(name, waiting[ENGINES[name]]), names)
        rows = sorted((row for rows in shown for row in rows), key=lambda row: chosen.index(row.fault))
    if not given.keep:
        stage.hosts("down", *names)
    faults = [row for row in rows if row.fault not in HONEST]
    wrong = [row for row in rows if row.problems]
    green = [row for row in faults if row.said.verdict == "proved" and getattr(row.fault, "restored", "") != plays.PROVED]
    fooled = [row for row in faults if row.old == "green"]
    real = real_starts()
    honest = len(rows) - len(faults)
    summary = (
        f"{len(faults)} faults: {len(faults) - len([r for r in faults if r.problems])} named rightly, {len(green)} green; "
        f"the old way was green for {len(fooled)}. "
        f"{honest + real} honest starts, {real} of them recorded of the real engine: "
        f"{len([row for row in rows if row.fault in HONEST and row.problems])} false alarms."
    )
    print("\n" + text(faults), f"\n{summary}  ({time.monotonic() - began:.0f} s)", sep="\n")
    if given.page:
        given.page.write_text(page(faults, summary))
    whole = not given.only
    sys.exit(1 if wrong or green or (whole and (real < LEAST_REAL or honest + real < LEAST_HONEST)) else 0)


if __name__ == "__main__":
    main()
