"""Writes docs/settings.md from the contract: `python3 docs/settings.py > docs/settings.md`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "module_utils"))

from sglang_proof import contract

HEAD = """# Settings

What can be declared, what carries it to the engine, and which words of the engine prove it. Written from
`module_utils/sglang_proof/contract.py` by `python3 docs/settings.py`; a test holds it to that.

A value is a value, `none` (declared off, and proved off) or `unset` (not declared: the engine decides, nothing is claimed).
What differs at a *warning* is printed and passes.

| setting | under | meaning | carried by | proved by | severity |
|---|---|---|---|---|---|
"""


def row(entry):
    under = ", ".join(entry.algorithms) or "any"
    if entry.family:
        under += f" ({entry.family} build)"
    cells = [
        f"`{entry.name}`",
        under,
        entry.meaning + (f"; default {entry.default}" if entry.default else ""),
        "<br>".join(map(carrier, entry.carried_by)),
        "<br>".join(map(witness, entry.witnesses)) or "`server_args=` alone",
        entry.severity,
    ]
    return "| " + " | ".join(cells) + " |"


def carrier(carrier):
    name = carrier.option if isinstance(carrier, contract.Flag) else f"{carrier.name} (environment)"
    return f"`{name}`" + (f" {carrier.releases}" if carrier.releases else "")


def witness(witness):
    place = {
        contract.Line: lambda: f"log “{witness.head}”",
        contract.Granted: lambda: "`/server_info` internal_states",
        contract.Served: lambda: "`/model_info`",
    }[type(witness)]()
    if witness.relation == "present":
        return f"{place} is there"
    sign = {"eq": "=", "le": "≤"}[witness.relation]
    return f"{place}: `{witness.field}` {sign} {witness.expect}"


def page():
    return HEAD + "\n".join(row(entry) for entry in contract.SETTINGS) + "\n"


if __name__ == "__main__":
    print(page(), end="")
