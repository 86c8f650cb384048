"""The locks of the CPU engine are closed, agree with each other, and pin the stand-ins as their sources are now."""

import hashlib
import os
import re

import pytest

from testhosts.cpu_engine import layer, wheels

LOCKED = re.compile(r"([\w.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})")


def locked(release):
    """The version and the hash of every package in the lock of a release."""
    lines = [line for line in layer.lock_of(release).read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not LOCKED.fullmatch(line)] == []
    return {pin[1]: (pin[2], pin[3]) for pin in map(LOCKED.fullmatch, lines)}


@pytest.mark.parametrize("release", layer.releases())
def test_the_lock_of_a_release_pins_that_release(release):
    assert locked(release)["sglang"][0] == release


def test_releases_differ_in_sglang_and_the_hook_alone():
    common = [{**locked(release), "sglang": None, "sglang_cpu_engine_hook": None} for release in layer.releases()]
    assert all(pins == common[0] for pins in common)


@pytest.mark.parametrize("release", layer.releases())
def test_the_stand_ins_are_pinned_as_they_are_built(release, tmp_path):
    pins = locked(release)
    for source in wheels.standins():
        if source.name in pins:
            wheel = wheels.build_wheel(source, tmp_path)
            found = hashlib.sha256(wheel.read_bytes()).hexdigest()
            assert pins[source.name][1] == found, "run: python3 -m testhosts.cpu_engine lock"


def test_a_wheel_is_the_same_whoever_builds_it_and_when(tmp_path):
    source = tmp_path / "a_standin"
    source.mkdir()
    (source / "a.py").write_text('"""Stands in for a."""\n')
    first = wheels.build_wheel(source, tmp_path).read_bytes()
    os.utime(source / "a.py", (0, 0))
    (source / "a.py").chmod(0o600)
    assert wheels.build_wheel(source, tmp_path).read_bytes() == first
