"""Packages and a signed flat repository, made with dpkg-deb and gpg."""

import gzip
import hashlib
import os
import tempfile
from pathlib import Path

from ..command import run


def write(directory, packages):
    """Fill a directory with the packages and a signed index; returns the fingerprint of the key that signed it."""
    index = "\n".join(build(package, directory) for package in packages)
    (directory / "Packages").write_text(index)
    (directory / "Packages.gz").write_bytes(gzip.compress(index.encode(), mtime=0))
    (directory / "Release").write_text(release(directory))
    return sign(directory)


def build(package, directory):
    """Make one .deb; returns its entry in the index."""
    control = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": package.architecture,
        "Maintainer": "Tests <tests@example.invalid>",
        **package.relations,
        "Description": f"stand-in for {package.name} (tests)",
    }
    deb = directory / f"{package.name}_{package.version}_{package.architecture}.deb"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "root")
        (root / "DEBIAN").mkdir(parents=True)
        root.chmod(0o755)
        (root / "DEBIAN/control").write_text(fields(control))
        for path, text in package.files.items():
            place(root / path, text)
        for path, target in package.links.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).symlink_to(target)
        for name, text in package.scripts.items():
            place(root / "DEBIAN" / name, f"#!/bin/sh\nset -e\n{text}")
        run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(deb))
    content = deb.read_bytes()
    file = {"Filename": f"./{deb.name}", "Size": len(content), "SHA256": hashlib.sha256(content).hexdigest()}
    return fields(control | file)


def place(path, text):
    """Write a file; what begins with #! can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if text.startswith("#!") else 0o644)


def fields(values):
    return "".join(f"{name}: {value}\n" for name, value in values.items())


def release(directory):
    sums = []
    for name in ("Packages", "Packages.gz"):
        content = (directory / name).read_bytes()
        sums.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}\n")
    head = {"Origin": "NVIDIA", "Label": "NVIDIA CUDA", "Suite": "stable", "Date": "Sat, 01 Nov 2025 00:00:00 UTC"}
    return fields(head) + "SHA256:\n" + "".join(sums)


def sign(directory):
    """Sign the index with a new key and put its public half beside it, under the name that NVIDIA's has."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "GNUPGHOME": home}
        gpg = ("gpg", "--batch", "--quiet")
        run(*gpg, "--passphrase", "", "--quick-gen-key", "tests@example.invalid", "rsa2048", "sign", "never", env=env)
        (directory / "3bf863cc.pub").write_text(run(*gpg, "--armor", "--export", env=env))
        run(*gpg, "--clearsign", "--output", str(directory / "InRelease"), str(directory / "Release"), env=env)
        listing = run(*gpg, "--with-colons", "--list-keys", env=env)
        run("gpgconf", "--kill", "gpg-agent", env=env)
    return next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
