"""Takes a lease on a host in the name of this run, and replaces a run of this controller that is gone."""

from __future__ import annotations

import getpass
import os
import socket
import time
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

POLL = 5  # seconds between two questions whether another run is done

display = Display()


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        run = os.getppid()  # a task is worked on by a child of ansible-playbook
        arguments = {
            **self._task.args,
            "token": token(run),
            "holder": f"{getpass.getuser()} at {socket.gethostname()}, process {run}",
        }
        until = time.monotonic() + int(arguments.get("wait", 0))
        waits = False
        while True:
            result = self._execute_module(module_args=arguments, task_vars=task_vars)
            other = result.get("held_by")
            if not result.get("failed") or not other:
                return result
            if is_gone(other["token"]):
                arguments["instead_of"] = other["token"]
            elif time.monotonic() >= until:
                return result
            else:
                if not waits:
                    display.display(f"[{task_vars['inventory_hostname']}] waits for {other['holder']} ({other['purpose']})")
                waits = True
                time.sleep(POLL)


def token(pid):
    """Names a process among all of all controllers, also when its number is given away again."""
    return f"{controller()} {boot()} {pid} {started(pid)}"


def is_gone(other):
    """Whether the run of this token was one of this controller and has ended."""
    words = other.split(" ")
    here = len(words) == 4 and words[0] == controller() and words[2].isdigit()
    return here and token(words[2]) != other


def controller():
    """This machine and, because containers count processes of their own, the space of its process numbers."""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        processes = "-"
    return f"{socket.gethostname()}/{_read('/etc/machine-id') or '-'}/{processes}"


def boot():
    return _read("/proc/sys/kernel/random/boot_id") or "-"


def started(pid):
    """When a process was started, in ticks since boot (proc(5), field 22); "-" if it is gone or nobody can say."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if fields else "-"


def _read(path):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
