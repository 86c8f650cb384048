"""Writes tests/unit/releases.json: `python3 tests/unit/read_releases.py DIRECTORY… > tests/unit/releases.json`.

Each directory holds one released engine, oldest first, as `pip install --no-deps --target DIRECTORY sglang==0.5.23` leaves
it. Kept is what the contract speaks of, with the first and the last release that has it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "module_utils"))

from sglang_proof.contract import FORBIDDEN, SETTINGS, Flag, Line
from sglang_proof.facts import read_engine

FLAGS = {c.option for s in SETTINGS for c in s.carried_by if isinstance(c, Flag)}
TEXTS = [
    *(w.head for s in SETTINGS for w in s.witnesses if isinstance(w, Line)),
    *(text.split("=DFLASH")[0] for s in SETTINGS for text in s.contradict),
    *(line.text for line in FORBIDDEN),
]


def spans(engines, speak_of):
    """[[*item, first release, last release]] of what each engine's facts speak of."""
    found = {}
    for facts in engines:
        for item in speak_of(facts):
            found.setdefault(item, []).append(facts.release)
    return [[*item, seen[0], seen[-1]] for item, seen in sorted(found.items())]


def options(facts):
    fields = {option.field for option in facts.options if option.flag in FLAGS}
    for option in facts.options:
        if option.field in fields or "speculative" in option.flag:
            yield option.flag, option.field, option.action, option.values


def templates(facts):
    return ((template,) for template in facts.templates if any(text in template for text in TEXTS))


def main(directories):
    engines = [read_engine(d / "sglang", next(d.glob("sglang-*.dist-info"))) for d in map(Path, directories)]
    parts = []
    for name, speak_of in (("options", options), ("templates", templates)):
        rows = ",\n".join("  " + json.dumps(row) for row in spans(engines, speak_of))
        parts.append(f'"{name}": [\n{rows}\n]')
    print("{" + ",\n".join(parts) + "}")


if __name__ == "__main__":
    main(sys.argv[1:])
