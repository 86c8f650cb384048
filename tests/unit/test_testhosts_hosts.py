"""Names and addresses of test hosts, and what a person reads when something is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from testhosts import hosts, tools
from testhosts.command import Problem, run
from testhosts.state import State

NETWORK = IPv4Network("10.1.2.0/29")  # .1 the machine's, .2 to .6 the hosts'
A, B, C = map(IPv4Address, ("10.1.2.2", "10.1.2.3", "10.1.2.4"))


def test_addresses_are_the_first_free_ones_after_those_asked_for():
    assert hosts.assign({"a": None, "b": A, "c": None}, NETWORK, {}, set()) == {"a": B, "b": A, "c": C}


def test_a_known_host_keeps_its_address():
    assert hosts.assign({"a": None, "b": None}, NETWORK, {"b": A}, {A}) == {"a": B, "b": A}


def test_an_address_used_by_other_hosts_is_not_given_out():
    assert hosts.assign({"a": None}, NETWORK, {}, {A}) == {"a": B}


@pytest.mark.parametrize(
    ("requests", "known", "taken", "message"),
    [
        ({"a": A}, {"b": A}, set(), "a: 10.1.2.2 belongs to b; type: .* down b"),
        ({"a": A, "b": A}, {}, set(), "b: 10.1.2.2 belongs to a"),
        ({"a": A}, {}, {A}, "a: 10.1.2.2 is used by a host of another TESTHOSTS_DIR"),
        (
            {"a": IPv4Address("10.1.2.1")},
            {},
            set(),
            "a: 10.1.2.1 is no host address .*10.1.2.1 is the machine's",
        ),
        (
            {"a": IPv4Address("10.9.9.9")},
            {},
            set(),
            "a: 10.9.9.9 is no host address of TESTHOSTS_NETWORK 10.1.2.0/29",
        ),
        (dict.fromkeys("abcdef"), {}, set(), "no address left"),
    ],
)
def test_an_address_that_cannot_be_had_is_refused_with_the_reason(requests, known, taken, message):
    with pytest.raises(Problem, match=message):
        hosts.assign(requests, NETWORK, known, taken)


@pytest.mark.parametrize("request_", ["", "Node1", "../x", "a_b", "-a", "a-", "a" * 33, "a=10.1.2", "a="])
def test_names_and_addresses_that_are_none_are_refused(request_):
    with pytest.raises(Problem):
        hosts.parse([request_])


def test_a_failed_command_is_one_sentence_with_its_standard_error():
    with pytest.raises(Problem, match="`sh -c 'echo no space >&2; exit 3'` ended with 3: no space"):
        run("sh", "-c", "echo no space >&2; exit 3")
    with pytest.raises(Problem, match="cannot run `no-such-program x`: No such file"):
        run("no-such-program", "x")


def test_without_root_the_missing_packages_and_the_command_are_named(monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda program: None if program in ("ip", "mmdebstrap") else program)
    monkeypatch.setattr(tools.os, "geteuid", lambda: 1000)
    with pytest.raises(Problem, match=r"iproute2, mmdebstrap; type: sudo apt-get install .*iproute2 mmdebstrap"):
        tools.install(say=lambda line: None)


def test_another_directory_has_other_cgroups_and_another_network_another_bridge():
    one = State.from_environment({"TESTHOSTS_DIR": "/a", "TESTHOSTS_NETWORK": "10.1.2.0/24"})
    two = State.from_environment({"TESTHOSTS_DIR": "/b", "TESTHOSTS_NETWORK": "10.1.3.0/24"})
    assert one.tag != two.tag
    assert one.bridge != two.bridge
    assert len(one.bridge) <= 15  # the kernel's limit for interface names


@pytest.mark.parametrize("environment", [{"TESTHOSTS_NETWORK": "10.1.2.3/24"}, {"TESTHOSTS_DIR": "/a:b"}])
def test_a_setting_that_cannot_work_ends_with_one_line_that_names_it(environment):
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "testhosts", "list"],
        cwd=root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"testhosts: {next(iter(environment))}: ")
    assert len(done.stderr.splitlines()) == 1
