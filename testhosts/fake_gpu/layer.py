"""The layer that gives a test host its cards.

<layer>/usr/lib/fake-gpu/       machine.py and nvidia-smi
<layer>/etc/fake-gpu/           machine.json: how this machine differs from a healthy one; it outlives a reboot
<layer>/usr/sbin/update-grub    stand-in

With a driver's version also what its packages would have put there, with nothing of a driver in it: kernel module, library,
`nvidia-smi`, and headers and a `dkms status` for the running kernel.
"""

import hashlib
import os
from pathlib import Path

from .. import layers
from .standins import machine

STANDINS = Path(__file__).with_name("standins")
UNIT = """[Unit]
Description=Fake hardware, and the installed kernel module becomes the loaded one
DefaultDependencies=no
After=systemd-tmpfiles-setup.service local-fs.target
Before=sysinit.target

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /usr/lib/fake-gpu/machine.py boot
"""


def build(state, driver=None):
    """Build the layer for hosts on this machine's kernel, unless it is there, and return its directory."""
    sources = {path.name: path.read_bytes() for path in sorted(STANDINS.iterdir()) if path.is_file()}
    kernel = os.uname().release
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sources.items()}

    def fill(directory):
        place(directory / "usr/lib/fake-gpu/machine.py", sources["machine.py"])
        place(directory / "usr/lib/fake-gpu/nvidia-smi", sources["nvidia-smi"])
        place(directory / "usr/sbin/update-grub", sources["update-grub"])
        place(directory / "etc/fake-gpu/machine.json", "{}\n")
        units = directory / "usr/lib/systemd/system"
        place(units / "fake-gpu.service", UNIT)
        (units / "sysinit.target.wants").mkdir()
        (units / "sysinit.target.wants/fake-gpu.service").symlink_to("../fake-gpu.service")
        if driver:
            install(directory, driver, kernel)

    return layers.cached(state, ["fake_gpu", UNIT, digests, kernel, driver, Path(__file__).read_text()], fill)


def install(directory, version, kernel):
    modules = directory / f"usr/lib/modules/{kernel}"
    place(modules / "updates/dkms/nvidia.ko", machine.kernel_module(version, "Dual MIT/GPL"))
    place(directory / f"usr/src/linux-headers-{kernel}/Makefile", "")
    (modules / "build").symlink_to(f"/usr/src/linux-headers-{kernel}")
    place(directory / f"boot/vmlinuz-{kernel}", "")
    place(directory / f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}", "")
    (directory / "usr/bin").mkdir()
    (directory / "usr/bin/nvidia-smi").symlink_to("/usr/lib/fake-gpu/nvidia-smi")
    place(directory / "usr/sbin/dkms", f"#!/bin/sh\necho 'nvidia/{version}, {kernel}, x86_64: installed'\n")
    (directory / "var/lib/dkms").mkdir(parents=True)
    place(directory / "etc/modules-load.d/nvidia.conf", "nvidia-uvm\n")


def place(path, content):
    """Write a file; what begins with #! can be run."""
    content = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755 if content.startswith(b"#!") else 0o644)
