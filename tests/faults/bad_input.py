"""Gives every public variable each kind of bad value, in real runs of the plays that use it, and judges the answers.

    python3 tests/faults/bad_input.py [--only PATTERN]

Variables are those of the roles' argument specs. Each value is the only bad one of a host of its own, of which one run
has hundreds; none of them exists. Right is *refused*, in words that name the variable and before the run goes on to
the host, or *legal*, by the table LEGAL below. All else is a finding, and so is an honest value that is refused.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]


class Case(NamedTuple):
    """A value of a variable: what is bad of it, or `honest`, and where in the value, such as `[0].until`."""

    role: str
    name: str
    kind: str
    at: str
    value: object

    def __str__(self):
        value = repr(self.value)
        return f"{self.name}{self.at} {self.kind}: {value if len(value) < 60 else value[:58] + '…'}"


# Which plays a role's variables are given to, and the group that they are for.
PLAYS = {
    "deploy.yml": ("sglang", ("sglang_engine", "sglang_service", "rollout", "traffic")),
    "playbooks/provision.yml": ("sglang", ("gpu_host", "nvidia_driver", "cuda_toolkit")),
    "playbooks/gateway.yml": ("model_gateway", ("model_gateway",)),
}
# What every host declares beside its bad value. Nothing answers there: a run that goes on to the host ends there.
HONEST = {
    "ansible_host": "127.0.0.1",
    "ansible_port": 1,
    "sglang_version": "0.5.13",
    "sglang_service_settings": {"spec_algorithm": "NONE", "model": "/srv/models/tiny", "host": "127.0.0.1", "port": 30000},
    "nvidia_driver_repositories": "https://mirror.example.com/cuda",
}
# Honest values of what has no default, or an empty one that says nothing of its form.
EXAMPLES = {
    "cuda_toolkit_packages": ["cuda-toolkit-13-0"],
    "cuda_toolkit_version": "13.0",
    "gpu_host_all_reduce_environment": {"NCCL_P2P_LEVEL": "SYS"},
    "gpu_host_all_reduce_python": "/opt/sglang/0.5.13/bin/python",
    "gpu_host_governor": "performance",
    "gpu_host_kernel_parameters": ["iommu=pt"],
    "gpu_host_limits": {"memlock": "unlimited"},
    "gpu_host_modprobe_options": {"nvidia_uvm": {"uvm_disable_hmm": 1}},
    "gpu_host_service_units": ["sglang*.service"],
    "gpu_host_sysctl": {"vm.swappiness": 1},
    "gpu_host_uuids": ["GPU-6f1d0ae1-8a0c-4f33-9d1c-0f6f3c0f7a11"],
    "gpu_host_waivers": [{"finding": "link_width", "gpu": "0000:41:00.0", "reason": "ordered", "until": "2037-01-15"}],
    "model_gateway_admin_key_file": "/etc/gateway.key",
    "model_gateway_extra_args": ["--log-level=debug"],
    "model_gateway_lock": "roles/model_gateway/files/1.13.0.txt",
    "model_gateway_pip_args": ["--retries=3"],
    "model_gateway_wheelhouse": "/srv/gateway",
    "nvidia_driver_key": "https://mirror.example.com/key.asc",
    "nvidia_driver_key_fingerprint": "EB693B3035CD5710E231E123A4B469963BF863CC",
    "nvidia_driver_repositories": HONEST["nvidia_driver_repositories"],
    "rollout_analysis": [{"name": "errors", "metric": "sglang:errors", "at_most": 0.5}],
    "rollout_apart": "rack 7",
    "rollout_approved": "3da334dc",
    "rollout_lease_host": "honest",
    "rollout_prometheus": "http://192.0.2.9:9090",
    "sglang_engine_git_ref": "0123456789abcdef0123456789abcdef01234567",
    "sglang_engine_git_url": "https://github.com/sgl-project/sglang",
    "sglang_engine_lock": "/srv/lock.txt",
    "sglang_engine_pip_args": ["--retries=3"],
    "sglang_engine_venv": "/opt/sglang/0.5.13",
    "sglang_engine_version": "0.5.13",
    "sglang_engine_wheelhouse": "/srv/wheelhouse",
    "sglang_service_acceptance": {"floor": 2.5, "tokens": 256},
    "sglang_service_engine_facts": "/var/lib/facts.json",
    "sglang_service_engine_python": "/opt/sglang/0.5.13/bin/python",
    "sglang_service_environment": {"NCCL_P2P_LEVEL": "SYS"},
    "sglang_service_extra_args": ["--log-requests"],
    "sglang_service_generation_waiver": {"reason": "no weights", "until": "2037-01-15"},
    "sglang_service_instances": [{"name": "k26"}],
    "sglang_service_key_file": "/etc/key.yaml",
    "sglang_service_only": "k26",
    "sglang_service_own_variables": ["rack"],
    "sglang_service_prompts": [{"prompt": "Who?", "answer": "Me.", "tokens": 64}],
    "sglang_service_prompts_record": "prompts.yml",
    "sglang_version": "0.5.13",
    "instance": "k26",
    "traffic_address": "gpu01.example.com",
    "traffic_command_in": ["/usr/local/bin/in"],
    "traffic_command_out": ["/usr/local/bin/out"],
    "traffic_gateway_key_file": "/etc/gateway.key",
    "traffic_gateways": ["http://192.0.2.8:8000"],
    "traffic_haproxy_backend": "engines",
    "traffic_haproxy_hosts": ["honest"],
    "traffic_haproxy_server": "gpu01",
}
TEXTS = {
    "unicode": "Köln東京",
    "newline": "\nb",
    "newline at the end": "\n",
    "%": "%n",
    "$": "$HOME",
    "quotes": "'\"",
    "1 MB": "{{ 'x' * 1048576 }}",
}
LONGEST = 1500  # characters of an answer
CONSEQUENCE = "refused above, and so no host is changed"  # is said of a host whose own values are legal
PROSE = ("unicode", "%", "$", "quotes")
# What is legal of the bad, by the place in a value; `key` is that of a dictionary. All else must be refused.
LEGAL = {
    # empty means none, or the default that its description tells
    **dict.fromkeys(
        (
            "cuda_toolkit_build_packages", "gpu_host_all_reduce_environment", "gpu_host_all_reduce_ranks",
            "gpu_host_governor", "gpu_host_kernel_parameters", "gpu_host_limits", "gpu_host_modprobe_options",
            "gpu_host_service_units", "gpu_host_sysctl", "gpu_host_uuids", "gpu_host_waivers", "instance",
            "model_gateway_admin_key_file", "model_gateway_extra_args", "model_gateway_lock",
            "model_gateway_pip_args", "model_gateway_wheelhouse", "nvidia_driver_key",
            "nvidia_driver_key_fingerprint", "rollout_analysis", "rollout_approved", "rollout_prometheus",
            "sglang_engine_git_ref", "sglang_engine_git_url", "sglang_engine_lock", "sglang_engine_pip_args",
            "sglang_engine_wheelhouse", "sglang_service_acceptance", "sglang_service_contract",
            "sglang_service_environment", "sglang_service_extra_args", "sglang_service_generation_waiver",
            "sglang_service_key_file", "sglang_service_only", "sglang_service_own_variables",
            "sglang_service_prompts", "traffic_command_in", "traffic_command_out", "traffic_gateway_key_file",
            "traffic_gateways", "traffic_haproxy_backend", "traffic_haproxy_hosts", "traffic_metrics_dir",
        ),
        ("empty",),
    ),
    # words of a command: no shell reads them, and for a unit of systemd they are quoted
    **dict.fromkeys(("sglang_engine_pip_args[]", "model_gateway_pip_args[]", "sglang_service_extra_args[]"), PROSE),
    **dict.fromkeys(("traffic_command_in[]", "traffic_command_out[]"), PROSE),
    # environment variables, quoted as well; an empty one is one
    **dict.fromkeys(
        ("sglang_service_environment.NCCL_P2P_LEVEL", "gpu_host_all_reduce_environment.NCCL_P2P_LEVEL"), (*PROSE, "empty")
    ),
    # for people and for the engine
    **dict.fromkeys(("gpu_host_waivers[].reason", "sglang_service_generation_waiver.reason"), PROSE),
    "rollout_analysis[].name": PROSE,
    **dict.fromkeys(
        ("sglang_service_prompts[].prompt", "sglang_service_prompts[].answer"), (*PROSE, "newline", "newline at the end")
    ),
    "rollout_apart": (*PROSE, "empty"),  # any line that hosts have in common
    "sglang_service_prompts_record": (*PROSE, "empty"),  # a file on the controller, which may be called anything
    "rollout_analysis[].at_most": ("out of range",),  # of numbers any
    # what it takes is for the kernel to say
    "gpu_host_modprobe_options.nvidia_uvm.uvm_disable_hmm": ("%", "$", "out of range", "no number"),
    "gpu_host_sysctl.vm.swappiness": ("%", "$", "quotes", "out of range", "no number"),
}  # fmt: skip
# With -e all is text. What the type takes as text is legal, all else is refused as it is in an inventory.
EXTRA = (
    ("traffic_timeout", "honest", "90"),
    ("traffic_timeout", "wrong type", "many"),
    ("sglang_service_adopt", "honest", "true"),
    ("sglang_service_adopt", "wrong type", "perhaps"),
    ("sglang_service_extra_args", "wrong type", "--log-requests"),
    ("sglang_service_environment", "wrong type", "A=B"),
    ("sglang_service_prompts_floor", "out of range", "50%"),
    ("rollout_batches", "wrong type", "25%"),
    ("gpu_host_count", "wrong type", "eight"),
    ("sglang_version", "unicode", "0.5.13ß"),
    ("sglang_version", "empty", ""),
    ("instance", "quotes", "k26'"),
)
WRONG = ("perhaps", True, 7.5, ["a"], {"a": "b"})  # less those that are of the type


def options(role):
    """{variable: its argument spec} of a role."""
    specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return {name: option for spec in specs.values() for name, option in spec["options"].items()}


def cases(role):
    """All cases of a role's variables. The settings of the engine have tests of their own."""
    known = options(role)
    if role == "sglang_engine":
        known["sglang_version"] = known["sglang_engine_version"]
    if role == "sglang_service":
        known["instance"] = known["sglang_service_only"]
        del known["sglang_service_settings"]
    for name, option in known.items():
        honest = EXAMPLES.get(name, option.get("default"))
        yield Case(role, name, "honest", "", honest)
        yield Case(role, name, "null", "", None)
        yield Case(role, name, "empty", "", type(honest)() if isinstance(honest, (str, list, dict)) else "")
        for wrong in WRONG:
            if not of_type(wrong, option["type"]):
                yield Case(role, name, "wrong type", "", wrong)
        if "choices" in option:
            yield Case(role, name, "out of range", "", ["nonesuch"] if option["type"] == "list" else "nonesuch")
        if isinstance(honest, dict):
            yield Case(role, name, "wrong type", "{}", {"": ""})
        for at, leaf in leaves(honest):
            yield from bad_leaf(role, name, honest, at, leaf)


def bad_leaf(role, name, honest, at, leaf):
    """The cases of a text or number inside an honest value, of a dictionary's key too."""
    shown = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at)
    for kind, text in TEXTS.items():
        yield Case(role, name, kind, shown, put(honest, at, f"{leaf}{text}"))
    if at:
        for kind, value in (("null", None), ("empty", ""), ("wrong type", ["a"]), ("wrong type", {"a": ["b"]})):
            yield Case(role, name, kind, shown, put(honest, at, value))
        if name == "gpu_host_modprobe_options" or (isinstance(at[-1], str) and len(at) == 1):
            for kind, text in TEXTS.items():
                yield Case(role, name, kind, f"{shown} (key)", rename(honest, at, f"{at[-1]}{text}"))
    if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
        for value in (-1, 10**12):
            yield Case(role, name, "out of range", shown, put(honest, at, value))
        for kind, value in (("no number", "1,5"), ("no number", "0x10"), ("unicode", "٣")):
            yield Case(role, name, kind, shown, put(honest, at, value))


def of_type(value, kind):
    """Whether it is a value of a type of argument specs."""
    if isinstance(value, bool):
        return kind == "bool"
    if isinstance(value, float):
        return kind in ("str", "float")  # a version without quotes
    return kind in {str: ("str", "path", "raw"), list: ("list",), dict: ("dict",)}[type(value)]


def leaves(value, at=()):
    """(where, leaf) of all that is no list and no dictionary."""
    if isinstance(value, (list, dict)):
        for step, inner in enumerate(value) if isinstance(value, list) else value.items():
            yield from leaves(inner, (*at, step))
    else:
        yield at, value


def put(value, at, leaf):
    """The value with another leaf."""
    if not at:
        return leaf
    changed = copy.copy(value)
    changed[at[0]] = put(value[at[0]], at[1:], leaf)
    return changed


def rename(value, at, key):
    """The value with another key in the dictionary that has the leaf."""
    if len(at) > 1:
        return put(value, at[:1], rename(value[at[0]], at[1:], key))
    return {key if name == at[0] else name: inner for name, inner in value.items()}


class Answer(NamedTuple):
    """What a run said of a host: the failure's words, none where it went on to the host, and how much it changed."""

    words: str
    changed: int


def ask(play, group, variables, *arguments):
    """Run a play in check mode for hosts {name: its variables}; {name: Answer} of those that failed or were gone on to."""
    with tempfile.TemporaryDirectory() as directory:
        inventory = Path(directory) / "hosts.json"
        inventory.write_text(json.dumps({group: {"hosts": variables, "vars": HONEST}}))
        env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_RETRIES": "0"}
        env |= {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ROLLOUT_REPORT_DIRECTORY": ""}
        command = ["ansible-playbook", "-i", inventory, play, "--check", *arguments]
        run = subprocess.run(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    words = {}
    for name, result in re.findall(r"^(?:fatal|failed): \[(\S+?)(?: -> \S+)?\]: .*?=> (\{.*\})$", run.stdout, re.MULTILINE):
        result = json.loads(result)
        if CONSEQUENCE not in result["msg"]:
            words.setdefault(name, []).append("" if result.get("unreachable") else result["msg"])
    changed = dict(re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", run.stdout, re.MULTILINE))
    if not words:
        raise SystemExit(f"{play} said nothing of its hosts:\n{run.stdout[-4000:]}")
    return {name: Answer("\n".join(filter(None, said)), int(changed.get(name, 0))) for name, said in words.items()}


def ask_all(play, group, asked):
    """An Answer to each of the cases, which may take several runs: one that is refused can end the run for the others."""
    hosts = {f"v{number}": {case.name: case.value} for number, case in enumerate(asked)}
    answers = {}
    while len(answers) < len(hosts):
        rest = {name: variables for name, variables in hosts.items() if name not in answers}
        found = ask(play, group, {**rest, "honest": {}})
        if not found.keys() & rest.keys():
            raise SystemExit(f"{play} ends without a word on {', '.join(rest)}: {found}")
        answers |= found
    return [answers[name] for name in hosts]


def is_legal(case):
    return case.kind == "honest" or case.kind in LEGAL.get(case.name + re.sub(r"\[\d+\]", "[]", case.at), ())


def judge(case, answer):
    """What is wrong with the answer to a case, or None."""
    if answer.changed:
        return f"changed={answer.changed}"
    if not answer.words:
        return None if is_legal(case) else "accepted"
    if is_legal(case):
        return "refused, but legal"
    if not re.search(rf"\b{case.name}\b", answer.words):
        return "the variable is not named"
    if re.search(r"Traceback|object has no|Unexpected|templat|unable to convert|Validation of arguments", answer.words):
        return "not in our own words"
    if len(answer.words) > LONGEST:
        return f"{len(answer.words)} characters"
    return None if "Nothing was changed" in answer.words else "does not say that nothing was changed"


def judge_all(play, asked, answers):
    """Print what is wrong, and return how many are right and wrong, by role."""
    counts = {}
    for case, answer in zip(asked, answers, strict=True):
        wrong = judge(case, answer)
        if wrong:
            print(f"FINDING {play} {case}: {wrong}\n      {answer.words[:300]}", flush=True)
        counts.setdefault(case.role, Counter())["findings" if wrong else "refused" if answer.words else "legal"] += 1
    for role, count in counts.items():
        print(f"{play} {role}: {summary(count)}", flush=True)
    return sum(counts.values(), Counter())


def summary(count):
    return ", ".join(f"{count[word]} {word}" for word in ("refused", "legal", "findings"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression over the variables' names")
    only = re.compile(parser.parse_args().only)
    began = time.monotonic()
    total = Counter()
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as contract:
        contract.write(re.search(r"```yaml\n(family:.*?)```", (ROOT / "docs/forks.md").read_text(), re.DOTALL)[1])
        contract.flush()
        EXAMPLES["sglang_service_contract"] = contract.name
        for play, (group, roles) in PLAYS.items():
            asked = [case for role in roles for case in cases(role) if only.search(case.name)]
            total += judge_all(play, asked, ask_all(play, group, asked))
        extra = [Case("-e", name, kind, "", text) for name, kind, text in EXTRA if only.search(name)]
        answers = [ask("deploy.yml", "sglang", {"v0": {}}, "-e", json.dumps({c.name: c.value}))["v0"] for c in extra]
        total += judge_all("deploy.yml", extra, answers)
    print(f"\n{total.total()} values: {summary(total)}  ({time.monotonic() - began:.0f} s)")
    sys.exit(1 if total["findings"] else 0)


if __name__ == "__main__":
    main()
