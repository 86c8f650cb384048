"""The layer of a test host with every build of the stand-in, to be installed by the role's ordinary offline path.

<layer>/srv/wheelhouse/*.whl          sglang of each release, and of two forks with their own build tag
<layer>/srv/wheelhouse/<build>.txt    the locks, 0.5.13.txt and 0.5.13-house.txt among them
<layer>/srv/models/<model>/           tiny-qwen3, tiny-dflash, as the real engine has them
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .. import layers
from ..cpu_engine import models
from ..state import State
from . import builds


def build() -> Path:
    """Build the layer, unless it is there, and return its directory."""
    definition = {name: _digest(builds.package(name)) for name in builds.names()}
    definition["models"] = hashlib.sha256(Path(models.__file__).read_bytes()).hexdigest()
    return layers.cached(State.from_environment(), definition, fill)


def fill(layer: Path) -> None:
    wheelhouse = layer / "srv/wheelhouse"
    wheelhouse.mkdir(parents=True)
    for name in builds.names():
        builds.build_wheel(name, wheelhouse)
    models.write_models(layer / "srv/models")


def _digest(files):
    digest = hashlib.sha256()
    for path, content in files.items():
        digest.update(f"{path} {len(content)}\n".encode() + content)
    return digest.hexdigest()
