"""Mutation testing of what decides a verdict: contract, parser, comparison (`make mutation`, with cosmic-ray).

    python3 tests/mutation/run.py [MODULE …]

Each module is mutated in a copy of the project, and only the tests that concern it are run. Fails if less than 95 %
of the mutants are killed, if one survives that survivors.md does not list, or if one listed there is killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.md")
COSMIC_RAY = ROOT / ".venv-mutation/bin/cosmic-ray"
FLOOR = 95  # per cent
TESTS = {  # module → its tests, none that starts other programs; the longest run first, so that both cores end together
    "verdict": ("verdict", "startup"),
    "plan": ("plan", "releases"),
    "startup_log": ("startup_log",),
    "settings": ("settings", "plan"),
    "contract": ("contract", "plan", "releases"),
    "expressions": ("contract", "plan"),
    "releases": ("contract", "releases"),
}
# What cosmic-ray would try besides, and tells nothing: `{**a}` is no power, what is added here is mostly text, words have
# no order, and equal words and small numbers are the same object.
LEFT_OUT = (
    "core/ReplaceBinaryOperator_(?!(Add_Sub|Sub_Add|Mul_Add|Mul_Div)$)",
    "core/ReplaceComparisonOperator_(Eq|NotEq)_(?!(Eq|NotEq)$)",
    "core/ReplaceComparisonOperator_(Lt|LtE|Gt|GtE)_Is(Not)?$",
    "core/ReplaceComparisonOperator_Is(Not)?_(?!Is(Not)?$)",
)
CONFIG = """
[cosmic-ray]
module-path = "module_utils/sglang_proof/{module}.py"
timeout = 60.0
test-command = "{python} -m pytest -x -q -p no:cacheprovider {tests}"

[cosmic-ray.distributor]
name = "local"

[cosmic-ray.filters.operators-filter]
exclude-operators = {left_out}
"""


def mutate(module):
    """[(changed line, outcome)] of the mutants of a module, and how many were left out."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as directory:
        copy = Path(directory) / "project"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        tests = " ".join(f"tests/unit/test_{name}.py" for name in TESTS[module])
        left_out = json.dumps(LEFT_OUT)
        (copy / "session.toml").write_text(
            CONFIG.format(module=module, tests=tests, python=sys.executable, left_out=left_out)
        )

        def run(tool, *arguments):
            # Under CI hypothesis tries the same examples each time, here a few; without plugins pytest starts twice as fast.
            quick = {"CI": "true", "HYPOTHESIS_PROFILE": "mutation", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            env = {**os.environ, **quick}
            done = subprocess.run([tool, *arguments], cwd=copy, env=env, text=True, capture_output=True)
            if done.returncode:
                sys.exit(f"{module}: {' '.join(map(str, [tool, *arguments]))} failed:\n{done.stdout}{done.stderr}")
            return done.stdout

        run(sys.executable, "-m", "pytest", "-x", "-q", *tests.split())
        run(COSMIC_RAY, "init", "session.toml", "session.sqlite")
        run(COSMIC_RAY.with_name("cr-filter-operators"), "session.sqlite", "session.toml")
        run(COSMIC_RAY, "exec", "session.toml", "session.sqlite")
        results = [json.loads(line)[1] for line in run(COSMIC_RAY, "dump", "session.sqlite").splitlines()]
    tried = [(changed_line(r["diff"]), r["test_outcome"]) for r in results if r["worker_outcome"] != "skipped"]
    return tried, len(results) - len(tried)


def changed_line(diff):
    """The line as mutated, or the decorator that was removed."""
    changed = [line for line in diff.splitlines() if re.match(r"[-+](?![-+])", line)]
    added = next((line for line in changed if line.startswith("+")), None)
    return added[1:].strip() if added else f"without {max(changed, key=len)[1:].strip()}"


def listed(modules):
    entries = re.findall(r"^- `(\w+)\.py` `(.+)`: .+$", SURVIVORS.read_text(), re.MULTILINE)
    return {(module, line) for module, line in entries if module in modules}


def main():
    modules = sys.argv[1:] or list(TESTS)
    begin = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        tried, left_out = zip(*pool.map(mutate, modules), strict=True)
    outcomes = dict(zip(modules, tried, strict=True))
    survived = {(module, line) for module, mutants in outcomes.items() for line, outcome in mutants if outcome != "killed"}
    print("module        mutants  killed  survived")
    counts = {module: (len(mutants), sum(o == "killed" for _, o in mutants)) for module, mutants in outcomes.items()}
    counts["all"] = tuple(map(sum, zip(*counts.values(), strict=True)))
    for module, (mutants, killed) in counts.items():
        print(f"{module:12} {mutants:8} {killed:7} {mutants - killed:9}")
    mutants, killed = counts["all"]
    minutes = (time.monotonic() - begin) / 60
    print(f"{100 * killed / mutants:.1f} % killed in {minutes:.0f} minutes; {sum(left_out)} others were left out (LEFT_OUT)")
    failed = 100 * killed < FLOOR * mutants
    if failed:
        print(f"less than {FLOOR} % are killed")
    for found, said in ((survived - listed(modules), "survived"), (listed(modules) - survived, "is listed, and killed")):
        for module, line in sorted(found):
            failed = True
            print(f"{module}.py: `{line}` {said}.")
    sys.exit(failed)


if __name__ == "__main__":
    main()
