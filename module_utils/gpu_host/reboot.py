"""Must this host reboot, and may it? Decided from its state alone, so that an aborted earlier run heals.

`facts` are those of gpu_host_facts. The answer is the same before and after the packages are changed, because the
declared version is compared with the loaded one.
"""

from __future__ import annotations

from .gate import module_options, same_value, secure_boot

RECORD = "/var/lib/gpu-host/rebooted.json"  # for what the host was rebooted last


def reasons(facts, version, parameters=(), options=None):
    """Why the running boot is not what is declared, a list of sentences.

    `parameters`: words that the kernel command line must have; `options`: {module: {parameter: value}}.
    """
    driver = facts["driver"]
    loaded = driver["loaded"]
    found = []
    if "nouveau" in driver["modules"]:
        found.append("the module nouveau is loaded")
    if facts["gpus"] and not loaded:
        found.append("no NVIDIA module is loaded")
    if loaded and loaded["version"] != version:
        found.append(f"the loaded module is {loaded['version']}, declared is {version}")
    elif loaded and not loaded["open"]:
        found.append("the loaded module is the proprietary one")
    missing = [word for word in parameters if word not in facts["boot"]["parameters"]]
    if missing:
        found.append(f"the kernel was started without {' '.join(missing)}")
    for module, name, value, in_effect in module_options(facts, options or {}):
        if in_effect is not None and not same_value(in_effect, value):
            found.append(f"the module {module} runs with {name}={in_effect}, declared is {value}")
    return found


def obstacles(facts, holders=(), allowed=True, tried=False):
    """Why it may not reboot even so, a list of sentences. `tried`: it was rebooted for the same reasons before."""
    found = [f"{finding.found}. Next: {finding.next}" for finding in secure_boot(facts)]
    if holders:
        found.append(
            f"{', '.join(holders)} is at work. Next: stop it, or, where it is a service that may be stopped, run again with "
            "-e nvidia_driver_stop_services=true"
        )
    if tried:
        found.append(
            "a reboot for this did not help. Next, on the host: journalctl -k -b | grep -i nvidia; when the cause is gone: "
            f"rm {RECORD}"
        )
    if not allowed:
        found.append("reboots are not allowed. Next: run again with -e nvidia_driver_reboot_allowed=true")
    return found


def record(facts, version, why):
    """What to keep of a reboot before it happens."""
    return {"boot": facts["boot"]["id"], "version": version, "reasons": why}


def was_tried(kept, facts, version, why):
    """Whether the host was rebooted for one of these reasons and this driver before; `kept`: the last record, or empty."""
    same = kept.get("version") == version and not set(why).isdisjoint(kept.get("reasons", ()))
    return same and kept["boot"] != facts["boot"]["id"]


def unready(facts, version):
    """Why the next boot would not have the declared driver, a sentence; empty if it will."""
    if facts["smi"]["state"] == "absent":
        return "The packages brought no nvidia-smi. Next, on the host: dpkg -l '*nvidia*'"
    kernel, module = facts["kernels"]["newest"], facts["driver"]["next_boot"]
    if module and module["version"] == version and module["open"]:
        return ""
    if not module:
        found = "no nvidia module"
    elif module["version"] != version:
        found = f"nvidia {module['version']}"
    else:
        found = "the proprietary module"
    states = [line for line in facts["driver"]["dkms"] if line["module"] == "nvidia" and line["kernel"] == kernel]
    dkms = ", ".join(f"{line['version']} {line['state']}" for line in states) or "nothing"
    headers = "are there" if kernel in facts["kernels"]["headers"] else "are missing"
    return (
        f"Kernel {kernel}, which the next boot takes, has {found}; declared is {version}. "
        f"DKMS says {dkms} for it, its headers {headers}. Next, on the host: dkms autoinstall -k {kernel}"
    )


def holders(units, processes):
    """What uses the GPUs: (services, which can be stopped; other processes, which somebody started by hand).

    `units`: active units of SGLang; `processes`: those of the facts.
    """
    services = sorted({*units, *(line["unit"] for line in processes if (line["unit"] or "").endswith(".service"))})
    others = [f"{line['name']} ({line['pid']})" for line in processes if not (line["unit"] or "").endswith(".service")]
    return services, sorted(set(others))
