"""python3 -m testhosts.packages NAME…: the layer of test hosts with these Debian packages; prints its directory.

<layer>/srv/packages/*.deb     they, and what they need that a host lacks: dpkg --install /srv/packages/*.deb
"""

from __future__ import annotations

import sys
from pathlib import Path

from . import layers
from .__main__ import say
from .command import Problem, run
from .state import State


def build(names: list[str]) -> Path:
    """Build the layer, unless it is there, and return its directory. Raises Problem."""
    state = State.from_environment()
    base = layers.base(state, say)

    def fill(layer: Path) -> None:
        archives = layer / "srv/packages"
        (archives / "partial").mkdir(parents=True)
        run(
            *("apt-get", "install", "--download-only", "--yes", "--no-install-recommends"),
            *("-o", "APT::Sandbox::User=root", "-o", f"Dir::Cache::archives={archives}"),
            *("-o", f"Dir::State::status={base}/var/lib/dpkg/status"),  # what a host has, not this machine
            *names,
        )
        (archives / "partial").rmdir()
        (archives / "lock").unlink()

    return layers.cached(state, {"packages": sorted(names), "base": base.name}, fill)


if __name__ == "__main__":
    try:
        print(build(sys.argv[1:]))
    except Problem as problem:
        sys.exit(f"{problem}\n  next     apt-get update, and again")
