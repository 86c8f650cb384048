"""One run at a time: who holds the host, who is refused, who takes over."""

from __future__ import annotations

import os
import subprocess

import pytest
from ansible.module_utils import host_lease
from stage import load


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "state" / "lease.json")


def take(path, token, now=1000.0, **arguments):
    return host_lease.take(path, token, f"holder of {token}", "a test", now=lambda: now, **arguments)


def test_the_second_run_is_told_who_holds_it_and_until_when(path):
    assert take(path, "a") is None
    other = take(path, "b", now=1010.0)
    assert (other["holder"], other["since"], other["until"]) == ("holder of a", 1000.0, 1000.0 + host_lease.SECONDS)
    said = host_lease.refusal(other, "gpu1", "deploy")
    assert "gpu1 is being changed by holder of a (a test) since" in said and "Nothing was changed" in said


def test_a_lease_that_is_not_renewed_ends(path):
    take(path, "a")
    assert take(path, "b", now=1000.0 + host_lease.SECONDS) is None


def test_renewing_keeps_it_and_its_beginning(path):
    take(path, "a")
    assert host_lease.renew(path, "a", now=lambda: 1800.0) is None
    other = take(path, "b", now=2000.0)
    assert (other["since"], other["until"]) == (1000.0, 1800.0 + host_lease.SECONDS)


def test_who_lost_it_is_told_by_whom(path):
    take(path, "a")
    take(path, "b", instead_of="a")
    assert host_lease.renew(path, "a", now=lambda: 1001.0)["holder"] == "holder of b"


def test_only_the_holder_gives_it_back(path):
    take(path, "a")
    host_lease.give_back(path, "b")
    assert take(path, "b") is not None
    host_lease.give_back(path, "a")
    assert take(path, "b") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"token": "a"}', "null"])
def test_a_file_that_is_no_lease_blocks_nobody(path, content):
    os.makedirs(os.path.dirname(path))
    with open(path, "w") as file:
        file.write(content)
    assert take(path, "b") is None


def test_a_run_is_gone_when_its_process_is(tmp_path):
    action = load("plugins/action/host_lease.py")
    process = subprocess.Popen(["sleep", "infinity"])
    token = action.token(process.pid)
    assert not action.is_gone(token)
    process.kill()
    process.wait()
    assert action.is_gone(token)


def test_a_run_of_another_controller_is_never_taken_for_gone():
    action = load("plugins/action/host_lease.py")
    controller, boot, pid, started = action.token(os.getpid()).split(" ")
    assert action.is_gone(f"{controller} {boot} {pid} {started}0")
    assert not action.is_gone(f"elsewhere {boot} {pid} {started}0")
    # cloned machines and containers have one name, and process numbers of their own
    assert not action.is_gone(f"{controller.rpartition('/')[0]}/pid:[1] {boot} {pid} {started}0")
    assert not action.is_gone(f"{os.uname().nodename} sglang-deploy 77 1764442342")
