"""Starting, finding and ending hosts."""

import contextlib
import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from . import cgroups, layers, network, tools
from .command import Problem
from .state import lock, make_key

SUPERVISOR = Path(__file__).with_name("supervisor.sh")
NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")

# One systemd host takes five inotify instances; the kernel's default of 128 leaves the 25th host degraded.
INOTIFY_INSTANCES = 1024


@dataclass(frozen=True)
class Host:
    """What a running host was started as; kept in run/NAME/host.json."""

    name: str
    address: str
    layers: tuple = ()

    def __str__(self):
        return f"at {self.address} with {' '.join(self.layers) or 'no'} layers"

    def directory(self, state):
        return state.run / self.name

    def write(self, state):
        file = self.directory(state) / "host.json"
        file.with_suffix(".new").write_text(json.dumps(asdict(self)))
        file.with_suffix(".new").rename(file)


def known(state):
    """Hosts that were started and not taken down, running or not, by name."""
    found = {}
    for file in sorted(state.run.glob("*/host.json")):
        host = Host(**json.loads(file.read_text()))
        found[host.name] = Host(host.name, host.address, tuple(host.layers))
    return found


def running(state):
    """Names of the hosts that have processes."""
    return {name for name, directories in cgroups.find(state.tag).items() if cgroups.processes(directories)}


def parse(requests):
    """{name: address or None} from NAME[=ADDRESS] arguments."""
    parsed = {}
    for request in requests:
        name, given, address = request.partition("=")
        if not NAME.fullmatch(name):
            raise Problem(f"{name!r} is no name for a host: lower-case letters, digits and inner hyphens, at most 32")
        try:
            parsed[name] = ipaddress.IPv4Address(address) if given else None
        except ValueError as error:
            raise Problem(f"{name}: {error}") from error
    return parsed


def assign(requests, net, known_hosts, taken):
    """An address for every requested name: the one asked for, the one it has, or the first free one.

    `known_hosts`: {name: address} that are spoken for; `taken`: further addresses that cannot be had.
    """
    addresses = {name: address or known_hosts.get(name) for name, address in requests.items()}
    holders = {address: name for name, address in known_hosts.items()}
    for name, address in addresses.items():
        if address is None:
            continue
        if address not in net or address in (net[0], net[1], net[-1]):
            raise Problem(f"{name}: {address} is no host address of TESTHOSTS_NETWORK {net} ({net[1]} is the machine's)")
        if holders.setdefault(address, name) != name:
            raise Problem(
                f"{name}: {address} belongs to {holders[address]}; type: python3 -m testhosts down {holders[address]}"
            )
        if address in taken and known_hosts.get(name) != address:
            raise Problem(f"{name}: {address} is used by a host of another TESTHOSTS_DIR; choose another address")
    for name, address in addresses.items():
        if address is None:
            addresses[name] = network.first_free(net, {*holders, *taken})
            holders[addresses[name]] = name
    return addresses


def up(state, requests, extra_layers, seconds, say):
    """Start the hosts that do not run and wait until all answer; returns (host, was it started) pairs.

    Raises Problem if a host does not answer within `seconds`, or runs as something else than asked for.
    """
    wanted = parse(requests)
    tools.install(say)
    extra_layers = tuple(map(os.path.abspath, extra_layers))
    lower = layers.lower(state, extra_layers, say)
    result = []
    with lock(state.directory / "run.lock"):
        alive, here = running(state), known(state)
        addresses = assign(
            wanted,
            state.network,
            {name: ipaddress.IPv4Address(host.address) for name, host in here.items()},
            network.connected(state.network),
        )
        hosts = [Host(name, str(address), extra_layers) for name, address in addresses.items()]
        for host in hosts:
            if host.name in alive and here.get(host.name) != host:
                raise Problem(
                    f"{host.name} runs {here.get(host.name, 'without its files')}, asked for {host}; "
                    f"type: python3 -m testhosts down {host.name}"
                )
        allow_many_hosts()
        network.ensure_bridge(state)
        for host in hosts:
            if host.name not in alive:
                remove(state, [host.name])
                start(state, host, lower)
            result.append((host, host.name not in alive))
    wait(state, hosts, time.monotonic() + seconds)
    return result


def allow_many_hosts():
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text()) < INOTIFY_INSTANCES:
        limit.write_text(str(INOTIFY_INSTANCES))


def start(state, host, lower):
    """Start a host's supervisor, connect it and let it boot. If this dies, `down` removes the rest."""
    directory = host.directory(state)
    for part in ("upper/etc/ssh", "work", "root"):
        (directory / part).mkdir(parents=True)
    host.write(state)
    etc = directory / "upper/etc"
    (etc / "hostname").write_text(f"{host.name}\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{host.address} {host.name}\n{state.gateway} machine\n")
    (etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
    make_key(etc / "ssh/ssh_host_ed25519_key", host.name)
    address = f"{host.address}/{state.network.prefixlen}"
    joined = cgroups.create(state.tag, host.name)
    with open(console(state, host), "w") as log:
        supervisor = subprocess.Popen(
            ["sh", SUPERVISOR, "enter", host.name, address, directory, lower, *joined],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            start_new_session=True,
            text=True,
        )
    with supervisor.stdin, supervisor.stdout:
        if supervisor.stdout.readline() != "ready\n":
            raise Problem(f"{host.name}: its supervisor did not start{last_words(state, host)}")
        network.connect(state, ipaddress.IPv4Address(host.address), supervisor.pid)
        supervisor.stdin.write("boot\n")


def wait(state, hosts, deadline):
    """Return when every host answers SSH; one deadline for all."""
    waiting = list(hosts)
    while waiting := [host for host in waiting if not answers(host)]:
        alive = running(state)
        for host in waiting:
            if host.name not in alive:
                raise Problem(f"{host.name}: ended while it booted{last_words(state, host)}")
        if time.monotonic() > deadline:
            raise Problem(
                f"{', '.join(host.name for host in waiting)}: no answer from sshd in time{last_words(state, waiting[0])}"
            )
        time.sleep(0.05)


def answers(host):
    """Whether the host's sshd says its name."""
    with contextlib.suppress(OSError), socket.create_connection((host.address, 22), timeout=1) as connection:
        return connection.recv(4) == b"SSH-"
    return False


def console(state, host):
    return host.directory(state) / "console.log"


def last_words(state, host):
    lines = console(state, host).read_text(errors="replace").splitlines()[-8:]
    return "\n  ".join([f"; the end of {console(state, host)}:", *lines]) if lines else ""


def names(state):
    """Every host of which anything is left."""
    directories = [path.name for path in state.run.iterdir()] if state.run.exists() else []
    return sorted({*directories, *cgroups.find(state.tag)})


def down(state, wanted):
    """Remove hosts and everything of theirs; `wanted` None means all. Nothing there is no error."""
    if wanted is not None:
        parse(wanted)
    with lock(state.directory / "run.lock"):
        removed = [name for name in names(state) if wanted is None or name in wanted]
        remove(state, removed)
        network.remove_unused_bridge(state)
    return removed


def remove(state, gone):
    here, groups = known(state), cgroups.find(state.tag)
    cgroups.remove([directory for name in gone for directory in groups.get(name, [])])
    for name in gone:
        if name in here:
            network.disconnect(ipaddress.IPv4Address(here[name].address))
        if (state.run / name).exists():
            shutil.rmtree(state.run / name)


def execute(state, name, command):
    """Become a command inside the host, as root, without SSH; does not return."""
    pid = cgroups.init(cgroups.find(state.tag).get(name, []))
    if pid is None:
        raise Problem(f"{name} is not running; type: python3 -m testhosts up {name}")
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
    }
    os.execve(shutil.which("nsenter"), ["nsenter", "--target", str(pid), "--all", "--", *command], environment)


def inventory(state, wanted):
    """Ansible inventory (YAML plugin's structure) of the running hosts, all or the named ones."""
    alive, here = running(state), known(state)
    for name in wanted:
        if name not in alive:
            raise Problem(f"{name} is not running; type: python3 -m testhosts up {name}")
    chosen = [host for name, host in here.items() if name in alive and (not wanted or name in wanted)]
    return {
        "all": {
            "hosts": {host.name: {"ansible_host": host.address} for host in chosen},
            "vars": {
                "ansible_user": "root",
                "ansible_ssh_private_key_file": str(state.key),
                # every start of a host makes new host keys
                "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
                "ansible_python_interpreter": "/usr/bin/python3",
            },
        }
    }
