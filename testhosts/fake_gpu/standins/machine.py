"""Stand-in for a machine with eight RTX PRO 6000 Blackwell cards, as Linux shows it in /sys, /proc and /dev.

`write` makes such a tree anywhere. On a test host, as root:

  machine.py boot       at each boot: the installed kernel module becomes the loaded one, then the same as
  machine.py hardware   show what /etc/fake-gpu/machine.json says over DEFAULT; what is loaded stays

A machine is a dict. Cards are counted from 0, in the order of their addresses.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

DEFAULT = {
    "gpus": 8,
    "absent": [],  # cards that are not on the bus
    "unseen": [],  # on the bus, and no driver gets them to work
    "replaced": [],  # with another serial number than the card that was there
    "width": {},  # lanes in use, by card
    "speed": 1,  # PCIe generation in use; idle cards go down to 1
    "acs": [],  # ACS control bits set on all root ports
    "iommu": "identity",  # type of the cards' groups; null without an IOMMU
    "memory": {},  # MiB in use that no process holds, by card
    "processes": [],  # {"gpu": 0, "pid": 1, "name": "python3", "memory": MiB}
    "mig": [],
    "compute_mode": "Default",
    "persistence": True,
    "recovery": {},  # the action that a card asks for
    "kernel_log": [],  # messages since boot
    "aer": {},  # uncorrected fatal errors counted, by card
    "secure_boot": None,  # true or false on a machine with UEFI
    "nouveau": False,
}
RUN = Path("/run/fake-gpu")
MACHINE = "etc/fake-gpu/machine.json"
LOADED = "etc/fake-gpu/loaded.json"  # below RUN
EFI_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
GTS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0"}


def cards(machine):
    """(number, address of the root port, address of the card) of each card on the bus."""
    for number in range(machine["gpus"]):
        if number not in machine["absent"]:
            yield number, f"0000:{number * 32:02x}:01.1", f"0000:{number * 32 + 1:02x}:00.0"


def config(vendor, device, kind, link, acs):
    """A configuration space of 4096 bytes with the PCI Express capability and, for a port, ACS."""
    speed, speed_max, width, width_max = link
    space = bytearray(4096)
    struct.pack_into("<HHHHBBBBBBBB", space, 0, vendor, device, 0x0406, 0x0010, 0xA1, 0, 0, 3, 0, 0, int(kind == 4), 0)
    space[0x34] = 0x60
    struct.pack_into("<BBH", space, 0x60, 0x10, 0, 2 | kind << 4)
    struct.pack_into("<I", space, 0x6C, speed_max | width_max << 4)
    struct.pack_into("<H", space, 0x72, speed | width << 4)
    if acs is not None:
        control = sum(1 << at for at, name in enumerate(ACS_BITS) if name in acs)
        struct.pack_into("<IHH", space, 0x100, 0x000D | 1 << 16, 0x5F, control)
    return bytes(space)


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content) if isinstance(content, bytes) else path.write_text(f"{content}\n")


def device(root, place, space, link, files):
    speed, speed_max, width, width_max = link
    directory = root / "sys/devices" / place
    put(directory / "config", space)
    (directory / "config").chmod(0o600)  # the kernel shows others the first 64 bytes, which hold nothing of a link
    links = {"current_link_width": width, "max_link_width": width_max}
    speeds = {"current_link_speed": f"{GTS[speed]} GT/s PCIe", "max_link_speed": f"{GTS[speed_max]} GT/s PCIe"}
    ids = {"vendor": f"0x{space[1]:02x}{space[0]:02x}", "device": f"0x{space[3]:02x}{space[2]:02x}"}
    for name, value in {**ids, **links, **speeds, **files}.items():
        put(directory / name, value)
    shown = root / "sys/bus/pci/devices" / directory.name
    shown.parent.mkdir(parents=True, exist_ok=True)
    shown.symlink_to(directory)
    return directory


def write(root, machine, loaded=None):
    """Make the tree of a machine below `root`; `loaded`: {"version", "open", "modules", "parameters"}, or None."""
    machine = {**DEFAULT, **machine}
    put(root / MACHINE, json.dumps(machine))
    put(root / LOADED, json.dumps(loaded))
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    for number, port, card in cards(machine):
        link = (machine["speed"], 5, int(machine["width"].get(str(number), 16)), 16)
        bus = f"pci{port[:7]}"
        device(root, f"{bus}/{port}", config(0x1022, 0x14AB, 4, link, machine["acs"]), link, {"class": "0x060400"})
        fatal = machine["aer"].get(str(number), 0)
        files = {
            "class": "0x030200",
            "subsystem_vendor": "0x10de",
            "subsystem_device": "0x204e",
            "numa_node": number // 4,
            "resource": "\n".join(region(number)),
            "aer_dev_correctable": "RxErr 3\nTOTAL_ERR_COR 3",
            "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0",
            "aer_dev_fatal": f"DLP {fatal}\nTOTAL_ERR_FATAL {fatal}",
        }
        directory = device(root, f"{bus}/{port}/{card}", config(0x10DE, 0x2BB5, 0, link, None), link, files)
        if machine["iommu"]:
            put(directory / "iommu_group/type", machine["iommu"])
        used = "nouveau" if machine["nouveau"] else "nvidia" if loaded else None
        if used:
            (directory / "driver").symlink_to(f"../../../../bus/pci/drivers/{used}")
    modules(root, machine, loaded)
    if machine["secure_boot"] is not None:
        put(root / f"sys/firmware/efi/efivars/SecureBoot-{EFI_GLOBAL}", bytes([6, 0, 0, 0, int(machine["secure_boot"])]))
    records = [f"4,{100 + at},{(60 + at) * 1000000},-;{message}" for at, message in enumerate(machine["kernel_log"])]
    put(root / "dev/kmsg", "\n".join(["6,1,0,-;Linux version", *records]))


def region(number):
    """BAR0 of 64 MiB, BAR1 of 128 GiB over two lines, BAR3 of 32 MiB over two."""
    base = (number + 1) << 40
    used = {0: (0xA0000000, 2**26), 1: (base, 2**37), 3: (base + 2**37, 2**25)}
    for at in range(13):
        start, size = used.get(at, (0, 0))
        yield f"0x{start:016x} 0x{start + size - 1 if size else 0:016x} 0x{0x14220C if size else 0:016x}"


def modules(root, machine, loaded):
    (root / "proc/driver").mkdir(parents=True)
    (root / "sys/module").mkdir(parents=True)
    if machine["nouveau"]:
        put(root / "sys/module/nouveau/initstate", "live")
    if not loaded:
        return
    flavour = "Open Kernel Module for x86_64" if loaded["open"] else "x86_64 Kernel Module"
    version = f"NVRM version: NVIDIA UNIX {flavour}  {loaded['version']}  Release Build  (builder@host)  Mon Nov  3 2025"
    put(root / "proc/driver/nvidia/version", f"{version}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)")
    for name in loaded["modules"]:
        put(root / f"sys/module/{name}/initstate", "live")
        for parameter, value in loaded.get("parameters", {}).get(name, {}).items():
            put(root / f"sys/module/{name}/parameters/{parameter}", value)


def kernel_module(version, licence, signer=None):
    """An ELF object with nothing but a .modinfo section, which modinfo reads; nothing can load it."""
    fields = {"version": version, "license": licence, "name": "nvidia", **({"signer": signer} if signer else {})}
    info = "".join(f"{name}={value}\0" for name, value in fields.items()).encode()
    names = b"\0.modinfo\0.shstrtab\0"
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 1, 62, 1, 0, 0, 64 + len(info + names), 0, 64, 0, 0, 64, 3, 2
    )
    table = bytes(64)
    for name, kind, flags, start, size in ((1, 1, 2, 64, len(info)), (10, 3, 0, 64 + len(info), len(names))):
        table += struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, start, size, 0, 0, 1, 0)
    return header + info + names + table


# ---- on a test host ----


def installed():
    """The NVIDIA module that this kernel would load, with the options of modprobe's configuration."""

    def modinfo(field):
        shown = subprocess.run(["modinfo", "-F", field, "nvidia"], capture_output=True, text=True)
        return shown.stdout.strip()

    subprocess.run(["depmod"], capture_output=True)
    if not modinfo("version"):
        return None
    # the kernel shows a flag that was set to 1 as Y
    parameters = {"nvidia_uvm": {"uvm_disable_hmm": "N"}, "nvidia": {"NVreg_EnableGpuFirmware": "18"}}
    for path in sorted(Path("/etc/modprobe.d").glob("*.conf")):
        for module, options in re.findall(r"^options\s+(\S+)\s+(.*)$", path.read_text(), re.M):
            for name, _, value in (option.partition("=") for option in options.split()):
                flag = {"1": "Y", "0": "N"}.get(value, value) if name.startswith("uvm_") else value
                parameters.setdefault(module.replace("-", "_"), {})[name] = flag
    # udev loads the driver of a device; nvidia-uvm is loaded by the first use as root, or where it is asked for
    asked = "".join(path.read_text() for path in Path("/etc/modules-load.d").glob("*.conf")).replace("-", "_").split()
    modules = ["nvidia", "nvidia_modeset", *(["nvidia_uvm"] if "nvidia_uvm" in asked else [])]
    return {"version": modinfo("version"), "open": "GPL" in modinfo("license"), "modules": modules, "parameters": parameters}


def command_line():
    """What the boot loader's configuration says, as the running kernel's own command line."""
    try:
        line = re.search(r"^\s*linux\s+(.*)$", Path("/boot/grub/grub.cfg").read_text(), re.M)[1]
        return line.replace("\\;", ";")  # a bare one would end the command
    except OSError:
        return f"/boot/vmlinuz-{os.uname().release} root=/dev/sda1 ro quiet"


def show(loaded):
    """Lay the tree over what this host's kernel shows."""
    for shown in ("/sys/bus/pci", "/proc/driver"):
        subprocess.run(["umount", shown], capture_output=True)
    shutil.rmtree(RUN, ignore_errors=True)
    path = Path("/", MACHINE)
    write(RUN, json.loads(path.read_text()) if path.exists() else {}, loaded)
    (RUN / "sys/firmware").mkdir(exist_ok=True)
    for shown in ("sys/bus/pci", "proc/driver"):
        subprocess.run(["mount", "--bind", RUN / shown, f"/{shown}"], check=True)
    subprocess.run(["mount", "-o", "remount,rw", "/sys"], check=True)
    for shown in ("sys/module", "sys/firmware", "dev/kmsg"):
        if not Path("/", shown).is_symlink():
            Path("/", shown).symlink_to(RUN / shown)
    subprocess.run(["mount", "-o", "remount,ro", "/sys"], check=True)


def main(step):
    if step == "boot":
        show(installed())
        shown = Path("/run/fake-cmdline")  # not in the tree, which is made anew
        shown.write_text(f"BOOT_IMAGE={command_line()}\n")
        if Path("/proc/cmdline").read_text() != shown.read_text():
            subprocess.run(["mount", "--bind", shown, "/proc/cmdline"], check=True)
    else:
        show(json.loads((RUN / LOADED).read_text()))


if __name__ == "__main__":
    main(sys.argv[1])
