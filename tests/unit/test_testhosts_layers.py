"""Layers: what is in them, when one is built again, and which package sources it is built from."""

from __future__ import annotations

import ipaddress
import threading

import pytest

from testhosts import layers
from testhosts.command import Problem
from testhosts.state import State


@pytest.fixture
def state(tmp_path):
    return State(tmp_path, ipaddress.IPv4Network("10.0.0.0/24"))


def test_two_that_want_the_same_layer_at_once_build_it_once(state):
    builds, entered, go = [], threading.Event(), threading.Event()

    def build(directory):
        builds.append(directory)
        entered.set()
        go.wait(10)
        (directory / "content").write_text("whole")

    found = []
    builders = [threading.Thread(target=lambda: found.append(layers.cached(state, "x", build))) for _ in range(2)]
    for builder in builders:
        builder.start()
    entered.wait(10)
    go.set()
    for builder in builders:
        builder.join()
    assert len(builds) == 1
    assert [(layer / "content").read_text() for layer in found] == ["whole", "whole"]


def test_what_a_failed_build_left_is_never_used(state):
    def fails(directory):
        (directory / "half").touch()
        raise Problem("the archive is down")

    with pytest.raises(Problem):
        layers.cached(state, "x", fails)
    layer = layers.cached(state, "x", lambda directory: (directory / "whole").touch())
    assert [path.name for path in layer.iterdir()] == ["whole"]


def test_another_definition_is_another_layer(state):
    one = layers.cached(state, ["less"], lambda directory: None)
    two = layers.cached(state, ["less", "curl"], lambda directory: None)
    assert one != two


def test_another_key_is_another_seed(state):
    (state.directory / "id_ed25519").touch()
    seeds = []
    for key in ("ssh-ed25519 AAAA one\n", "ssh-ed25519 BBBB two\n"):
        (state.directory / "id_ed25519.pub").write_text(key)
        seeds.append(layers.seed(state))
    assert [(seed / "etc/ssh/testhosts_authorized_keys").read_text()[:16] for seed in seeds] == [
        "ssh-ed25519 AAAA",
        "ssh-ed25519 BBBB",
    ]


TARGETS = """\
http://mirror.example/debian/ bookworm main
http://mirror.example/debian/ bookworm contrib
http://mirror.example/debian/ bookworm main
http://mirror.example/security/ bookworm-security main
http://vendor.example/apt/ stable main
"""


def test_hosts_are_built_from_the_machines_own_sources_of_its_release():
    assert layers.sources(TARGETS, "bookworm").splitlines() == [
        "deb http://mirror.example/debian/ bookworm main",
        "deb http://mirror.example/debian/ bookworm contrib",
        "deb http://mirror.example/security/ bookworm-security main",
    ]


def test_a_machine_without_sources_of_its_release_is_told_where_that_was_read():
    with pytest.raises(Problem, match=r"no source for trixie.*apt-get indextargets"):
        layers.sources(TARGETS, "trixie")


def test_the_machines_proxy_and_date_settings_are_kept():
    dump = (
        'APT::Architecture "amd64";\nAcquire::Check-Date "false";\nAcquire::http "";\n'
        'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::IndexTargets "";\n'
    )
    assert layers.acquire(dump) == [
        'Acquire::Check-Date "false"',
        'Acquire::http::Proxy "http://proxy.example:3128"',
    ]


def test_a_directory_that_an_overlay_cannot_use_is_refused_by_name(state, tmp_path):
    (tmp_path / "a:b").mkdir()
    with pytest.raises(Problem, match=r"--layer .*a:b"):
        layers.lower(state, [str(tmp_path / "a:b")], say=lambda line: None)
    with pytest.raises(Problem, match=r"--layer .*missing: no such directory"):
        layers.lower(state, [str(tmp_path / "missing")], say=lambda line: None)
