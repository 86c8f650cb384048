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
What differs at a *warning* is printed and passes. A fork brings settings of its own: [forks.md](forks.md).

| setting | under | meaning | carried by | proved by | severity |
|---|---|---|---|---|---|
"""


def row(entry):
    under = ", ".join(entry.algorithms) or "any"
    if entry.family:
        under += f" ({entry.family} build)"
    return [
        f"`{entry.name}`",
        under,
        entry.meaning
        + (f"; default {entry.default}" if entry.default else "")
        + (f"; no two instances of a host take the same {entry.claims.what}" if entry.claims else ""),
        "<br>".join(map(carrier, entry.carried_by)) or "nothing",
        "<br>".join(proofs(entry)),
        entry.severity,
    ]


def proofs(entry):
    yield from map(witness, entry.witnesses)
    if not entry.witnesses:
        is_echoed = any(isinstance(c, contract.Flag) for c in entry.carried_by)
        yield "`server_args=` alone" if is_echoed else "the process's environment" if entry.carried_by else "the plan"
    yield from (f"no log “{text}”" for text in entry.contradict)
    yield from (f"(harmless: log “{text}”)" for text in entry.benign)


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
    sign = {"eq": "=", "le": "≤", "ge": "≥"}[witness.relation]
    return f"{place}: `{witness.field}` {sign} {witness.expect}"


FORBIDDEN = """
## What must not be there

A line of the start that has one of these texts fails the host, or is printed where it is a *warning*.

| text | what it means | under | only where | severity |
|---|---|---|---|---|
"""
VARIABLES = """
The environment of the engine may not have a variable that begins like one of these.

| variable | what it means | only where |
|---|---|---|
"""


def table(rows):
    return "".join("| " + " | ".join(cells) + " |\n" for cells in rows)


def where(condition):
    return "any" if condition == "True" else f"`{condition}`"


def page():
    lines = [
        (f"“{f.text}”", f.reason, ", ".join(f.algorithms) or "any", where(f.when), f.severity) for f in contract.FORBIDDEN
    ]
    variables = [(f"`{v.name}…`", v.reason, where(v.when)) for v in contract.FORBIDDEN_VARIABLES]
    return HEAD + table(map(row, contract.SETTINGS)) + FORBIDDEN + table(lines) + VARIABLES + table(variables)


if __name__ == "__main__":
    print(page(), end="")
