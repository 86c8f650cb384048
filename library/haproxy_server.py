#!/usr/bin/python
"""Takes a server of HAProxy out of its traffic, or in again, and leaves alone what a person put into maintenance."""

from __future__ import annotations

DOCUMENTATION = r"""
module: haproxy_server
short_description: Drain a server of HAProxy, or give it requests again
description:
  - Runs where HAProxy runs, and speaks to its admin socket. C(state=out) drains the server, whether its engine is up or not;
    C(state=in) ends that and waits until HAProxy gives it requests.
  - A server in maintenance is left so, with a warning. This module only drains, so a person has put it there.
  - HAProxy keeps all that in memory. One that is reloaded or restarted gives a drained server requests again as soon as its
    check passes, unless it is configured to load the servers' states from a file.
options:
  backend:
    description: Its backend.
    type: str
    required: true
  server:
    description: Its name in the backend.
    type: str
    required: true
  state:
    description: Whether it shall get requests.
    type: str
    choices: [in, out]
    required: true
  socket:
    description: The admin socket.
    type: path
    default: /run/haproxy/admin.sock
  minimum:
    description:
      - With C(state=out), servers of the backend that must go on getting requests, a number, or a percentage of O(fleet).
      - A server that gets none is taken out all the same.
    type: str
    default: "0"
  fleet:
    description: Number of hosts that a percentage speaks of.
    type: int
    default: 1
  timeout:
    description: Seconds that the socket may take for an answer, and HAProxy's own check until it finds the server up.
    type: int
    default: 60
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Drain it
  haproxy_server:
    backend: engines
    server: gpu01
    state: out
"""

RETURN = r""" # """

import csv
import os
import socket
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_traffic import Refused, required

ARGUMENTS = {
    "backend": {"type": "str", "required": True},
    "server": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["in", "out"], "required": True},
    "socket": {"type": "path", "default": "/run/haproxy/admin.sock"},
    "minimum": {"type": "str", "default": "0"},
    "fleet": {"type": "int", "default": 1},
    "timeout": {"type": "int", "default": 60},
}
TICK = 0.2  # seconds between two looks
# Of `show servers state` (HAProxy 2.6, management.txt): bits of srv_admin_state, values of srv_op_state.
MAINTENANCE = 0x01 | 0x02  # its own, or that of a server that it tracks
DRAINED, DRAINS = 0x08, 0x08 | 0x10  # its own; or that of a server that it tracks
NOT_RESOLVED = 0x20
STARTING, RUNNING = 1, 2


def main():
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    backend = Backend(params["socket"], params["backend"], params["timeout"])
    try:
        if params["state"] == "out":
            minimum = required(params["minimum"], params["fleet"])
            changed = take_out(backend, params["server"], minimum, dry=module.check_mode)
        else:
            changed = take_in(backend, params["server"], params["timeout"], dry=module.check_mode)
    except Refused as error:
        module.fail_json(msg=str(error))
    if changed is None:
        module.warn(
            f"{params['server']} stays in maintenance and gets no requests: somebody set that at {backend}.\n"
            f"  next     set server {params['backend']}/{params['server']} state ready, to {params['socket']}"
        )
    module.exit_json(changed=bool(changed))


def take_out(backend, server, minimum, dry=False):
    """Drained. Whether anything was done; None where it is in maintenance. Raises Refused."""
    servers = backend.servers()
    now = find(servers, server, backend)
    if now["admin"] & MAINTENANCE:
        return None
    if now["admin"] & DRAINED:
        return False
    others = [name for name, other in servers.items() if name != server and serves(other)]
    if serves(now) and len(others) < minimum:
        raise Refused(
            f"traffic_minimum_serving: declared {minimum}, but without {server} {backend} would have {len(others)} serving"
            f"{' (' + ', '.join(others) + ')' if others else ''}. It goes on serving, nothing was changed.\n"
            "  next     bring others back into traffic, or, if that outage is meant: "
            f"-e traffic_minimum_serving={len(others)}"
        )
    if not dry:
        backend.set(server, "drain")
    return True


def take_in(backend, server, timeout, dry=False, clock=time.monotonic, sleep=time.sleep):
    """Gets requests. Whether anything was done; None where it is in maintenance. Raises Refused."""
    now = find(backend.servers(), server, backend)
    if now["admin"] & MAINTENANCE:
        return None
    is_drained = bool(now["admin"] & DRAINED)
    if dry:
        return is_drained
    if is_drained:
        backend.set(server, "ready")
    until = clock() + timeout
    while not serves(find(backend.servers(), server, backend)):
        if clock() >= until:
            raise Refused(
                f"{server} gets no requests after {timeout} s: {backend} says {backend.says(server)}.\n"
                "  next     if its engine answers there, look at the check that this backend makes"
            )
        sleep(TICK)
    return is_drained


def find(servers, name, backend):
    if name not in servers:
        raise Refused(
            f"traffic_haproxy_server: declared {name}, but {backend} has {', '.join(servers) or 'no server'}. "
            "Nothing was changed"
        )
    return servers[name]


def serves(server):
    return server["state"] in (STARTING, RUNNING) and not server["admin"] & (MAINTENANCE | DRAINS | NOT_RESOLVED)


class Backend:
    """A backend, at the admin socket. Raises Refused where it does not answer as it should."""

    def __init__(self, path, name, timeout):
        self.path, self.name, self.timeout = path, name, timeout

    def __str__(self):
        return f"the backend {self.name} of HAProxy on {os.uname().nodename}"

    def servers(self):
        """{name: {"state", "admin"}}."""
        answer = self._ask(f"show servers state {self.name}")
        rows = table(answer.partition("\n")[2], " ")  # the first line is the format's version
        if not answer.startswith("1\n"):
            raise Refused(
                f"traffic_haproxy_backend: declared {self.name}, and HAProxy on {os.uname().nodename} answered "
                f"{answer.strip() or 'nothing'}. Nothing was changed"
            )
        return {row["srv_name"]: {"state": int(row["srv_op_state"]), "admin": int(row["srv_admin_state"])} for row in rows}

    def says(self, server):
        """What its own check says of a server, such as `DOWN, L4CON (Connection refused)`."""
        for row in table(self._ask("show stat"), ","):
            if (row["pxname"], row["svname"]) == (self.name, server):
                return f"{row['status']}, {row['check_status'] or 'unchecked'} ({row['last_chk'] or 'nothing'})"
        return "nothing"

    def set(self, server, state):
        answer = self._ask(f"set server {self.name}/{server} state {state}").strip()
        if answer:
            raise Refused(f"{self} did not set {server} to {state}: {answer}.\n  next     its socket needs level admin")

    def _ask(self, command):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self.timeout)
                connection.connect(self.path)
                connection.sendall(f"{command}\n".encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
        except OSError as error:
            raise Refused(
                f"traffic_haproxy_socket: HAProxy on {os.uname().nodename} cannot be asked at {self.path}: "
                f"{error.strerror or error}"
            ) from None


def table(text, delimiter):
    """Rows of an answer, by the names in its first line."""
    return list(csv.DictReader(text.removeprefix("# ").strip().splitlines(), delimiter=delimiter))


if __name__ == "__main__":
    main()
