"""python3 -m testhosts.model_gateway: the layer of test hosts with the wheels of the gateway smg; prints its directory.

<layer>/srv/gateway/*.whl     what the lock of the role model_gateway names: model_gateway_wheelhouse
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import layers
from .cpu_engine.layer import DownloadFailed, download
from .state import State

LOCK = Path(__file__).parents[1] / "roles/model_gateway/files/1.13.0.txt"


def build() -> Path:
    """Build the layer, unless it is there, and return its directory. Raises DownloadFailed."""
    return layers.cached(State.from_environment(), {"model_gateway": LOCK.read_text()}, _fill)


def _fill(layer: Path) -> None:
    wheelhouse = layer / "srv/gateway"
    wheelhouse.mkdir(parents=True)
    download(["--require-hashes", f"--requirement={LOCK}"], wheelhouse)


if __name__ == "__main__":
    os.umask(0o022)  # every user of the test hosts reads the layer
    try:
        print(build())
    except DownloadFailed as failure:
        sys.exit(str(failure))
