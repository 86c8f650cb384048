"""Wheels of the stand-ins: a directory of modules becomes a wheel, with the same bytes on every machine.

The hash of a stand-in is pinned in the locks like that of any other package, so the time of the build, the order of
the file system and the version of zlib must not show: times are fixed, names are sorted, nothing is compressed.
Format: the Python Packaging User Guide, "Binary distribution format".
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

STANDINS = Path(__file__).parent / "standins"
SUFFIXES = (".py", ".pth")
VERSION = "1"
WHEEL = "Wheel-Version: 1.0\nGenerator: testhosts.cpu_engine\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def standins() -> list[Path]:
    """The source directories of the stand-ins; the name of a directory is the name of its distribution."""
    return sorted(path for path in STANDINS.iterdir() if path.is_dir())


def build_wheel(source: Path, directory: Path) -> Path:
    """Write the wheel of the stand-in `source` into `directory` and return its path."""
    files = {path.relative_to(source).as_posix(): path.read_bytes() for path in _sources(source)}
    return write_wheel(source.name, VERSION, files, directory)


def write_wheel(name: str, version: str, files: dict[str, bytes], directory: Path) -> Path:
    """Write the wheel `name` that holds `files` (path → content) into `directory` and return its path."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": WHEEL.encode(),
    }
    record = f"{info}/RECORD"
    entries = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in files.items()]
    files[record] = "\n".join([*entries, f"{record},,", ""]).encode()

    wheel = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix: the next attribute is a file mode
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    return wheel


def _sources(source: Path) -> list[Path]:
    return sorted(path for path in source.rglob("*") if path.suffix in SUFFIXES)


def _digest(content: bytes) -> str:
    """A hash as RECORD writes it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
