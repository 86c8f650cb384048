"""A host with fake hardware below a directory, and its facts as the real reader reads them."""

from __future__ import annotations

from ansible.module_utils import gpu_host_reading
from stage import load

STANDINS = "testhosts/fake_gpu/standins"
KERNEL = "6.1.0-31-amd64"
VERSION = "580.95.05"
LOADED = {
    "version": VERSION,
    "open": True,
    "modules": ["nvidia", "nvidia_uvm"],
    "parameters": {"nvidia_uvm": {"uvm_disable_hmm": "N"}},
}
UNITS = {21544: "sglang-k26.service", 9100: "vllm.service", 77: "user-1000.slice/session-4.scope"}  # by process


machine = load(f"{STANDINS}/machine.py")
nvidia_smi = load(f"{STANDINS}/nvidia-smi")


def modinfo(version=VERSION, licence="Dual MIT/GPL", signer=""):
    return f"filename: /lib/modules/nvidia.ko\nversion: {version}\nlicense: {licence}\nsigner: {signer}\n"


class Stage:
    """A healthy host. `machine`: how the hardware differs; `programs`: what they print, None where one is missing."""

    def __init__(self, root):
        self.root = root
        self.machine = {}
        self.loaded = LOADED
        self.library = VERSION
        self.kernels = {KERNEL: modinfo()}  # kernel: what modinfo prints of its module
        self.headers = [KERNEL]
        self.programs = {}

    def facts(self):
        host = {**machine.DEFAULT, **self.machine, "hmm": True}
        machine.write(self.root, self.machine, self.loaded)
        for path, content in {
            "etc/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
            "proc/sys/kernel/osrelease": KERNEL,
            "proc/sys/kernel/random/boot_id": "b8583f58-0956-4b84-92ce-3bdb65bbb88a",
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet iommu=pt",
            f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{self.library}": "",
            "var/lib/dkms/nvidia/source": "",
            **{f"boot/vmlinuz-{kernel}": "" for kernel in self.kernels},
            **{f"lib/modules/{kernel}/modules.order": "" for kernel in self.kernels},
            **{f"lib/modules/{kernel}/build/Makefile": "" for kernel in self.headers},
            **{f"proc/{pid}/cgroup": f"0::/system.slice/{unit}" for pid, unit in UNITS.items()},
        }.items():
            machine.put(self.root / path, content)
        document = "\n".join(nvidia_smi.document((self.loaded or {}).get("version"), host))
        programs = {
            "nvidia-smi": (0, document, ""),
            "dkms": (0, "".join(f"nvidia/{VERSION}, {kernel}, x86_64: installed\n" for kernel in self.kernels), ""),
            "journalctl": (1, "", ""),
            "dpkg-query": (0, "", ""),
            "mokutil": None,
            **self.programs,
        }

        def run(argv, timeout=30):
            if argv[0] == "modinfo":
                return 0, self.kernels[argv[2]], ""
            return programs[argv[0]]

        return gpu_host_reading.read(self.root, run)
