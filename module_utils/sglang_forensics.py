"""Saves what a failed start shows of itself, before it is stopped: stopping destroys it.

One directory for each failed start, named by time and invocation; the last ones are kept, and each file has a bound.
Secrets are taken out by name, as in all that is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from .sglang_host import C_LOCALE, CannotKeep, CannotRead
from .sglang_proof import redact

KEPT = 5  # failed starts of an instance
FILE_BYTES = 8 << 20  # of a file; a longer one keeps its first and its last half
COMMAND_SECONDS = 20


def save(host, plan, directory, cause):
    """Save what there is of the current start of the plan's unit. Returns the path; raises CannotKeep.

    What cannot be had is said in its file: a hanging process or a missing tool must not hide the rest.
    """
    unit = host.unit(plan.unit)
    stamp = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime(host.now()))
    path = Path(directory) / f"{stamp}-{unit.invocation_id[:8] or 'never-started'}"
    try:
        os.makedirs(path, exist_ok=True)
        os.chmod(directory, 0o700)
        _write(path / "cause.txt", cause)
        _write(path / "plan.json", json.dumps(redact.mapping(plan.to_dict()), indent=1))
        for name, text in _found(host, plan, unit):
            _write(path / name, text)
        _forget_older(Path(directory))
    except OSError as error:
        raise CannotKeep(f"{error.filename or path} cannot be written: {error.strerror}") from None
    return str(path)


def _found(host, plan, unit):
    pids = _pids(host, unit)
    yield "unit.txt", _command("systemctl", "show", plan.unit)
    if unit.invocation_id:
        journal = ["journalctl", "--no-pager", "--all", "--output=short-precise"]
        yield "journal.txt", _command(*journal, f"_SYSTEMD_INVOCATION_ID={unit.invocation_id}")
        yield "systemd.txt", _command(*journal, f"INVOCATION_ID={unit.invocation_id}")
    since = f"@{int(unit.exec_main_start)}" if unit.exec_main_start else "-1h"
    yield "kernel.txt", _command("journalctl", "--no-pager", "--dmesg", "--output=short-precise", f"--since={since}")
    yield "processes.txt", "\n".join(map(_process, pids)) or "no process of the unit is left"
    if unit.main_pid:
        yield "stacks.txt", _stacks(plan, pids)
        yield "server_info.json", _server_info(host, plan)
    if shutil.which("nvidia-smi"):
        yield "nvidia-smi.txt", _command("nvidia-smi", "--query")


def _pids(host, unit):
    return sorted(host.usage(unit.control_group), key=int) if unit.control_group else []


def _process(pid):
    """What a process waits for, without asking it."""
    lines = [f"process {pid}"]
    for name in ("cmdline", "status", "wchan", "stack", "io"):
        try:
            text = (Path("/proc") / pid / name).read_text(errors="replace").replace("\0", " ").strip()
        except OSError as error:
            text = f"cannot be read: {error.strerror}"
        lines += [f"[{name}]", text]
    return "\n".join(lines) + "\n"


def _stacks(plan, pids):
    """Python stacks by py-spy, a dependency of SGLang, from the engine's own environment."""
    py_spy = os.path.join(os.path.dirname(plan.argv[0]), "py-spy")
    if not os.access(py_spy, os.X_OK):
        return f"{py_spy} is not installed; processes.txt has the kernel's side"
    return "\n".join(f"process {pid}\n{_command(py_spy, 'dump', '--nonblocking', '--pid', pid)}" for pid in pids)


def _server_info(host, plan):
    try:
        answer = host.get(f"http://{host.reachable(plan.host)}:{plan.port}/server_info", timeout=5)
    except CannotRead as error:
        return json.dumps({"problem": str(error)})
    return json.dumps(redact.mapping(answer) if isinstance(answer, dict) else {"problem": "no JSON object"}, indent=1)


def _command(*argv):
    output = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(argv, env=C_LOCALE, timeout=COMMAND_SECONDS, **output)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"`{' '.join(argv)}`: {error}"
    return done.stdout.decode(errors="replace")


def _write(path, text):
    """Without secrets, root's alone, and within the bound: the start and the end of a log are what counts."""
    data = "\n".join(map(redact.text, text.splitlines())).encode(errors="replace")
    if len(data) > FILE_BYTES:
        half = FILE_BYTES // 2
        data = data[:half] + f"\n… {len(data) - 2 * half} bytes left out …\n".encode() + data[-half:]
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data + b"\n")


def _forget_older(directory):
    for old in sorted(path for path in directory.iterdir() if path.is_dir())[:-KEPT]:
        with contextlib.suppress(OSError):
            shutil.rmtree(old)
