"""The cgroups of the hosts. They are the truth about what runs: no pid file can be stale, lost or reused."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from .command import Problem

# What systemd 252 manages on cgroup v1; cpuset and freezer it leaves alone.
CONTROLLERS = {"name=systemd", "cpu", "cpuacct", "memory", "devices", "blkio", "pids"}


@dataclass(frozen=True)
class Hierarchy:
    mount: Path
    parent: Path  # the cgroup below which ours are made
    version: int


def hierarchies(mountinfo, own):
    """The mounted hierarchies, from the text of /proc/self/mountinfo and /proc/self/cgroup.

    Ours go below the caller's own cgroups, so that its limits hold for them; with v2 alone below the root:
    only there may a cgroup with processes hand controllers on (the "no internal process" rule of v2).
    """
    paths = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    found = []
    for line in mountinfo.splitlines():
        fields, _, tail = line.partition(" - ")
        root, mount = fields.split()[3:5]
        kind, _, options = tail.split()[:3]
        if kind == "cgroup2":
            found.append((2, Path(mount), root, ""))
        elif kind == "cgroup" and (ours := CONTROLLERS.intersection(options.split(","))):
            found.append((1, Path(mount), root, min(ours)))
    only_v2 = all(version == 2 for version, *_ in found)
    result = []
    for version, mount, root, controller in found:
        path = "/" if only_v2 else paths.get(controller, "/")
        inside = os.path.relpath(path, root) if path.startswith(root) else "."
        result.append(Hierarchy(mount, mount / inside, version))
    return result


def _hierarchies():
    found = hierarchies(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    if not found:
        raise Problem("no cgroups are mounted (read in /proc/self/mountinfo); type: mount -t cgroup2 none /sys/fs/cgroup")
    return found


def create(tag, name):
    """Make the cgroups of a host; returns the directories whose cgroup.procs its supervisor has to join."""
    found = _hierarchies()
    only_v2 = all(hierarchy.version == 2 for hierarchy in found)
    joined = []
    for hierarchy in found:
        # nspawn puts its payload beside a cgroup of this name; v2 needs that to enforce limits
        directory = hierarchy.parent / tag / name / ("supervisor" if only_v2 else "")
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Problem(f"{name}: cannot make the cgroup {directory}: {error.strerror}") from error
        if only_v2:
            for above in (hierarchy.parent, hierarchy.parent / tag):
                for controller in ("cpu", "io", "memory", "pids"):
                    with contextlib.suppress(OSError):  # a controller that this machine does not have
                        (above / "cgroup.subtree_control").write_text(f"+{controller}")
        joined.append(directory)
    return joined


def find(tag):
    """The cgroups of all hosts, wherever their starter was: {name: [directory, …]}."""
    hosts = {}
    for hierarchy in _hierarchies():
        for directory, children, _ in os.walk(hierarchy.mount):
            if os.path.basename(directory) == tag:
                for name in children:
                    hosts.setdefault(name, []).append(Path(directory, name))
                children.clear()
    return hosts


def processes(directories):
    """Pids in the given cgroups and below."""
    pids = set()
    for directory in directories:
        for below, _, _ in os.walk(directory):
            with contextlib.suppress(OSError):  # gone meanwhile
                pids.update(map(int, Path(below, "cgroup.procs").read_text().split()))
    return pids - {0}


def init(directories):
    """Pid of the host's own PID 1, or None: it is two pid namespaces down, the supervisor one."""
    for pid in processes(directories):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            namespaces = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
            if len(namespaces) == 3 and namespaces[-1] == "1":
                return pid
    return None


def remove(directories, seconds=30):
    """Kill everything in the given cgroups and remove them. Raises Problem if they are not gone in time."""
    deadline = time.monotonic() + seconds
    while remaining := [directory for directory in directories if directory.exists()]:
        if time.monotonic() > deadline:
            raise Problem(
                f"processes {sorted(processes(remaining))} do not end, or their cgroups cannot be removed: "
                f"{' '.join(map(str, remaining))}"
            )
        for directory in remaining:
            with contextlib.suppress(OSError):  # v2 only: all at once, no fork can escape
                (directory / "cgroup.kill").write_text("1")
        for pid in processes(remaining):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for directory in remaining:
            for below, _, _ in os.walk(directory, topdown=False):
                with contextlib.suppress(OSError):  # still busy: next round
                    os.rmdir(below)
        if any(directory.exists() for directory in remaining):
            time.sleep(0.02)
    for parent in {directory.parent for directory in directories}:
        with contextlib.suppress(OSError):  # other hosts are in it
            parent.rmdir()
