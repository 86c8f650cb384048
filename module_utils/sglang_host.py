"""What a host shows of a service: systemd, /proc, the journal, HTTP. All reading, nothing is changed.

Standard library only; every method returns data for the pure code of sglang_proof, or raises CannotRead with a sentence.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from .sglang_proof import journal, systemd_unit
from .sglang_proof.errors import CannotRead

GPU_IDLE_MIB = 1024  # what a driver itself keeps of an idle GPU stays well below; a rank that was left over, far above

C_LOCALE = {**os.environ, "LC_ALL": "C"}


def run(argv, **kwargs):
    """Standard output of a command in the C locale. Raises CannotRead with the command and what it said."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=C_LOCALE, **kwargs)
    except OSError as error:
        raise CannotRead(f"`{' '.join(argv)}` cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise _failed(argv, done.stderr, done.returncode)
    return done.stdout


def _lines(argv):
    """The lines that a command prints, as they come: a journal can be larger than memory. Raises CannotRead."""
    with tempfile.TemporaryFile() as errors:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
        with subprocess.Popen(argv, env=C_LOCALE, **pipes) as process:
            yield from process.stdout
        if process.returncode != 0:
            errors.seek(0)
            raise _failed(argv, errors.read(), process.returncode)


def _failed(argv, errors, status):
    said = errors.decode(errors="replace").strip().splitlines() or [f"exit status {status}"]
    return CannotRead(f"`{' '.join(argv)}` failed: {said[-1]}")


def read_json(path):
    """The content of a file that this project keeps; None where there is none that can be read: it is made anew."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path, data):
    """Keep data as a whole or not at all, readable by root alone. Raises CannotKeep; the old file stays then."""
    new = f"{path}.new"
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise CannotKeep(f"{path} cannot be written: {error.strerror}") from None


class CannotKeep(Exception):
    """A file of this project could not be written: what was found out stands, but is not kept."""


class Owner(NamedTuple):
    """A process that holds something: does it belong to the unit asked for, its name for people, its unit."""

    ours: bool
    name: str
    unit: str | None


class Host:
    """One host as its own root sees it."""

    clock = staticmethod(time.monotonic)
    now = staticmethod(time.time)
    sleep = staticmethod(time.sleep)

    def unit(self, name):
        """The unit as systemd holds it now (systemd_unit.Unit; load_state "not-found" where there is none)."""
        return systemd_unit.parse_properties(run(systemd_unit.busctl_argv(name)).decode())

    def manager_environment(self):
        """The environment that systemd itself hands to every unit (systemctl set-environment)."""
        manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"]
        answer = json.loads(run(["busctl", "--system", "--json=short", "get-property", *manager, "Environment"]))
        return dict(item.split("=", 1) for item in answer["data"])

    def process(self, pid):
        """(argv, environment) with which a process was started, or None if it is gone."""
        try:
            base = Path("/proc") / str(pid)
            argv = systemd_unit.parse_cmdline((base / "cmdline").read_bytes())
            environment = systemd_unit.parse_environ((base / "environ").read_bytes())
        except (FileNotFoundError, ProcessLookupError):
            return None
        return (tuple(argv), environment) if argv else None

    def environments(self, control_group):
        """Process id (text) → environment with which it was started, of a control group's processes."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if _in_group(pid, control_group):
                with contextlib.suppress(OSError):  # it ended while we looked
                    found[pid] = systemd_unit.parse_environ(Path(f"/proc/{pid}/environ").read_bytes())
        return found

    def boot_id(self):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def insist_on_journal(self):
        """Raises CannotRead where journald does not answer."""
        run(["journalctl", "--sync"])

    def journal(self, invocation, after_cursor=None):
        """The lines of JSON that the journal holds of one start of a unit, as bytes, one by one."""
        self.insist_on_journal()
        return _lines(journal.journalctl_argv(invocation, after_cursor=after_cursor))

    def kernel_journal(self, since):
        """The kernel's records from a time (Unix seconds) on: what its OOM killer did."""
        return _lines(journal.kernel_argv(since))

    def usage(self, control_group):
        """Process id (text) → [bytes read from disk, resident bytes, CPU seconds] of a control group's processes."""
        processes = (pid for pid in os.listdir("/proc") if pid.isdigit() and _in_group(pid, control_group))
        readings = {pid: _usage(pid) for pid in processes}
        return {pid: reading for pid, reading in readings.items() if reading}

    def follow(self, invocation, after_cursor, deadline, tick=0.5):
        """Further lines as they come, and None at least every `tick` seconds; ends at `deadline` (of `clock`)."""
        argv = journal.journalctl_argv(invocation, follow=True, after_cursor=after_cursor)
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=C_LOCALE, bufsize=0
        )
        rest = b""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                while self.clock() < deadline:
                    if selector.select(max(0, min(tick, deadline - self.clock()))):
                        chunk = os.read(process.stdout.fileno(), 1 << 16)
                        if not chunk:
                            said = process.stderr.read().decode(errors="replace").strip().splitlines()
                            raise CannotRead(f"journalctl ended while the start was followed: {(said or ['no reason'])[-1]}")
                        *lines, rest = (rest + chunk).split(b"\n")
                        yield from lines
                    yield None
        finally:
            process.kill()
            process.communicate()

    def listener(self, port, control_group, address="0.0.0.0"):
        """The Owner of a listening TCP port, or None if nobody listens.

        Ours is a process in the unit's control group. A port probe would reach whoever answers; this asks who it is.
        """
        inodes = _listening(port, address)
        if not inodes:
            return None
        owners = [pid for pid in os.listdir("/proc") if pid.isdigit() and inodes & _sockets(pid)]
        ours = [pid for pid in owners if _in_group(pid, control_group)]
        return _owner((ours or owners or [None])[0], bool(ours))

    def gpu_holder(self, visible, control_group):
        """(index of a GPU, the Owner that computes on it and is not this unit), or None. `visible`: CUDA_VISIBLE_DEVICES.

        nvidia-smi counts in PCI order: set CUDA_DEVICE_ORDER=PCI_BUS_ID where an instance has a part of the GPUs.
        """
        if not shutil.which("nvidia-smi"):
            return None
        indexes = {uuid: index for index, uuid in _nvidia_smi("gpu", "index,uuid")}
        wanted = [word.strip() for word in visible.split(",")] if visible else None
        for uuid, pid in _nvidia_smi("compute-apps", "gpu_uuid,pid"):
            ours = wanted is None or indexes.get(uuid) in wanted or any(uuid.startswith(w) for w in wanted)
            if ours and not _in_group(pid, control_group):
                return indexes.get(uuid, uuid), _owner(pid, False)
        return None

    def gpu_memory_held(self, visible):
        """(index of a GPU, MiB) of the first whose memory is in use while nothing should use it, or None."""
        if not shutil.which("nvidia-smi"):
            return None
        wanted = [word.strip() for word in visible.split(",")] if visible else None
        for index, uuid, used in _nvidia_smi("gpu", "index,uuid,memory.used"):
            ours = wanted is None or index in wanted or any(uuid.startswith(w) for w in wanted)
            if ours and used.split()[0].isdigit() and int(used.split()[0]) > GPU_IDLE_MIB:
                return index, int(used.split()[0])
        return None

    def get(self, url, key=None, body=None, timeout=30):
        """The JSON answer of an HTTP request. Raises CannotRead."""
        request = urllib.request.Request(url, data=None if body is None else json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        # Without a proxy: the service is asked, not what the environment puts in front of it.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as answer:
                return json.loads(answer.read().decode())
        except urllib.error.HTTPError as error:
            raise CannotRead(f"{url} answered {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise CannotRead(f"{url}: {getattr(error, 'reason', error)}") from None

    @staticmethod
    def reachable(address):
        """The address under which this host reaches a service that listens on `address`."""
        return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, f"[{address}]" if ":" in address else address)


def _nvidia_smi(what, columns):
    printed = run(["nvidia-smi", f"--query-{what}={columns}", "--format=csv,noheader"]).decode()
    return [[cell.strip() for cell in row.split(",")] for row in printed.splitlines() if row.strip()]


def _listening(port, address):
    """Inodes of the sockets that listen on a TCP port where a service at this address would (proc(5): state 0A)."""
    wanted = ipaddress.ip_address("127.0.0.1" if address == "localhost" else address)
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue  # no IPv6
        for row in rows:
            columns = row.split()
            where, number = columns[1].rsplit(":", 1)
            if columns[3] == "0A" and int(number, 16) == port and _collide(_address(where), wanted):
                inodes.add(columns[9])
    return inodes


def _address(text):
    """An address of /proc/net/tcp: hexadecimal, each four bytes in the order of the processor."""
    words = [bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words))


def _collide(held, wanted):
    """Whether two sockets on one port stand in each other's way."""
    held = getattr(held, "ipv4_mapped", None) or held
    return held == wanted or held.is_unspecified or wanted.is_unspecified


def _sockets(pid):
    found = set()
    try:
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            target = os.readlink(descriptor.path)
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass  # it ended, or closed the descriptor, while we looked
    return found


def _in_group(pid, control_group):
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return False
    groups = (line.split(":", 2)[2] + "/" for line in lines if line)
    # In a container the host's own groups stand in front, so it is the end that counts.
    return bool(control_group) and any(control_group + "/" in group for group in groups)


def _usage(pid):
    """What a process has read, holds and has computed (proc(5)), or None if it is gone."""
    base = Path("/proc") / pid
    try:
        io = dict(line.split(": ") for line in (base / "io").read_text().splitlines())
        # Behind the name, which may hold blanks and brackets; utime and stime are fields 14 and 15, rss is 24.
        stat = (base / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    seconds = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return [int(io["read_bytes"]), int(stat[21]) * os.sysconf("SC_PAGE_SIZE"), seconds]


def _owner(pid, ours):
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return Owner(ours, "a process that cannot be seen", None)
    units = [part for line in lines for part in line.split("/") if part.endswith(".service")]
    unit = units[-1] if units else None
    return Owner(ours, f"{name} (pid {pid}{', ' + unit if unit else ''})", unit)
