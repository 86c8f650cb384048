"""Every fault that is shown on a host, and what must be said of it. `make faults` makes each happen on a test host.

A fault is a scenario of the lying engine (testhosts/lying_engine), a drop-in of its unit, or shell on the host. Shell runs
as root, with $unit, its $file, and a word: `ready` waits until this start says that it is.
What must be said: the verdict, the hop that is named, and words of the first lines of the message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DFLASH, DDTREE = "dflash", "ddtree"  # what is deployed: SGLang 0.5.13; 0.5.23 with DDTREE in two replicas
READY = "The server is fired up and ready to roll!"
DRAFT = "Initialized DFLASH draft runner."
DRAFT_LINE = (
    "Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8, "
    "draft_window_size={window}, compact_cache={compact}"
)
AS_DECLARED = DRAFT_LINE.format(window=2048, compact=True)
PYTHON = "/opt/sglang/0.5.13/bin/python"
SITE = "/opt/sglang/0.5.13/lib/python3.11/site-packages"

# Of a start that ended or went on without an end: there is no setting to speak of, but a cause.
FAILED, START = "failed", "start"


@dataclass(frozen=True)
class Fault:
    """verdict, hop, words: what must be said; "proved" for an honest start. The rest makes it happen.

    before: shell before the restart; after: shell after it; during: shell that runs while the proof waits; aged: shell
    between a first proof and the one that counts; undo: shell.
    arguments: demands of the module sglang_startup, and its state_dir. engine: what is deployed on the host.
    """

    group: str
    name: str
    verdict: str
    hop: str
    words: tuple
    engine: str = DFLASH
    scenario: dict = field(default_factory=dict)
    drop_in: str = ""
    before: str = ""
    after: str = ""
    during: str = ""
    aged: str = ""
    undo: str = ""
    arguments: dict = field(default_factory=dict)


def lines(*deeds):
    """A scenario that does something at lines: (how the line begins, deed, value)."""
    return {"at": [dict(zip(("line", "do", "value"), deed, strict=False)) for deed in deeds]}


def environment(text):
    return f"[Service]\nEnvironment={text}\n"


def command(changed):
    """A drop-in with another command: `changed` is a sed script over the one that the unit has."""
    return (
        "mkdir -p $file.d; { echo '[Service]'; echo 'ExecStart='; "
        f"sed -n '/^ExecStart=/p' $file | sed -e '{changed}'; }} "
        "> $file.d/fault.conf; systemctl daemon-reload"
    )


def engine_replaced_by(release):
    """Another release in the environment, at the same path."""
    info = f"{SITE}/sglang-0.5.13.dist-info"
    pip = f"{PYTHON} -m pip install --quiet --force-reinstall --no-index --no-deps 2>/dev/null"
    return {
        "before": f"cp -a {SITE}/sglang /run/engine; cp -a {info} /run/info; {pip} /srv/wheelhouse/sglang-{release}-*.whl",
        "undo": f"rm -r {SITE}/sglang {SITE}/sglang-*; mv /run/engine {SITE}/sglang; mv /run/info {info}",
    }


# Run by Python before the engine, from its own environment or, as Debian has it, for the whole host.
MAKES_UP = 'import os; os.environ["SGLANG_SIMULATE_ACC_LEN"] = "4"'
SITECUSTOMIZE = "/etc/python3.11/sitecustomize.py"

OTHER_SERVER = {
    "before": "systemctl stop $unit; systemd-run --quiet --unit=other python3 -m http.server --bind 127.0.0.1 30000; "
    "until ss -ltn | grep -q :30000; do sleep 0.1; done",
    "undo": "systemctl stop other",
}


def ignored(name, verdict, hop, *words, **how):
    return Fault("ignored", name, verdict, hop, words, **how)


def log(name, verdict, hop, *words, **how):
    return Fault("log", name, verdict, hop, words, **how)


def process(name, *words, **how):
    return Fault("process", name, FAILED, START, words, **how)


WINDOW = "--speculative-draft-window-size"
AWAY = {"speculative_draft_window_size": None}
WAITING = "until pgrep -f 'journalctl.*--follo[w]' >/dev/null; do sleep 0.1; done; "  # the proof follows the journal
LOWERED = '{"server_args": {"speculative_accept_threshold_single": 0.5}}'
SWAPPED = '{"model_path": "/srv/models/other", "weight_version": "v2"}'
ASKED = "curl --silent --show-error --fail -X POST -H 'Content-Type: application/json' http://127.0.0.1:30000"

FAULTS = (
    # ---- what was declared did not arrive, or is not what runs ----
    ignored(
        "the process drops the window", "differs", "echoed", "window: declared 2048, found none",
        scenario={"echo": AWAY},
    ),
    ignored(
        "the worker drops the window, the echo has it", "differs", "effective", "window: declared 2048, found none",
        scenario={"run": AWAY},
    ),
    ignored(
        "the worker takes another window", "differs", "effective", "window: declared 2048, found 64",
        scenario={"run": {"speculative_draft_window_size": 64}},
    ),
    ignored(
        "a foreign drop-in has another command", "differs", "unit", "window: declared 2048, found 1024", "fault.conf",
        before=command(f"s/{WINDOW} 2048/{WINDOW} 1024/"),
    ),
    ignored(
        "an environment file wins over the unit", "differs", "unit",
        "environment: declared no environment file", "/etc/old.env",
        before="echo HF_HUB_OFFLINE=0 > /etc/old.env", drop_in="[Service]\nEnvironmentFile=/etc/old.env\n",
        undo="rm /etc/old.env",
    ),
    ignored(
        "the unit was written and not reloaded", "differs", "unit", "window: declared 2048, found 1024", "daemon-reload",
        before=f"cp $file /run/kept; sed -i 's/{WINDOW} 2048/{WINDOW} 1024/' $file; "
        "systemctl daemon-reload",
        after="cp /run/kept $file", undo="rm /run/kept",
    ),
    ignored(
        "the unit was changed by hand after the start", "differs", "unit", "declared the file as loaded", "daemon-reload",
        after="cp -p $file /run/kept; echo '# by hand' >> $file",
        undo="mv /run/kept $file",
    ),
    ignored(
        "the unit was reloaded and not restarted", "differs", "process", "window: declared 2048, found 1024",
        before=f"cp -p $file /run/kept; sed -i 's/{WINDOW} 2048/{WINDOW} 1024/' $file; "
        "systemctl daemon-reload",
        after="ready; mv /run/kept $file; systemctl daemon-reload",
    ),
    ignored(
        "--config=FILE, which the engine never reads", "differs", "unit", "window: declared 2048, found none",
        before="echo 'speculative-draft-window-size: 2048' > /etc/window.yaml; "
        + command(f"s#{WINDOW} 2048#--config=/etc/window.yaml#"),
        undo="rm /etc/window.yaml",
    ),
    ignored(
        "an abbreviated flag", "differs", "unit", "window: declared 2048, found none",
        before=command(f"s/{WINDOW}/--speculative-draft-window/"),
    ),
    ignored(
        "the flag of another release", "differs", "unit", "window: declared 2048, found none",
        before=command(f"s/{WINDOW}/--speculative-dflash-draft-window-size/"),
    ),
    ignored(
        "a capped context", "differs", "effective", "context_length: declared 4096, found 2048",
        scenario={"run": {"context_length": 2048}},
    ),
    ignored(
        "a pool too small for one request", "differs", "effective", "least_context: declared 4096, found 1024",
        scenario={"run": {"max_total_tokens": 1024}},
    ),
    ignored(
        "fewer requests at once than asked for", "warned", "effective", "max_running_requests: declared 16, found 4",
        scenario={"run": {"max_running_requests": 4}},
    ),
    ignored(
        "the drafter falls back to another backend", "differs", "effective",
        "draft_attention_backend: declared triton, found flashinfer",
        scenario={"run": {"speculative_draft_attention_backend": "flashinfer"}},
    ),
    ignored(
        "the block size of the drafter's checkpoint", "differs", "effective", "block_size: declared 8, found 16",
        scenario={"run": {"speculative_num_draft_tokens": 16}},
    ),
    ignored(
        "the algorithm is downgraded: DDTREE starts DFLASH alone", "missing", "effective",
        "spec_algorithm: declared DDTREE", "Initialized DDTree worker.", "0 of 2 replicas",
        engine=DDTREE, scenario={"run": {"speculative_algorithm": "DFLASH"}},
    ),
    ignored(
        "a smaller tree", "differs", "effective", "budget: declared 8, found 4",
        engine=DDTREE, scenario={"run": {"speculative_ddtree_budget": 4}},
    ),
    ignored(
        "a forbidden line: every reply is the greedy one", "forbidden", "effective",
        "the temperature of requests is ignored",
        scenario=lines(
            (DRAFT, "also", "DFLASH non-greedy verification is unavailable on this build/device; falling back to greedy "
             "argmax verification.")
        ),
    ),
    ignored(
        "a line that contradicts a setting", "differs", "effective", "window: declared 2048, found otherwise",
        scenario=lines(
            ("Fail to set", "also", "--speculative-draft-window-size has no effect with speculative_algorithm=DFLASH "
             "(honored by Llama EAGLE-3 and DFLASH only).")
        ),
    ),
    ignored(
        "acceptance made up: SIMULATE_ACC_LEN in the unit", "differs", "unit",
        "SGLANG_SIMULATE_ACC_LEN: declared none, found 4",
        drop_in=environment("SGLANG_SIMULATE_ACC_LEN=4"),
    ),
    ignored(
        "the same in systemd's own environment", "differs", "unit", "SGLANG_SIMULATE_ACC_LEN: declared none, found 4",
        "unset-environment",
        before="systemctl set-environment SGLANG_SIMULATE_ACC_LEN=4",
        undo="systemctl unset-environment SGLANG_SIMULATE_ACC_LEN",
    ),
    ignored(
        "the same in sitecustomize.py", "differs", "process", "SGLANG_SIMULATE_ACC_LEN: declared none, found 4",
        before=f"cp -p {SITECUSTOMIZE} /run/kept; echo '{MAKES_UP}' >> {SITECUSTOMIZE}",
        undo=f"mv /run/kept {SITECUSTOMIZE}",
    ),
    ignored(
        "the same in a plugin's start-up hook", "differs", "process", "SGLANG_SIMULATE_ACC_LEN: declared none, found 4",
        before=f"echo '{MAKES_UP}' > {SITE}/plugin.pth", undo=f"rm {SITE}/plugin.pth",
    ),
    ignored(
        "the log format is replaced", "differs", "unit", "SGLANG_LOGGING_CONFIG_PATH: declared none",
        drop_in=environment("SGLANG_LOGGING_CONFIG_PATH=/etc/logging.json"),
    ),
    ignored(
        "another user", "differs", "unit", "user: declared sglang, found operator",
        drop_in="[Service]\nUser=operator\nGroup=operator\n",
    ),
    ignored(
        "another plan: engine, model or key replaced under it", "differs", "unit", "plan: declared",
        drop_in=environment("DEPLOYED_PLAN=0123456789abcdef"),
    ),
    ignored(
        "another release at the engine's path", "differs", "served", "sglang_version: declared 0.5.13, found 0.5.12",
        **engine_replaced_by("0.5.12"),
    ),
    ignored(
        "the unit does not start at boot", "warned", "unit", "at boot: declared enabled, found disabled",
        after="systemctl disable --quiet $unit", undo="systemctl enable --quiet $unit",
    ),
    ignored(
        "weights swapped at run time", "differs", "served",
        "model: declared /srv/models/tiny-qwen3, found /srv/models/other",
        after=f"ready; {ASKED}/update_weights_from_disk -d '{SWAPPED}'",
    ),
    ignored(
        "acceptance threshold lowered at run time", "differs", "served",
        "speculative_accept_threshold_single: declared 1.0, found 0.5",
        after=f"ready; {ASKED}/set_internal_state -d '{LOWERED}'",
    ),
    ignored(
        "another process answers on the port", "differs", "served", "port: declared sglang-k26.service, found python3",
        scenario={"listen": False},
        **OTHER_SERVER,
    ),
    ignored(
        "the drafter is of no use: nothing it proposes is accepted", "differs", "served",
        "acceptance: declared at least 1.5, found 1.0",
        scenario={"answers": {"/generate": {"patch": {"meta_info": {"spec_accept_length": 1.0}}}}},
        arguments={"acceptance": {"floor": 1.5, "tokens": 64}},
    ),
    ignored(
        "a request without the key is answered", "differs", "served", "api_key: declared needed",
        before="echo 'api-key: \"sk-1\"' > /etc/key.yaml; chmod 600 /etc/key.yaml", undo="rm /etc/key.yaml",
        arguments={"key_file": "/etc/key.yaml"},
    ),
    # ---- the lines are not there, or not this start's ----
    log(
        "the line is missing", "missing", "effective", "spec_algorithm: declared DFLASH", "0 of 1",
        scenario=lines((DRAFT, "drop")),
    ),
    log(
        "the line is cut", "unreadable", "effective", "the evidence cannot be read", "cut",
        scenario=lines((DRAFT, "cut", 60)),
    ),
    log(
        "server_args= is cut", "unreadable", "echoed", "the evidence cannot be read", "cut",
        scenario=lines(("server_args=", "cut", 4000)),
    ),
    log(
        "the line is split in two", "unreadable", "effective", "the evidence cannot be read",
        scenario=lines((DRAFT, "break", 110)),
    ),
    log(
        "a blob with another window", "differs", "effective", "window: declared 2048, found 64",
        scenario={"run": {"speculative_draft_window_size": 64}, **lines((DRAFT, "blob"))},
    ),
    log(
        "journald dropped lines (rate limit)", "unreadable", "effective", "the evidence cannot be read", "Suppressed",
        # what the start before it said must not count
        drop_in="[Service]\nLogRateLimitIntervalSec=8s\nLogRateLimitBurst=5\nExecStartPre=/bin/sleep 9\n",
        scenario=lines(("Load weight end", "also", ["noise"] * 100), ("max_total_num_tokens=", "sleep", 9)),
    ),
    log(
        "the journal was rotated away in mid-start", "missing", "effective", "said by 0 of 1",
        scenario=lines(("max_total_num_tokens=", "wait", "/run/go"), ("max_total_num_tokens=", "drop")),
        after="until journalctl -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value $unit) | "
        "grep -q 'draft runner ready'; do sleep 0.1; done; "
        "journalctl --quiet --rotate; journalctl --quiet --vacuum-size=1K; touch /run/go",
        undo="rm /run/go",
    ),
    log(
        "only an older start's lines are there", FAILED, START, "is not proved", "(timeout 12 s)",
        drop_in="[Service]\nStandardOutput=null\nStandardError=null\n", arguments={"timeout": 12},
    ),
    log(
        "two starts during one wait", FAILED, START, "ended during this start",
        scenario=lines(("Load weight begin", "wait", "/run/go")),
        during=WAITING + "systemctl restart $unit; touch /run/go", undo="rm /run/go",
    ),
    log(
        "another unit says the line", "missing", "effective", "spec_algorithm: declared DFLASH",
        scenario=lines((DRAFT, "drop")), after=f"ready; echo '{AS_DECLARED}' | systemd-cat -t python",
    ),
    log(
        "a prompt quotes the line", "differs", "effective", "window: declared 2048, found none",
        scenario={"run": AWAY, **lines((DRAFT, "also", f"Receive: obj=GenerateReqInput(text='{AS_DECLARED}')"))},
    ),
    log(
        "replicas disagree", "differs", "effective", "window: declared 2048, found 64", "DP1",
        engine=DDTREE,
        scenario={"at": [{"line": DRAFT, "rank": 1, "do": "instead", "value": DRAFT_LINE.format(window=64, compact=True)}]},
    ),
    log(
        "one replica says nothing", "missing", "effective", "spec_algorithm: declared DDTREE", "1 of 2 replicas",
        engine=DDTREE, scenario={"at": [{"line": DRAFT, "rank": 1, "do": "drop"}]},
    ),
    log(
        "server_args= twice, and they differ", "unreadable", "echoed", "the evidence cannot be read", "more than once",
        scenario=lines(("server_args=", "also", "server_args=ServerArgs(model_path='/srv/models/tiny-qwen3')")),
    ),
    log(
        "journald does not answer", "cannot read", "-", "journalctl",
        after="ready; systemctl stop systemd-journald.socket systemd-journald-dev-log.socket systemd-journald-audit.socket "
        "systemd-journald 2>/dev/null",
        undo="systemctl start systemd-journald.socket systemd-journald-dev-log.socket systemd-journald",
    ),
    log(
        "the journal keeps nothing", FAILED, START, "is not proved", "(timeout 12 s)",
        before="mkdir -p /etc/systemd/journald.conf.d; printf '[Journal]\\nStorage=none\\n' "
        "> /etc/systemd/journald.conf.d/fault.conf; systemctl restart systemd-journald",
        undo="rm /etc/systemd/journald.conf.d/fault.conf; systemctl restart systemd-journald", arguments={"timeout": 12},
    ),
    log(
        "the clock jumps back, and the window is gone", "differs", "effective", "window: declared 2048, found none",
        scenario={"run": AWAY, **lines(("Load weight begin", "clock", -7200))},
    ),
    # ---- the process ends, hangs or is not what it seems ----
    process("it ends with 0", "has no main process (inactive/dead)", "exit status 0", scenario=lines((READY, "exit", 0))),
    process("it ends with 1", "Main process exited", "status=1", scenario=lines(("Using default HuggingFace", "exit", 1))),
    process(
        "an old engine in the environment: exit 2", "unrecognized arguments: --speculative-draft-window-size 2048",
        **engine_replaced_by("0.5.11"),
    ),
    process(
        "the port is in use: exit 3", "address already in use",
        **OTHER_SERVER,
    ),
    process("it is killed", "status=9/KILL", scenario=lines(("Using default HuggingFace", "kill", 9))),
    process(
        "the kernel's OOM killer", "OOM killer",
        drop_in="[Service]\nMemoryMax=120M\nMemorySwapMax=0\n", scenario=lines(("Load weight begin", "eat", 300)),
    ),
    process(
        "a worker dies while it loads", "scheduler died during initialization (exit code: -9)",
        scenario=lines(("Load weight begin", "kill", 9)),
    ),
    process(
        "a worker dies and the launcher kills itself", "crashed with exit code -9",
        scenario={"at": [{"line": "max_total_num_tokens=", "do": "kill", "value": 9, "after": 2}]}, arguments={"hold": 6},
    ),
    process(
        "GPU memory is still held", "torch.OutOfMemoryError: CUDA out of memory",
        scenario=lines(
            ("Load weight begin", "raise", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
             "GPU 0 has a total capacity of 94.97 GiB of which 1.06 GiB is free. Process 4242 has 93.90 GiB memory in use.")
        ),
    ),
    process(
        "it hangs before it is ready", "hangs: nothing has moved for", "Phase: loading weights",
        scenario=lines(("Load weight begin", "hang")), arguments={"stall": 8},
    ),
    process(
        "it is ready, and dies after 3 s", "an illegal memory access was encountered",
        scenario={
            "at": [{"line": "max_total_num_tokens=", "do": "raise", "after": 3,
                    "value": "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"}]
        },
        arguments={"hold": 8},
    ),
    Fault(
        "process", "it is ready, and generation fails", "unreadable", "served",
        ("generation: declared an answer", "answered 500"),
        scenario={"answers": {"/generate": {"status": 500}}},
    ),
    Fault(
        "process", "it is ready, and answers nothing", "unreadable", "served",
        ("generation: declared an answer", "without a text"),
        scenario={"answers": {"/generate": {"patch": {"text": ""}}}},
    ),
    Fault(
        "process", "it is ready, and /server_info fails", "unreadable", "effective", ("server_info answered 503",),
        scenario={"answers": {"/server_info": {"status": 503}}},
    ),
    process(
        "it dies of its first request", "RuntimeError: DFLASH verify failed",
        scenario={"answers": {"/generate": {"do": "raise", "value": "RuntimeError: DFLASH verify failed"}}},
    ),
    process(
        "it says so, and does not listen", "is not proved", "nobody listens on its port",
        scenario={"listen": False}, arguments={"timeout": 8},
    ),
    process(
        "the warm-up meets a proxy", "warmup error",
        drop_in=environment("http_proxy=http://127.0.0.1:9"),
    ),
    process(
        "a crash loop with slow loads", "more times", "ValueError: no such weights",
        drop_in="[Service]\nRestartSec=1\n",
        scenario={"load_seconds": 2, **lines(("Load weight end", "raise", "ValueError: no such weights"))},
        after="until test $(systemctl show -p NRestarts --value $unit) -ge 2; do sleep 0.2; done",
    ),
    Fault(
        "process", "a shell wrapper is the main process", "differs", "process", ("command: declared", "found /bin/sh"),
        before=f"mv {PYTHON} {PYTHON}.wrapped; printf '#!/bin/sh\\n{PYTHON}.wrapped \"$@\"\\n' > {PYTHON}; "
        f"chmod 755 {PYTHON}",
        undo=f"mv {PYTHON}.wrapped {PYTHON}",
    ),
    process(
        "the service's user may not read the model", "PermissionError", "/srv/models/tiny-qwen3/config.json",
        before="chmod 700 /srv/models/tiny-qwen3/config.json", undo="chmod 644 /srv/models/tiny-qwen3/config.json",
    ),
    process(
        "the model is gone", "Repo id must be in the form", "/srv/models/tiny-qwen3",
        before="mv /srv/models/tiny-qwen3 /srv/models/moved", undo="mv /srv/models/moved /srv/models/tiny-qwen3",
    ),
    process(
        "the interpreter is gone", "Failed at step EXEC spawning",
        before=f"mv {PYTHON} {PYTHON}.moved", undo=f"mv {PYTHON}.moved {PYTHON}",
    ),
    process("it was stopped", "has no main process (inactive/dead)", after="systemctl stop $unit"),
    Fault(
        "control", "the unit is deleted", "missing", "unit", ("unit: declared loaded, found not-found",),
        after="systemctl stop $unit; mv $file /run/kept; systemctl daemon-reload",
        undo="mv /run/kept $file",
    ),
    Fault(
        "control", "another unit file hides ours", "differs", "unit", ("unit: declared /etc/systemd/system",),
        after="sed 's/^Description=.*/Description=other/' $file > /run/systemd/transient.tmp; "
        "mkdir -p /etc/systemd/system.control; mv /run/systemd/transient.tmp /etc/systemd/system.control/$unit; "
        "systemctl daemon-reload",
        undo="rm /etc/systemd/system.control/$unit; rmdir /etc/systemd/system.control",
    ),
)  # fmt: skip

# Starts that look odd and are honest: nobody may be woken for one of them.
HONEST = (
    Fault("honest", "a blob: colour and a carriage return", "proved", "-", (), scenario=lines((DRAFT, "blob"))),
    Fault(
        "honest", "the clock jumps back by two hours", "proved", "-", (),
        scenario=lines(("Load weight begin", "clock", -7200)),
    ),
    Fault(
        "honest", "a slow load", "proved", "-", (), scenario={"load_seconds": 12}, arguments={"stall": 6},
    ),
    Fault(
        "honest", "a volatile journal", "proved", "-", (),
        before="mkdir -p /etc/systemd/journald.conf.d; printf '[Journal]\\nStorage=volatile\\n' "
        "> /etc/systemd/journald.conf.d/fault.conf; systemctl restart systemd-journald",
        undo="rm /etc/systemd/journald.conf.d/fault.conf; systemctl restart systemd-journald; journalctl --flush",
    ),
    Fault(
        "honest", "a harmless traceback", "proved", "-", (),
        scenario=lines(("INFO:     Application", "also", "post-warmup freeze_gc failed"), ("INFO:     Uvicorn", "bare", [
            "Traceback (most recent call last):",
            "requests.exceptions.ConnectionError: Max retries exceeded with url: /freeze_gc",
        ])),
    ),
    Fault("honest", "a drop-in that changes nothing passes", "warned", "unit", (), drop_in="[Service]\nNice=5\n"),
    Fault(
        "honest", "a rotated journal, and the evidence kept", "proved", "-", (),
        arguments={"state_dir": "/run/kept"}, before="mkdir -p /run/kept",
        aged="journalctl --quiet --rotate; journalctl --quiet --vacuum-size=1K; ! started | grep --quiet server_args=",
        undo="rm -r /run/kept",
    ),
    Fault(
        "honest", "another unit's bad line", "proved", "-", (),
        after="ready; echo 'draft_window_size=None' | systemd-cat -t python",
    ),
    Fault(
        "honest", "sshd is gone for a while during the load", "proved", "-", (),
        scenario=lines(("Load weight begin", "wait", "/run/go")),
        during=WAITING + "sessions=$(pgrep -P $(systemctl show -p MainPID --value ssh)); systemctl stop ssh; "
        "kill -KILL $sessions; systemctl start ssh; touch /run/go",
        undo="rm /run/go",
    ),
    Fault(
        "honest", "a replica that is late", "proved", "-", (), engine=DDTREE,
        scenario={"at": [{"line": "Load weight begin", "rank": 1, "do": "sleep", "value": 3}]},
    ),
)  # fmt: skip
