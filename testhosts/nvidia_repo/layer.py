"""The layer of a test host that serves itself the repository, over HTTP.

<layer>/srv/nvidia-repo/debian12/x86_64/   the repository, as at http://127.0.0.1:8099/debian12/x86_64/
<layer>/srv/nvidia-repo/fingerprint        of the key that signed it
"""

import hashlib
import os
from pathlib import Path

from .. import layers
from . import archive, catalogue

SERVER = """[Unit]
Description=The package repository of this test host
[Service]
Type=exec
DynamicUser=true
ExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory /srv/nvidia-repo 8099
[Install]
WantedBy=multi-user.target
"""


def build(state):
    """Build the layer for hosts on this machine's kernel, unless it is there, and return its directory."""
    kernel = os.uname().release
    sources = sorted(path for path in Path(__file__).parent.rglob("*") if path.is_file() and path.suffix != ".pyc")
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sources]

    def fill(directory):
        repository = directory / "srv/nvidia-repo/debian12/x86_64"
        repository.mkdir(parents=True)
        fingerprint = archive.write(repository, catalogue.packages(kernel))
        archive.place(directory / "srv/nvidia-repo/fingerprint", f"{fingerprint}\n")
        units = directory / "etc/systemd/system"
        archive.place(units / "nvidia-repo.service", SERVER)
        (units / "multi-user.target.wants").mkdir()
        (units / "multi-user.target.wants/nvidia-repo.service").symlink_to("/etc/systemd/system/nvidia-repo.service")
        # the kernel that a host came with, and its initramfs with nouveau
        archive.place(directory / f"boot/vmlinuz-{kernel}", "")
        archive.place(directory / f"boot/initrd.img-{kernel}", "")
        archive.place(directory / f"usr/lib/modules/{kernel}/modules.builtin", "")
        archive.place(directory / "usr/sbin/update-initramfs", catalogue.standin("update-initramfs"))

    return layers.cached(state, ["nvidia_repo", kernel, digests], fill)
