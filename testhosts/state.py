"""Where everything is kept, and the names derived from it."""

import contextlib
import fcntl
import hashlib
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from .command import Problem, run


@contextlib.contextmanager
def lock(path):
    """Keep other processes out; the kernel ends the lock with the process, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_key(path, comment):
    """Make an SSH key pair without a passphrase: `path` and `path`.pub."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))


@dataclass(frozen=True)
class State:
    """One set of hosts: its directory and its network. Sets in different directories are independent."""

    directory: Path
    network: ipaddress.IPv4Network

    @classmethod
    def from_environment(cls, environment=os.environ):
        """TESTHOSTS_DIR and TESTHOSTS_NETWORK, or their defaults."""
        directory = Path(environment.get("TESTHOSTS_DIR") or "/var/lib/testhosts").resolve()
        if any(character in str(directory) for character in ":,\\ \n"):
            raise Problem(f"TESTHOSTS_DIR: overlay mounts cannot use {str(directory)!r} (one of : , \\ and blanks)")
        network = environment.get("TESTHOSTS_NETWORK") or "10.213.77.0/24"
        try:
            return cls(directory, ipaddress.IPv4Network(network))
        except ValueError as error:
            raise Problem(f"TESTHOSTS_NETWORK: {error}; an example: 10.213.77.0/24") from error

    @property
    def layers(self):
        return self.directory / "layers"

    @property
    def run(self):
        return self.directory / "run"

    @property
    def key(self):
        return self.directory / "id_ed25519"

    @property
    def tag(self):
        """Name of the cgroup that holds the cgroups of these hosts."""
        return f"testhosts-{hashlib.sha256(bytes(self.directory)).hexdigest()[:8]}"

    @property
    def gateway(self):
        """The machine's own address in the network: what the machine serves there, the hosts can reach."""
        return self.network[1]

    @property
    def bridge(self):
        return f"thbr{int(self.network.network_address):08x}"

    def public_key(self):
        """The public half of the key that opens every host; made at the first call."""
        public = self.key.with_suffix(".pub")
        with lock(self.directory / "key.lock"):
            if not (self.key.exists() and public.exists()):
                self.key.unlink(missing_ok=True)
                make_key(self.key, "testhosts")
        return public.read_text()
