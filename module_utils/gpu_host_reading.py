"""Reads a host for the pure code of gpu_host: sysfs, /proc, /etc, the journal and five programs. It writes nothing.

Works before a driver exists and on a bare host. What is not there is None or empty; what could not be read is the text
"unknown", with the reason under the facts' key of that name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .gpu_host import driver, kernel_log, pci, smi, system

UNKNOWN = "unknown"
NEEDS_ROOT = "needs root"
# A GPU that hangs makes nvidia-smi hang; with all eight awake and no persistence daemon it takes some seconds.
SMI_DEADLINE = 60
EFI = "sys/firmware/efi/efivars"
SECURE_BOOT = f"{EFI}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
DKMS_KEYS = ("var/lib/dkms/mok.pub", "var/lib/shim-signed/mok/MOK.der")


def run(argv, timeout=30):
    """(status, stdout, stderr) of a program in the C locale; None where it is not installed or did not end in time."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin"}
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, errors="replace"
        )
    except FileNotFoundError:
        return None
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()  # and not waited for: one that hangs in the driver (state D) may never end
        return 124, "", f"no answer in {timeout} s"
    return process.returncode, stdout, stderr


def read(root="/", run=run):
    """All facts of the host whose file system is `root`; their form is in the documentation of gpu_host_facts."""
    return _Reader(Path(root), run).facts()


class _Reader:
    def __init__(self, root, run):
        self.root, self.run = root, run
        self.unknown = {}

    def facts(self):
        kernels = self.kernels()
        gpus, bridges = self.devices()
        smi_state, processes = self.smi(gpus)
        boot_id = self.text("proc/sys/kernel/random/boot_id") or UNKNOWN
        cmdline = self.text("proc/cmdline") or ""
        return {
            "system": system.parse_os_release(self.text("etc/os-release") or ""),
            "boot": {"id": boot_id, "cmdline": cmdline, "parameters": cmdline.split()},
            "kernels": kernels,
            "secure_boot": self.secure_boot(),
            "driver": self.driver(kernels),
            "gpus": gpus,
            "bridges": bridges,
            "smi": smi_state,
            "processes": processes,
            "kernel_log": self.kernel_log(),
            "packages": self.packages(),
            "pins": self.pins(),
            "governors": self.governors(),
            "disk": self.disk(),
            "unknown": self.unknown,
        }

    # ---- files ----

    def path(self, path):
        return self.root / path

    def glob(self, pattern):
        return sorted(str(found.relative_to(self.root)) for found in self.root.glob(pattern))

    def bytes(self, path, what=None):
        """A file's content, None where there is none; UNKNOWN is noted for `what` where it may not be read."""
        try:
            return self.path(path).read_bytes()
        except PermissionError:
            self.unknown[what or path] = f"/{path}: {NEEDS_ROOT}"
        except OSError:
            pass  # not there, or a device that has fallen off the bus answers with EIO
        return None

    def text(self, path, what=None):
        data = self.bytes(path, what)
        return None if data is None else data.decode(errors="replace").strip()

    def cannot(self, what, why):
        self.unknown[what] = why
        return UNKNOWN

    # ---- devices ----

    def devices(self):
        """The NVIDIA GPUs on the bus, with or without a driver, and every bridge above one of them, by address."""
        gpus, bridges = [], {}
        for path in self.glob("sys/bus/pci/devices/*"):
            if self.text(f"{path}/vendor") != f"0x{pci.NVIDIA}" or not (self.text(f"{path}/class") or "").startswith("0x03"):
                continue
            gpu = self.device(path)
            gpus.append({**gpu, **self.gpu(path)})
            for address in gpu["bridges"]:
                if address not in bridges:
                    bridge = self.device(f"sys/bus/pci/devices/{address}")
                    bridges[address] = {key: bridge[key] for key in ("address", "kind", "link", "acs", "aer")}
        return gpus, list(bridges.values())

    def device(self, path):
        address = path.rsplit("/", 1)[1]
        config = self.bytes(f"{path}/config", f"acs of {address}") or b""
        try:
            read = pci.parse_config(config)
        except pci.TooShort:
            # Without root the kernel shows 64 bytes; the link is in files of its own.
            link = (
                f"{path}/{name}" for name in ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width")
            )
            read = {"kind": UNKNOWN, "link": pci.parse_sysfs_link(*map(self.text, link))}
            why = NEEDS_ROOT if len(config) <= 64 else f"ends after {len(config)} bytes (no MMCONFIG)"
            read["acs"] = self.cannot(f"acs of {address}", f"/{path}/config: {why}")
        aer = {kind: self.aer(path, kind) for kind in ("correctable", "nonfatal", "fatal")}
        above = pci.bridges_above(os.path.realpath(self.path(path)))
        return {"address": address, "bridges": above, **read, "aer": aer}

    def aer(self, path, kind):
        text = self.text(f"{path}/aer_dev_{kind}")
        return None if text is None else pci.parse_aer_total(text)

    def gpu(self, path):
        device = (self.text(f"{path}/device") or "").replace("0x", "")
        numa = self.text(f"{path}/numa_node")
        region = pci.largest_region(self.text(f"{path}/resource") or "")
        driver_link = self.path(f"{path}/driver")
        return {
            "device": device,
            "subsystem": f"{self.text(f'{path}/subsystem_vendor')}:{self.text(f'{path}/subsystem_device')}".replace(
                "0x", ""
            ),
            "model": pci.MODELS.get(device),
            "numa_node": int(numa) if numa and numa != "-1" else None,
            "kernel_driver": os.path.basename(os.readlink(driver_link)) if driver_link.is_symlink() else None,
            "iommu": self.iommu(path),
            "bar1_mib": region and region // 2**20,
            "smi": None,
        }

    def iommu(self, path):
        """disabled, passthrough or translated: how the kernel maps what this device reads and writes."""
        if not self.path(f"{path}/iommu_group").exists():
            return "disabled"
        kind = self.text(f"{path}/iommu_group/type", f"iommu of {path.rsplit('/', 1)[1]}") or UNKNOWN
        return {"identity": "passthrough", "DMA": "translated", "DMA-FQ": "translated"}.get(kind, kind)

    def smi(self, gpus):
        """Asks nvidia-smi once for everything and puts each answer to its GPU."""
        answer = self.run(smi.ARGV, timeout=SMI_DEADLINE)
        if answer is None:
            return {**dict.fromkeys(("message", "driver_version", "cuda_version", "library_version")), "state": "absent"}, []
        state, seen, processes = smi.parse(*answer)
        for gpu in gpus:
            gpu["smi"] = seen.get(gpu["address"])
        for process in processes:
            process["unit"] = system.unit_of(self.text(f"proc/{process['pid']}/cgroup") or "")
        return state, processes

    # ---- driver ----

    def kernels(self):
        running = self.text("proc/sys/kernel/osrelease")
        installed = {path.split("vmlinuz-", 1)[1] for path in self.glob("boot/vmlinuz-*")}
        installed = sorted(installed, key=system.kernel_order) or [running]
        with_headers = [path.split("/")[2] for path in self.glob("lib/modules/*/build/Makefile")]
        return {
            "running": running,
            "newest": installed[-1],
            "installed": installed,
            "headers": sorted(with_headers, key=system.kernel_order),
        }

    def driver(self, kernels):
        loaded = driver.parse_proc_version(self.text("proc/driver/nvidia/version") or "")
        on_disk = self.modinfo(kernels["running"])
        same = kernels["newest"] == kernels["running"]
        modules = [name for name in driver.MODULES if self.path(f"sys/module/{name}/initstate").exists()]
        dkms = self.run(("dkms", "status")) if self.path("var/lib/dkms").is_dir() else None
        return {
            "loaded": loaded,
            "on_disk": on_disk,
            "next_boot": on_disk if same else self.modinfo(kernels["newest"]),
            "library": driver.library_version(map(os.path.basename, self.glob("usr/lib/*-linux-gnu/libnvidia-ml.so.*"))),
            "modules": modules,
            "parameters": {name: self.parameters(name) for name in modules},
            "dkms": driver.parse_dkms(dkms[1]) if dkms else [],
        }

    def modinfo(self, kernel):
        if not self.path(f"lib/modules/{kernel}").is_dir():
            return None
        answer = self.run(("modinfo", "-k", kernel, "nvidia"))
        if answer is None:
            self.cannot(f"module of {kernel}", "modinfo is not installed (package kmod)")
            return None
        return driver.parse_modinfo(answer[1])

    def parameters(self, module):
        paths = self.glob(f"sys/module/{module}/parameters/*")
        shown = {path.rsplit("/", 1)[1]: self.text(path) for path in paths}
        if module == "nvidia":
            shown.update(driver.parse_proc_params(self.text("proc/driver/nvidia/params") or ""))
        return shown

    def secure_boot(self):
        return {"state": self.secure_boot_state(), "dkms_key": self.dkms_key()}

    def secure_boot_state(self):
        if not self.path(EFI).is_dir():
            return "none"
        answer = self.run(("mokutil", "--sb-state"))
        state = driver.parse_sb_state(answer[1] + answer[2]) if answer else UNKNOWN
        if state != UNKNOWN:
            return state
        value = driver.parse_efi_boolean(self.bytes(SECURE_BOOT) or b"")
        if value is None:
            return self.cannot("secure_boot", f"neither mokutil nor /{SECURE_BOOT} says it")
        return "enabled" if value else "disabled"

    def dkms_key(self):
        """enrolled or not enrolled; None where DKMS has made no key yet."""
        key = next((path for path in DKMS_KEYS if self.path(path).exists()), None)
        if key is None:
            return None
        answer = self.run(("mokutil", "--test-key", str(self.path(key))))
        if answer is None:
            return self.cannot("dkms_key", "mokutil is not installed")
        return driver.parse_test_key(answer[1] + answer[2])

    # ---- records, packages, disk ----

    def kernel_log(self):
        """The journal's kernel messages of this boot and the kernel's own buffer: each may have lost what the other has."""
        records, sources = [], []
        kmsg = self.kmsg()
        if kmsg is not None:
            records += kernel_log.parse_kmsg(kmsg)
            sources.append("/dev/kmsg")
        journal = self.run(kernel_log.JOURNAL_ARGV)
        if journal and (journal[0] == 0 or not journal[2].strip()) and os.geteuid() == 0:
            records += kernel_log.parse_journal(journal[1].splitlines())
            sources.append("journal")
        elif journal and os.geteuid() == 0:
            self.cannot("journal", f"journalctl: {' '.join(journal[2].split())}")
        if not sources:
            self.cannot("kernel_log", f"/dev/kmsg and the journal: {NEEDS_ROOT}, or there is neither")
        return {"sources": sources, **kernel_log.read(records)}

    def kmsg(self):
        """All that the kernel's buffer holds: one record each read, and no waiting for the next."""
        try:
            descriptor = os.open(self.path("dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        data = b""
        try:
            while True:
                try:
                    read = os.read(descriptor, 65536)
                except BrokenPipeError:
                    continue  # overwritten while we read: go on with the oldest that is left
                except OSError:
                    break  # EAGAIN: the end
                if not read:
                    break
                data += read
        finally:
            os.close(descriptor)
        return data.decode(errors="replace")

    def packages(self):
        answer = self.run(system.PACKAGES_ARGV)
        return system.parse_packages(answer[1]) if answer else []

    def pins(self):
        paths = [*self.glob("etc/apt/preferences"), *self.glob("etc/apt/preferences.d/*")]
        return [{"file": f"/{path}", **pin} for path in paths for pin in system.parse_preferences(self.text(path) or "")]

    def governors(self):
        """Those in effect; a processor that is offline has none."""
        return sorted({*map(self.text, self.glob("sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"))} - {None})

    def disk(self):
        """Free MiB of each file system that drivers, kernels, models and logs go to, by mount."""
        free = {}
        for path in ("", "boot", "usr", "var", "srv", "opt"):
            if self.path(path).is_dir():
                device = os.stat(self.path(path)).st_dev
                free.setdefault(device, (f"/{path}", shutil.disk_usage(self.path(path)).free // 2**20))
        return dict(free.values())
