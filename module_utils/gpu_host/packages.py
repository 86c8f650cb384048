"""Which packages make an NVIDIA driver, by distribution and branch; pure decisions over what is installed and offered.

Only what RTX PRO 6000 Blackwell can run: open kernel modules, no display, no fabric manager (there is no NVLink).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

# CUDA 13, which SGLang's wheels are built with, needs this driver.
MINIMUM = "580.65.06"

# From here on NVIDIA's Ubuntu packages have no branch in their names; the pin alone keeps a branch.
UNSUFFIXED_FROM = 590

# What would contradict the declared driver: another pin, the closed metapackages, daemons of NVSwitch boards.
UNWANTED = re.compile(r"(nvidia-driver-pinning|cuda-drivers|nvidia-fabricmanager|nvidia-imex|nvlsm|nvlink5)(-.*)?")

# Every package that carries a driver's version, in the globs of apt's preferences.
FAMILY = "*nvidia* cuda-drivers* libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1"

# Whose packages of the same names must not be mixed with NVIDIA's.
OTHER_ORIGINS = ("Debian", "Debian Backports", "Ubuntu", "LP-PPA-graphics-drivers")


class Refused(Exception):
    """What is declared cannot be had here: a sentence that says what was declared, what was found, and what to do."""


class Repository(NamedTuple):
    """Where NVIDIA keeps a distribution's packages, below .../compute/cuda/repos/, and the key that signs them."""

    path: str
    key_file: str
    fingerprint: str


# The fingerprints of NVIDIA's keys: the one of 2022, and the one that Debian 13 needs, which refuses SHA-1.
KEY_2022 = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
KEY_2025 = ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")

REPOSITORIES = {
    ("debian", "12"): Repository("debian12/x86_64", *KEY_2022),
    ("debian", "13"): Repository("debian13/x86_64", *KEY_2025),
    ("ubuntu", "22.04"): Repository("ubuntu2204/x86_64", *KEY_2022),
    ("ubuntu", "24.04"): Repository("ubuntu2404/x86_64", *KEY_2022),
}


def repository(distribution, release, architecture="x86_64"):
    """The repository for a system as /etc/os-release and uname name it. Raises Refused for all but the supported ones."""
    found = REPOSITORIES.get((distribution, release))
    if not found or architecture != "x86_64":
        supported = ", ".join(f"{name.capitalize()} {number}" for name, number in REPOSITORIES)
        raise Refused(
            f"{distribution} {release} on {architecture} is not supported (read in /etc/os-release and uname); "
            f"supported are {supported} on x86_64."
        )
    return found


def components(distribution, branch):
    """The packages of a driver for computing only, with its open module."""
    common = ("nvidia-modprobe", "nvidia-persistenced")
    if distribution == "debian":
        return ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", *common)
    if branch >= UNSUFFIXED_FROM:
        return ("libnvidia-compute", "nvidia-dkms-open", *common)
    return (f"libnvidia-compute-{branch}", f"nvidia-dkms-{branch}-open", f"nvidia-utils-{branch}", *common)


def headers(distribution, kernels, installed):
    """Header packages: of each kernel, and the metapackages that bring those of the kernels to come.

    Without the former there is no module now, without the latter none after the next kernel upgrade.
    """
    metas = {
        name.replace("linux-image-", "linux-headers-", 1)
        for name in installed
        if re.match(r"linux-image-(?!\d|unsigned-)(?!.*-dbg(sym)?$)", name)
    }
    default = {"debian": "linux-headers-amd64", "ubuntu": "linux-headers-generic"}[distribution]
    return [*(f"linux-headers-{kernel}" for kernel in dict.fromkeys(kernels)), *sorted(metas or {default})]


def upstream(version):
    """The driver's version in a package's: 580.95.05 in 580.95.05-0ubuntu1."""
    return version.split(":")[-1].split("-")[0]


def branch_of(version):
    """580, of 580 or 580.95.05. Raises Refused if this is neither a branch nor a full version, or too old."""
    if not re.fullmatch(r"\d{3,}(\.\d+\.\d+)?", version):
        raise Refused(f"nvidia_driver_version: declared '{version}', neither a branch (580) nor a version (580.95.05).")
    branch = int(version.split(".")[0])
    if branch < int(MINIMUM.split(".")[0]) or ("." in version and number(version) < number(MINIMUM)):
        raise Refused(f"nvidia_driver_version: declared {version}, older than {MINIMUM}, the first that runs CUDA 13.")
    return branch


def number(version):
    """A version to compare with others."""
    return tuple(map(int, version.split(".")))


def satisfies(version, declared):
    """Whether an upstream version is what was declared, a branch or a version."""
    return version == declared or version.split(".")[0] == declared


@dataclass(frozen=True)
class Plan:
    """What is to be done: `version` is None as long as it depends on what the repository offers."""

    branch: int
    version: str | None
    install: tuple  # for apt, NAME=VERSION or NAME
    remove: tuple
    held: tuple  # packages that somebody holds and that would have to change

    @property
    def complete(self):
        """Whether nothing is to be installed or removed."""
        return self.version is not None and not self.install and not self.remove

    @property
    def pin(self):
        """apt preferences: the version, and no other origin. Priority 1000 is what permits a way back."""
        others = (f"Package: {FAMILY}\nPin: release o={origin}\nPin-Priority: -1\n" for origin in OTHER_ORIGINS)
        return "\n".join([*others, f"Package: {FAMILY}\nPin: version {self.version}-*\nPin-Priority: 1000\n"])


def plan(distribution, declared, kernels, installed, held=(), offered=None):
    """What to install and remove so that the declared driver is there.

    `installed`: version by package name; `held`: names; `offered`: versions by name in the repository, None if it
    was not asked. Raises Refused if the repository does not offer it.
    """
    branch = branch_of(declared)
    names = components(distribution, branch)
    remove = tuple(sorted(name for name in installed if UNWANTED.fullmatch(name)))
    missing_headers = [name for name in headers(distribution, kernels, installed) if name not in installed]
    found = {upstream(installed[name]) for name in names if name in installed}
    if len(found) == 1 and satisfies(*found, declared) and all(name in installed for name in names):
        version, wanted = found.pop(), {}
    elif offered is None:
        return Plan(branch, None, tuple(missing_headers), remove, ())
    else:
        version = choose(names, declared, found, offered)
        wanted = {name: of_version(offered[name], version) for name in names}
    for name in installed:  # what came along with the old version comes along with the new one
        companion = of_version((offered or {}).get(name, ()), version)
        if companion and not UNWANTED.fullmatch(name):
            wanted[name] = companion
    changes = {name: full for name, full in wanted.items() if installed.get(name) != full}
    install = tuple(sorted(f"{name}={full}" for name, full in changes.items())) + tuple(missing_headers)
    return Plan(branch, version, install, remove, tuple(sorted(set(held).intersection([*changes, *remove]))))


def of_version(versions, wanted):
    """The full version of a package that has this upstream version, or None."""
    return next((full for full in versions if upstream(full) == wanted), None)


def choose(names, declared, found, offered):
    """The version to install: what is there as far as it is what was declared, else the newest that is complete."""
    complete = set.intersection(*({upstream(full) for full in offered.get(name, ())} for name in names))
    possible = [version for version in complete if satisfies(version, declared)]
    if not possible:
        there = sorted(filter(re.compile(r"\d+\.\d+\.\d+$").match, complete), key=number)
        raise Refused(
            f"nvidia_driver_version: declared {declared}, but the repository does not offer {', '.join(names)} in it. "
            f"It offers {', '.join(there) or 'no driver at all'}."
        )
    return max(found.intersection(possible) or possible, key=number)


def from_elsewhere(installed, listing, ours):
    """Driver packages whose installed version another source offers and ours does not: {name: URI}.

    `listing`: what `apt-cache madison` prints; `ours`: URIs of the declared repository, now and before. The container
    toolkit and CUDA's own packages may come from anywhere: their versions are no driver's.
    """
    sources = {}
    for line in listing.splitlines():
        name, version, source = (column.strip() for column in line.split("|"))
        of_driver = re.match(r"\d{3}\.\d", upstream(version)) or name.startswith("linux-modules-nvidia-")
        if of_driver and installed.get(name) == version:
            sources.setdefault(name, set()).add(source.split()[0].rstrip("/"))
    ours = {uri.rstrip("/") for uri in ours}
    return {name: sorted(found)[0] for name, found in sources.items() if ours.isdisjoint(found)}
