"""What is in the repository. Stand-ins: each has a real package's name, version and relations, and next to no content.

Names, versions and the relations of the pinning packages, of `cuda-drivers-580` and of the renamed packages are known from
NVIDIA's documentation and public package lists; that the parts of a driver depend on each other by exact version is
modelled after Ubuntu's packages of the same driver.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

STANDINS = Path(__file__).with_name("standins")

DRIVERS = ("580.82.07", "580.95.05", "590.44.01")
LIBRARIES = "usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Package:
    """A package to be; `files`: text by path, `links`: target by path, `scripts`: maintainer scripts by name."""

    name: str
    version: str
    relations: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    links: dict = field(default_factory=dict)
    scripts: dict = field(default_factory=dict)
    architecture: str = "amd64"


def standin(name):
    return (STANDINS / name).read_text()


def service(name):
    """A daemon that only runs. Its unit has no [Install], as that of Ubuntu's nvidia-persistenced."""
    unit = f"[Unit]\nDescription=stand-in for {name} (tests)\n[Service]\nType=exec\nExecStart=/bin/sleep infinity\n"
    return {f"usr/lib/systemd/system/{name}.service": unit}


def library(name, version):
    """A shared library, of which only the name is looked at."""
    return {
        "files": {f"{LIBRARIES}/{name}.so.{version}": f"stand-in for {name} {version} (tests)\n"},
        "links": {f"{LIBRARIES}/{name}.so.1": f"{name}.so.{version}"},
    }


def kernel_module(name, upstream, licence, other):
    """A DKMS package: its module is built for each kernel that has headers, as the real one does."""
    configure = f"dkms add -m nvidia -v {upstream}\ndkms autoinstall\n"
    conf = f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{upstream}"\n#LICENSE="{licence}"\n'
    return Package(
        name,
        f"{upstream}-1",
        {"Depends": "dkms", "Conflicts": other},
        {f"usr/src/nvidia-{upstream}/dkms.conf": conf},
        scripts={"postinst": configure, "prerm": f"dkms remove -m nvidia -v {upstream} --all\n"},
    )


def pinning(name, version, pattern):
    """NVIDIA's own pin: one at a time, priority 1000."""
    relations = dict.fromkeys(("Provides", "Conflicts", "Replaces"), "nvidia-driver-pinning")
    pin = f"Package: *nvidia* cuda-drivers* libcuda1\nPin: version {pattern}\nPin-Priority: 1000\n"
    return Package(name, version, relations, {"etc/apt/preferences.d/nvidia-driver-pin": pin}, architecture="all")


def driver(upstream):
    """The Debian packages of one driver."""
    version = f"{upstream}-1"
    branch = upstream.split(".")[0]
    same = f"(= {version})"
    parts = ("libcuda1", "libnvidia-ml1", "nvidia-persistenced", "nvidia-modprobe")
    yield Package("libcuda1", version, **library("libcuda", upstream))
    yield Package("libnvidia-ml1", version, **library("libnvidia-ml", upstream))
    yield Package("nvidia-modprobe", version)
    yield Package("nvidia-persistenced", version, files=service("nvidia-persistenced"))
    yield Package(
        "nvidia-driver-cuda",
        version,
        {"Depends": ", ".join(f"{part} {same}" for part in parts)},
        {"usr/bin/nvidia-smi": standin("nvidia-smi")},
    )
    yield kernel_module("nvidia-kernel-open-dkms", upstream, "Dual MIT/GPL", "nvidia-kernel-dkms")
    yield kernel_module("nvidia-kernel-dkms", upstream, "NVIDIA", "nvidia-kernel-open-dkms")
    both = f"nvidia-driver-cuda {same}, nvidia-kernel-open-dkms {same}"
    yield Package("nvidia-open", version, {"Depends": both}, architecture="all")
    yield Package("nvidia-fabricmanager", version, files=service("nvidia-fabricmanager"))
    yield pinning(f"nvidia-driver-pinning-{upstream}", version, f"{upstream}-*")
    if upstream == max(name for name in DRIVERS if name.startswith(branch)):
        yield pinning(f"nvidia-driver-pinning-{branch}", version, f"{branch}.*")
    if branch == "580":  # holds no branch: apt takes any newer driver for it
        relations = {"Depends": "nvidia-driver-cuda (>= 580.65.06), nvidia-kernel-dkms (>= 580.65.06)"}
        yield Package("cuda-drivers-580", version, relations, architecture="all")


def toolkit(series, version):
    """CUDA's compiler; `cuda-13-0` and its like drag a driver in."""
    dashed = series.replace(".", "-")
    nvcc = standin("nvcc").replace("@RELEASE@", series)
    yield Package(f"cuda-nvcc-{dashed}", version, files={f"usr/local/cuda-{series}/bin/nvcc": nvcc})
    yield Package(f"cuda-toolkit-{dashed}", version, {"Depends": f"cuda-nvcc-{dashed} (>= {version})"})
    yield Package(f"cuda-{dashed}", version, {"Depends": f"cuda-toolkit-{dashed}, nvidia-open"}, architecture="all")


def newer(kernel):
    """A release of a kernel after this one."""
    major, minor = re.match(r"(\d+)\.(\d+)", kernel).groups()
    return f"{major}.{int(minor) + 1}.0-1-amd64"


def debian(kernel):
    """What a real host has or gets from Debian's own archive."""
    yield Package("dkms", "3.0.10-8", files={"usr/sbin/dkms": standin("dkms")}, architecture="all")
    yield Package("g++", "12.2.0-3")
    yield Package("python3-dev", "3.11.2-1+b1")
    for release in (kernel, newer(kernel)):
        files = {f"boot/vmlinuz-{release}": "", f"lib/modules/{release}/modules.builtin": ""}
        yield Package(f"linux-image-{release}", "1", files=files)
        yield Package(
            f"linux-headers-{release}",
            "1",
            files={f"usr/src/linux-headers-{release}/Makefile": ""},
            links={f"lib/modules/{release}/build": f"/usr/src/linux-headers-{release}"},
            # Debian does this by a hook of dkms
            scripts={"postinst": f"! command -v dkms >/dev/null || dkms autoinstall -k {release}\n"},
        )
    yield Package("linux-headers-amd64", "1", {"Depends": f"linux-headers-{kernel}"})


def packages(kernel):
    """All packages, for hosts that run this kernel."""
    for upstream in DRIVERS:
        yield from driver(upstream)
    for series, version in (("12.9", "12.9.1-1"), ("13.0", "13.0.2-1"), ("13.1", "13.1.0-1")):
        yield from toolkit(series, version)
    yield Package("cuda-toolkit", "13.1.0-1", {"Depends": "cuda-toolkit-13-1"}, architecture="all")
    yield Package("nvidia-container-toolkit", "1.18.0-1")
    yield from debian(kernel)
