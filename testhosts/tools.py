"""The programs this package needs, and the Debian packages they come in."""

import os
import shutil

from .command import Problem, run

PROGRAMS = {
    "apt-config": "apt",
    "gpg": "gpg",
    "gpg-agent": "gpg-agent",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "mount": "mount",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "systemd-nspawn": "systemd-container",
    "unshare": "util-linux",
}


def missing():
    """Debian packages of the programs that are not on PATH, sorted."""
    return sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)})


def install(say):
    """Install what is missing, if this is root on a machine with apt; otherwise say what to type.

    `say` is called with a line of progress. Raises Problem if something is still missing afterwards.
    """
    packages = missing()
    if not packages:
        return
    by_hand = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if os.geteuid():
        raise Problem(f"missing Debian packages: {', '.join(packages)}; type: sudo {by_hand}")
    if not shutil.which("apt-get"):
        raise Problem(f"missing programs of the Debian packages {', '.join(packages)}, and there is no apt-get here")
    say(f"installing {' '.join(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "--quiet", env=env)
    run("apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *packages, env=env)
    if missing():
        raise Problem(f"`{by_hand}` succeeded, but PATH still lacks programs of: {', '.join(missing())}")
