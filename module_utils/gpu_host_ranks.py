"""Runs the ranks of an all-reduce, and ends them: each in a process group of its own, killed as a whole at the deadline."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from .gpu_host import all_reduce


class Outcome(NamedTuple):
    """`measured` where all ranks ended well, otherwise what went wrong in `failed`, with the last lines of a rank."""

    ranks: int
    seconds: float
    measured: dict | None = None
    failed: str | None = None


def run(python, backend, ranks, seconds, environment, directory):
    """All-reduce among `ranks` ranks under the engine's interpreter; `directory` is a scratch directory.

    Ends when all have ended, at the first that fails, or after `seconds`. No process of it is left.
    """
    script = Path(directory, "all_reduce.py")
    # From the loader, which also has the source where Ansible runs this package from a zip file.
    script.write_text(importlib.util.find_spec(all_reduce.__name__).loader.get_source(all_reduce.__name__))
    rendezvous = Path(directory, f"rendezvous{ranks}")
    with contextlib.suppress(FileNotFoundError):
        rendezvous.unlink()
    argv = [python, str(script), backend, str(rendezvous), str(seconds)]
    began, processes = time.monotonic(), []
    try:
        for rank in range(ranks):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            # the names of the loopback: one host needs no other, and a host name may lead anywhere
            local = {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
            with open(_log(directory, ranks, rank), "wb") as log:
                processes.append(
                    subprocess.Popen(
                        argv,
                        env={**os.environ, **local, **environment, **place},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        cwd=directory,
                        start_new_session=True,
                    )
                )
        failed = _watch(processes, began + seconds, seconds)
    finally:
        unkillable = _end(processes)
    took = time.monotonic() - began
    measured = all_reduce.parse(_printed(directory, ranks, 0))
    if failed is None and measured is None:
        failed = (0, "ended without a measurement")
    if failed is None:
        return Outcome(ranks, took, measured)
    rank, what = failed
    last = [line for line in _printed(directory, ranks, rank).splitlines() if line.strip()][-3:]
    said = f'; its last lines: "{" | ".join(line.strip()[-200:] for line in last)}"' if last else "; it printed nothing"
    if unkillable:
        said += f"; {unkillable} not gone after SIGKILL: only a reboot ends what hangs in the driver"
    return Outcome(ranks, took, failed=f"{ranks} ranks: rank {rank} {what}{said}")


def _watch(processes, deadline, seconds):
    """None when all ended well, or (rank, what it did) of the first that did not."""
    with selectors.DefaultSelector() as waiting:
        descriptors = {}
        try:
            for rank, process in enumerate(processes):
                descriptors[rank] = os.pidfd_open(process.pid)
                waiting.register(descriptors[rank], selectors.EVENT_READ, rank)
            while waiting.get_map():
                ready = waiting.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    hanging = sorted(key.data for key in waiting.get_map().values())
                    return hanging[0], f"hung with {len(hanging)} of {len(processes)} ranks, killed after {seconds} s"
                for key, _ in ready:
                    waiting.unregister(key.fd)
                    status = processes[key.data].wait()
                    if status:
                        return key.data, f"ended with status {status}"
        finally:
            for descriptor in descriptors.values():
                os.close(descriptor)
    return None


def _end(processes):
    """Kill every rank with all that it started; names those that the kernel does not let go."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    left = []
    for process in processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            left.append(f"pid {process.pid}")
    return ", ".join(left)


def _log(directory, ranks, rank):
    return Path(directory, f"rank{rank}of{ranks}.log")


def _printed(directory, ranks, rank):
    return _log(directory, ranks, rank).read_text(errors="replace")
