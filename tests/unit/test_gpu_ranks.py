"""The ranks of an all-reduce end in time, and nothing of them is left. Here a shell plays the interpreter."""

from __future__ import annotations

import os
import select

import pytest
from ansible.module_utils import gpu_host_ranks

MEASURED = """echo 'gpu-host-all-reduce: {"latency_us": 20.5, "bus_gb_per_s": 37.1}'"""


@pytest.fixture
def run(tmp_path):
    def run(script, ranks=2, seconds=30):
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        return gpu_host_ranks.run(str(python), "gloo", ranks, seconds, {"MINE": "yes"}, str(tmp_path))

    return run


def ends(pid):
    """Wait until a process that was killed is no more."""
    try:
        return bool(select.select([os.pidfd_open(pid)], [], [], 20)[0])
    except ProcessLookupError:
        return True


def test_the_measurement_is_that_of_rank_0(run):
    outcome = run(f'[ "$RANK" = 0 ] && {MEASURED}; [ "$MINE" = yes ] && [ "$WORLD_SIZE" = 4 ]', ranks=4)
    assert (outcome.ranks, outcome.failed) == (4, None)
    assert outcome.measured == {"latency_us": 20.5, "bus_gb_per_s": 37.1}


def test_ranks_that_hang_are_killed_at_the_deadline_with_all_that_they_started(run, tmp_path):
    outcome = run(f"sleep 600 & echo $! > {tmp_path}/child$RANK; echo NCCL INFO Using network; wait", seconds=3)
    assert outcome.failed == (
        '2 ranks: rank 0 hung with 2 of 2 ranks, killed after 3 s; its last lines: "NCCL INFO Using network"'
    )
    children = [int((tmp_path / f"child{rank}").read_text()) for rank in (0, 1)]
    assert all(map(ends, children))


def test_the_first_rank_that_fails_ends_the_others(run):
    outcome = run('[ "$RANK" = 1 ] || exec sleep 600; echo "RuntimeError: CUDA error: out of memory"; exit 1', ranks=2)
    assert outcome.failed == (
        '2 ranks: rank 1 ended with status 1; its last lines: "RuntimeError: CUDA error: out of memory"'
    )
    assert outcome.seconds < 30


def test_no_measurement_is_a_failure(run):
    assert "rank 0 ended without a measurement; it printed nothing" in run("exit 0").failed


def test_an_interpreter_that_cannot_start_is_an_error(tmp_path):
    with pytest.raises(OSError):
        gpu_host_ranks.run(str(tmp_path / "none"), "gloo", 2, 5, {}, str(tmp_path))
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _started_in(pid, tmp_path)]


def _started_in(pid, directory):
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(directory)
    except OSError:
        return False
