"""The layer of a test host that brings what it takes to install and run SGLang on a CPU without a network.

<layer>/srv/wheelhouse/*.whl           every wheel that the locks name, the stand-ins among them
<layer>/srv/wheelhouse/<release>.txt   the locks
<layer>/srv/models/<model>/            tiny-qwen3, tiny-dflash
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import models, wheels

LOCKS = Path(__file__).parent / "locks"
DEFAULT_RELEASES = ("0.5.11", "0.5.13", "0.5.19", "0.5.23")
# What the test hosts run: CPython 3.11 of Debian 12, glibc 2.36. Said to pip, so that any Python can build the layer.
TARGET = [
    "--only-binary=:all:",
    "--python-version=3.11",
    "--implementation=cp",
    *(f"--abi={abi}" for abi in ("cp311", "abi3", "none")),
    *(f"--platform=manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)),
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux2010_x86_64",
    "--platform=manylinux1_x86_64",
]


class DownloadFailed(Exception):
    """pip did not deliver all wheels; its own message was printed before."""


def releases() -> list[str]:
    """The releases of SGLang that have a lock, oldest first."""
    return sorted((path.stem for path in LOCKS.glob("*.txt")), key=lambda release: [*map(int, release.split("."))])


def layer_directory(of: Iterable[str]) -> Path:
    """Where the layer of these releases lies once it is built; the name is a digest of all that goes into it."""
    digest = hashlib.sha256()
    for path in _ingredients(of):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(LOCKS.parent)} {len(content)}\n".encode() + content)
    return Path(os.environ.get("TESTHOSTS_DIR", "/var/lib/testhosts")) / "layers" / digest.hexdigest()[:16]


def _ingredients(of: Iterable[str]) -> list[Path]:
    sources = [path for path in wheels.STANDINS.rglob("*") if path.suffix in wheels.SUFFIXES]
    return sorted([*sources, *map(Path, (__file__, models.__file__, wheels.__file__)), *map(lock_of, of)])


def lock_of(release: str) -> Path:
    return LOCKS / f"{release}.txt"


def build(of: Iterable[str] = DEFAULT_RELEASES) -> Path:
    """Build the layer of these releases, unless it is there, and return its directory.

    A layer gets its name when it is complete. Of two builds at once the second waits for the first and takes its
    layer. Raises DownloadFailed.
    """
    layer = layer_directory(of)
    layer.parent.mkdir(parents=True, exist_ok=True)
    with _alone(layer.with_suffix(".lock")):
        if not layer.exists():
            unfinished = layer.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _fill_wheelhouse(unfinished / "srv/wheelhouse", of)
            models.write_models(unfinished / "srv/models")
            unfinished.rename(layer)
    return layer


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fill_wheelhouse(wheelhouse: Path, of: Iterable[str]) -> None:
    wheelhouse.mkdir(parents=True)
    for release in of:
        shutil.copy(lock_of(release), wheelhouse)
        download(["--require-hashes", f"--requirement={lock_of(release)}"], wheelhouse)


def relock(release: str) -> None:
    """Rewrite the lock of a release: the same pins, with the hashes of the wheels that pip takes for them today."""
    lock = lock_of(release)
    lines = lock.read_text().splitlines()
    comment = [line for line in lines if line.startswith("#")]
    pins = sorted({line.split()[0] for line in lines if "==" in line and line not in comment}, key=str.lower)
    with tempfile.TemporaryDirectory() as directory:
        download(pins, Path(directory))
        hashes = {pin_of(wheel): hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in Path(directory).iterdir()}
    locked = [f"{pin} --hash=sha256:{hashes[normal(pin)]}" for pin in pins]
    lock.write_text("\n".join([*comment, *locked, ""]))


def pin_of(wheel: Path) -> str:
    """The requirement that a wheel satisfies, normalized: its file name begins with name and version."""
    name, version = wheel.name.split("-")[:2]
    return normal(f"{name}=={version}")


def normal(pin: str) -> str:
    return pin.lower().replace("_", "-").replace(".", "-")


def download(requirements: list[str], directory: Path) -> None:
    """Let pip, configured as it is, download the wheels asked for and no others. Raises DownloadFailed."""
    with tempfile.TemporaryDirectory() as built:
        for source in wheels.standins():
            wheels.build_wheel(source, Path(built))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--quiet", "--no-deps", *TARGET]
        result = subprocess.run([*command, f"--find-links={built}", f"--dest={directory}", *requirements])
    if result.returncode != 0:
        raise DownloadFailed(
            "cpu_engine: pip could not download what the locks pin (its message is above).\n"
            "  torch  is the CPU build, which the default index does not carry: name a place that does,\n"
            "         PIP_FIND_LINKS=<directory with the wheel> or PIP_EXTRA_INDEX_URL=<index of CPU builds>\n"
            "  a stand-in whose source changed needs its new hash: python3 -m testhosts.cpu_engine lock"
        )
