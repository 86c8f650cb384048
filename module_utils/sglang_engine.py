"""Finds the SGLang of a Python environment on its host and reads its facts, which a file on the host keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from .sglang_host import CannotRead, read_json, run
from .sglang_proof.facts import EngineFacts, installation_key, read_engine, source_key

FIND = """
import importlib.metadata, importlib.util, json
package = importlib.util.find_spec("sglang")
try:
    metadata = str(importlib.metadata.distribution("sglang")._path)
except importlib.metadata.PackageNotFoundError:
    metadata = None
print(json.dumps([list(package.submodule_search_locations) if package else [], metadata]))
"""


class Missing(Exception):
    """The interpreter is not there, or has no SGLang. `str()` says which."""


class Engine(NamedTuple):
    """An installed engine. `installation` is SHA-256 over all that its interpreter would run."""

    package: Path
    facts: EngineFacts
    installation: str
    key: str  # what the facts were read from
    kept: dict  # what the cache held before: {"key", "facts"}, or nothing

    @property
    def cached(self):
        return self.kept.get("key") == self.key

    def to_keep(self):
        return {"key": self.key, "facts": self.facts.to_dict()}


def read(python, cache=None, release=None):
    """The Engine of an interpreter; `cache` is read, not written. Raises Missing, NotAnEngine, CannotRead.

    release: the one that is declared, if any; another one is refused.
    """
    if not Path(python).exists():
        raise Missing(f"{python} is not there")
    printed = run([python, "-c", FIND], cwd="/")
    try:
        locations, metadata = json.loads(printed.splitlines()[-1])
    except (IndexError, TypeError, ValueError):
        raise CannotRead(f"{python} is no Python: asked where its SGLang is, it printed {printed[:60]!r}") from None
    if not locations:
        raise Missing(f"{python} has no SGLang")
    place = Path(locations[0]), metadata and Path(metadata)
    key = source_key(*place)
    kept = read_json(cache) if cache else None
    try:
        facts = EngineFacts.from_dict(kept["facts"]) if kept["key"] == key else read_engine(*place)
    except (KeyError, TypeError):  # there is none, or not one of this form
        kept, facts = {}, read_engine(*place)
    if release not in (None, "", facts.release):
        raise CannotRead(
            f"sglang_engine_version: declared {release}, but {python.rsplit('/', 2)[0]} holds SGLang {facts.release} "
            f"(read in its package metadata). Correct the lock or the ref, or declare sglang_engine_version={facts.release}."
        )
    return Engine(place[0], facts, installation_key(place[0]), key, kept)
