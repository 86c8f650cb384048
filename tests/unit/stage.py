"""What several tests share: small engine facts, a plan, and a host that is told what to say."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path

from ansible.module_utils.sglang_host import Owner
from ansible.module_utils.sglang_proof import contract, plan
from ansible.module_utils.sglang_proof.facts import EngineFacts, Option
from ansible.module_utils.sglang_proof.systemd_unit import parse_properties

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/opt/sglang/0.5.13/bin/python"
UNIT_PATH = "/etc/systemd/system/sglang-k26.service"
SETTINGS = {
    "spec_algorithm": "DFLASH",
    "model": "/srv/models/tiny-qwen3",
    "draft_model": "/srv/models/tiny-dflash",
    "block_size": 8,
    "window": 2048,
    "context_length": 4096,
    "port": 30000,
}
CONFIGS = {
    "target": {"max_position_embeddings": 4096},
    "drafter": {"block_size": 8, "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]},
}


def load(path):
    """A module, plugin or program of the project, which no import reaches. `path`: below ROOT."""
    name = Path(path).stem.replace("-", "_")
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(ROOT / path)))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def engine(
    release="0.5.13",
    flags=None,
    templates=("Initialized DFLASH draft runner. attention_backend={}", "max_total_num_tokens={}"),
):
    """Facts of an engine that has all options of the contract for its release, or just `flags`."""
    if flags is None:
        flags = [
            entry.carrier(release).option
            for entry in contract.SETTINGS
            if entry.family is None and isinstance(entry.carrier(release), contract.Flag)
        ]
    options = tuple(
        Option(flag, flag.lstrip("-").replace("-", "_"), "store", "one") for flag in [*flags, "--disable-cuda-graph"]
    )
    return EngineFacts(release, options, tuple(templates), fingerprint=f"fingerprint of {release}")


def make_plan(release="0.5.13", facts=None, **changes):
    facts = facts or engine(release)
    declaration = plan.declared({**SETTINGS, **changes}, contract.family_of(facts).name, CONFIGS, release)
    return plan.make("k26", PYTHON, declaration, facts)


def with_alarms(made, forbidden=(), contradict=None):
    """A plan with lines that must not be said, and no others. contradict: setting → texts."""
    contradict = contradict or {}
    expectations = tuple(replace(e, contradict=tuple(contradict.get(e.setting, ()))) for e in made.expectations)
    return replace(made, forbidden=tuple(forbidden), expectations=expectations)


DRAFT_LINE = (
    "[2026-11-29 14:16:09] Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, "
    "block_size=8, draft_window_size={window}, compact_cache={compact}"
)
POOL_LINE = (
    "[2026-11-29 14:16:09] max_total_num_tokens=4096, chunked_prefill_size=2048, max_prefill_tokens=16384, "
    "max_running_requests=4, context_len=4096, available_cpu_mem=20.52 GB"
)
READY_LINE = "[2026-11-29 14:16:17] The server is fired up and ready to roll!"


def echo_line(made, **changes):
    """`server_args=` as an engine prints it that got the plan, but for the changes."""
    values = {e.echoed_as: e.echoed for e in made.expectations if e.echoed_as}
    return (
        "[2026-11-29 14:15:51] server_args=ServerArgs("
        + ", ".join(f"{k}={v!r}" for k, v in {**values, **changes}.items())
        + ")"
    )


def start_lines(made, window=2048, **echoed):
    return [
        echo_line(made, **echoed),
        DRAFT_LINE.format(window=window, compact=window is not None),
        POOL_LINE,
        READY_LINE,
    ]


class FakeHost:
    """A host whose systemd, processes, journal and HTTP say what a test wants; time goes on when somebody waits."""

    def __init__(self, made, lines=()):
        self.made = made
        self.time = 1000.0
        self.invocations = {"i1": list(lines)}  # invocation → lines of its start
        self.written = {}  # (invocation, number of a line) → when it was first seen
        self.coming = []  # what happens while somebody follows: lines, or callables that change this host
        held = parse_properties(json.dumps({"data": [PROPERTIES]}))
        self.running = replace(held, invocation_id="i1", argv=made.argv, environment=made.environment)
        self.processes = {7: (made.argv, dict(made.environment))}
        self.kernel = []  # lines of the kernel, of this boot
        self.usages = {"7": [0, 0, 0.0]}  # process id → bytes read, resident bytes, CPU seconds; or a function of the time
        self.manager = {"LANG": "C.UTF-8"}
        self.owner = Owner(True, "python (pid 7)", made.unit)
        self.answers = {
            "/server_info": {"internal_states": [{"effective_max_running_requests_per_dp": 4}]},
            "/model_info": {"model_path": made.model},
            "/generate": {"text": " jumps"},
        }

    def clock(self):
        return self.time

    now = clock

    def sleep(self, seconds):
        self.time += seconds

    def boot_id(self):
        return "boot"

    def reachable(self, address):
        return address

    def unit(self, _name):
        return self.running

    def process(self, pid):
        return self.processes.get(pid)

    def journal(self, invocation, after_cursor=None):
        lines = [
            self._json(line, n, self.written.setdefault((invocation, n), self.time))
            for n, line in enumerate(self.invocations.get(invocation, ()))
        ]
        return lines[int(after_cursor[1:]) + 1 :] if after_cursor else lines

    def kernel_journal(self, since):
        return [self._json(line, 0, when, "kernel") for when, line in self.kernel if when >= since]

    def environments(self, _group):
        return {str(pid): environment for pid, (_, environment) in self.processes.items()}

    def usage(self, _group):
        return self.usages(self.time) if callable(self.usages) else self.usages

    def follow(self, invocation, _cursor, deadline):
        while self.time < deadline:
            if self.coming:
                event = self.coming.pop(0)
                if callable(event):
                    event(self)
                else:
                    self.invocations[invocation].append(event)
                    number = len(self.invocations[invocation]) - 1
                    yield self._json(event, number, self.written.setdefault((invocation, number), self.time))
            self.time += 1
            yield None

    def insist_on_journal(self):
        pass

    def manager_environment(self):
        return self.manager

    def listener(self, _port, _group, _address):
        return self.owner

    def gpu_holder(self, _visible, _group):
        return None

    def gpu_memory_held(self, _visible):
        return None

    def get(self, url, _key=None, _body=None, _timeout=30):
        return self.answers["/" + url.rsplit("/", 1)[1]]

    def starts_again(self, invocation="i2"):
        self.invocations.setdefault(invocation, [])
        self.running = replace(self.running, invocation_id=invocation, main_pid=8)

    def dies(self, result="exit-code"):
        self.running = replace(self.running, main_pid=0, active_state="failed", sub_state="failed", result=result)

    def _json(self, line, number, when, transport="stdout"):
        entry = {
            **(line if isinstance(line, dict) else {"MESSAGE": list(line) if isinstance(line, bytes) else line}),
            "__CURSOR": f"c{number}",
            "__REALTIME_TIMESTAMP": str(int(when * 1e6)),
            "_TRANSPORT": transport,
            "_PID": "7",
        }
        return json.dumps(entry).encode()


def _property(value):
    return {"type": "s", "data": value}


PROPERTIES = {
    name: _property(value)
    for name, value in {
        "Id": "sglang-k26.service", "LoadState": "loaded", "LoadError": ["", ""], "ActiveState": "active",
        "SubState": "running", "Result": "success", "UnitFileState": "enabled", "User": "sglang", "FragmentPath": UNIT_PATH,
        "DropInPaths": [], "NeedDaemonReload": False, "MainPID": 7, "InvocationID": [], "NRestarts": 0,
        "ExecMainStartTimestamp": 990_000_000, "ControlGroup": "/system.slice/sglang-k26.service",
    }.items()
}  # fmt: skip
