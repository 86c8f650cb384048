"""The layer of a test host with every build of the stand-in, to be installed by the role's ordinary offline path.

<layer>/srv/wheelhouse/               sglang of each release, and its lock <release>.txt
<layer>/srv/wheelhouse/<fork>/        the same of a fork, which bears the release that it was made from: house, ddtree
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
    for path in (models.__file__, builds.__file__, __file__):
        definition[Path(path).name] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return layers.cached(State.from_environment(), definition, fill)


def fill(layer: Path) -> None:
    wheelhouse = layer / "srv/wheelhouse"
    for name in builds.names():
        directory = wheelhouse / name.partition("-")[2]
        directory.mkdir(parents=True, exist_ok=True)
        builds.build_wheel(name, directory)
    models.write_models(layer / "srv/models")


def _digest(files):
    digest = hashlib.sha256()
    for path, content in files.items():
        digest.update(f"{path} {len(content)}\n".encode() + content)
    return digest.hexdigest()
