"""A part of `make faults`: of each kind one or two faults, each made to happen on a real host and named rightly."""

from __future__ import annotations

import faults
import host as stage
import pytest
import run

HOST = "fault4"
SHOWN = (
    "the worker drops the window, the echo has it",
    "a foreign drop-in has another command",
    "the same in sitecustomize.py",
    "weights swapped at run time",
    "the line is cut",
    "another unit says the line",
    "a worker dies and the launcher kills itself",
    "a shell wrapper is the main process",
)


@pytest.fixture(scope="module")
def deployed():
    stage.up({HOST: run.ADDRESSES[HOST]})
    yield stage.Host(HOST)
    stage.hosts("down", HOST)


@pytest.mark.parametrize("name", SHOWN)
def test_a_fault_is_named_rightly_and_the_host_is_put_right(deployed, name):
    fault = next(fault for fault in faults.FAULTS if fault.name == name)
    assert run.show(deployed, fault).problems == []


def test_an_honest_start_is_proved_after_all_of_them(deployed):
    assert deployed.prove().verdict == "proved"
