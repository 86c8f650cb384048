"""The bridge and the hosts' cables. No route leads out: hosts reach each other and the machine's end."""

import subprocess
import time
from pathlib import Path

from .command import Problem, run

NET = Path("/sys/class/net")


def first_free(network, taken):
    """The lowest host address after the machine's own that is not taken."""
    for address in list(network.hosts())[1:]:
        if address not in taken:
            return address
    raise Problem(f"TESTHOSTS_NETWORK {network} has no address left; type: python3 -m testhosts down NAME")


def interface(address):
    """Name of the machine's end of a host's cable."""
    return f"th{int(address):08x}"


def connected(network):
    """Addresses of the network that have a cable, whoever put it there."""
    return {address for address in network.hosts() if (NET / interface(address)).exists()}


def ensure_bridge(state):
    """Make the bridge with the machine's own address if it is not there."""
    if not (NET / state.bridge).exists():
        run("ip", "link", "add", state.bridge, "type", "bridge", "forward_delay", "0")
    run("ip", "address", "replace", f"{state.gateway}/{state.network.prefixlen}", "dev", state.bridge)
    run("ip", "link", "set", state.bridge, "up")


def remove_unused_bridge(state):
    ports = NET / state.bridge / "brif"
    if ports.exists() and not any(ports.iterdir()):
        run("ip", "link", "delete", state.bridge)


def connect(state, address, pid):
    """Put a cable between the bridge and interface `host0` in the network namespace of `pid`."""
    # the hardware address follows from the address, so no stale neighbour entry meets a host that comes back
    hardware = "02:00:" + ":".join(f"{byte:02x}" for byte in address.packed)
    run(
        "ip",
        "link",
        "add",
        interface(address),
        "type",
        "veth",
        "peer",
        "name",
        "host0",
        "address",
        hardware,
        "netns",
        str(pid),
    )
    run("ip", "link", "set", interface(address), "master", state.bridge, "up")


def disconnect(address):
    """Wait until the cable is gone; the kernel takes it away with the host, a moment later."""
    deadline = time.monotonic() + 10
    while (NET / interface(address)).exists():
        subprocess.run(["ip", "link", "delete", interface(address)], stderr=subprocess.DEVNULL)
        if time.monotonic() > deadline:
            raise Problem(f"the interface {interface(address)} stays; type: ip link delete {interface(address)}")
        time.sleep(0.02)
