"""Read-only lower directories of the hosts: built once, kept by the digest of what defines them."""

import hashlib
import json
import os
import platform
import shutil
from pathlib import Path

from .command import Problem, run
from .state import lock

# What a freshly installed server has, what Ansible's modules need, what a running engine needs: a host has no
# route to an archive.
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "kmod", "openssh-server", "sudo", "acl"),
    *("python3", "python3-venv", "python3-apt", "python3-debian"),
    *("iproute2", "iputils-ping", "procps", "pciutils", "numactl", "less", "curl", "ca-certificates", "gpg", "git"),
    *("libgomp1", "libnuma1"),
)

# Run in the new root file system, in this order, after the packages are in it.
FINISH = (
    # Debian has a group of that name
    'chroot "$1" useradd --create-home --shell /bin/bash --gid operator operator',
    # no work of their own, and no route for it
    'chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer',
    # a host has its own keys
    'rm -f "$1"/etc/ssh/ssh_host_*',
    # with sources but no route every apt-get update waits for time-outs; a proxy setting may hold a password
    'rm -f "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/apt.conf.d/99mmdebstrap; : >"$1"/etc/apt/sources.list',
)


def digest(definition):
    """Short name of whatever JSON can say."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:16]


def cached(state, definition, build):
    """The layer of this definition; `build(directory)` fills it if it is not there yet.

    Two processes do not build at once, and what a killed one left half-built is never used.
    """
    layer = state.layers / digest(definition)
    with lock(state.layers / "lock"):
        if not layer.exists():
            partial = state.layers / "partial"
            if partial.exists():
                shutil.rmtree(partial)
            partial.mkdir(parents=True)
            build(partial)
            partial.rename(layer)
    return layer


def seed(state):
    """What makes the base a test host: the files of seed/, the key, and a place for a persistent journal."""
    source = Path(__file__).with_name("seed")
    files = {str(path.relative_to(source)): path.read_text() for path in source.rglob("*") if path.is_file()}
    files["etc/ssh/testhosts_authorized_keys"] = state.public_key()

    def build(directory):
        for path, text in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text)
        (directory / "var/log/journal").mkdir(parents=True)

    return cached(state, files, build)


def base(state, say):
    """The root file system that all hosts share, of the machine's own release."""
    suite, keyring = release(platform.freedesktop_os_release())
    definition = [
        f"--architectures={run('dpkg', '--print-architecture').strip()}",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        "--aptopt=APT::Install-Recommends false",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        *(f"--customize-hook={command}" for command in FINISH),
        suite,
    ]

    def build(directory):
        say(f"building the base layer ({suite}, {len(PACKAGES)} packages and what they need), once")
        format_ = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
        targets = run("apt-get", "indextargets", "--format", format_, "Created-By: Packages")
        list_file = state.layers / "sources.list"
        list_file.write_text(sources(targets, suite))
        options = definition[:-1]
        if keyring.exists():
            options.append(f"--keyring={keyring}")
        options += [f"--aptopt={line}" for line in acquire(run("apt-config", "dump"))]
        # nothing may write on into a directory that the next builder removes
        die_with_us = ["setpriv", "--pdeathsig=KILL"]
        all_of_it = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        debootstrap = ["mmdebstrap", "--mode=root", "--format=directory", *options]
        run(*die_with_us, *all_of_it, *debootstrap, suite, str(directory), str(list_file))
        list_file.unlink()

    return cached(state, definition, build)


def release(os_release):
    """Suite of the machine's release and the file with its archive's keys, from /etc/os-release."""
    if not os_release.get("VERSION_CODENAME"):
        raise Problem("/etc/os-release has no VERSION_CODENAME: hosts are built from Debian's or Ubuntu's own packages")
    return os_release["VERSION_CODENAME"], Path(f"/usr/share/keyrings/{os_release['ID']}-archive-keyring.gpg")


def sources(targets, suite):
    """The machine's own sources of this suite, for sources.list; in `targets`: URI, suite, component."""
    ours = {suite, f"{suite}-updates", f"{suite}-security"}
    lines = [f"deb {uri} {of} {component}" for uri, of, component in map(str.split, targets.splitlines()) if of in ours]
    if not lines:
        raise Problem(f"the machine's apt has no source for {suite} (read with `apt-get indextargets`)")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def acquire(configuration):
    """The machine's own settings of how apt reaches its archives: proxies, dates, retries."""
    prefixes = ("Acquire::http", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIPv")
    return [line.rstrip(";") for line in configuration.splitlines() if line.startswith(prefixes) and '""' not in line]


def lower(state, extra, say):
    """`lowerdir` of an overlay mount: seed, given directories (the first hides later ones), base."""
    for directory in extra:
        if not Path(directory).is_dir():
            raise Problem(f"--layer {directory}: no such directory")
        if any(character in directory for character in ":,\\ \n"):
            raise Problem(f"--layer {directory}: overlay mounts cannot use it (one of : , \\ and blanks)")
    return ":".join([str(seed(state)), *map(os.path.abspath, extra), str(base(state, say))])
