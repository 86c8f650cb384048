"""What was declared against what each hop says: verdicts, the first broken one as a sentence, the table.

Pure: all that was read from the host comes in as `Evidence`. Only `match` passes, at the strongest hop that the contract
knows; what was not said, or could not be read, fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from . import redact
from .contract import FORBIDDEN_VARIABLES
from .plan import DIGEST_VARIABLE, same
from .settings import shown

HOPS = ("unit", "process", "echoed", "effective", "served")
_FORBIDDEN_VARIABLES = tuple(variable.name for variable in FORBIDDEN_VARIABLES)
MATCH, DIFFERS, MISSING, UNREADABLE, UNSTATED = "match", "differs", "missing", "unreadable", "unstated"
FORBIDDEN = "forbidden"  # a line that this engine must not say


# Variables that change what an engine does; the rest (LANG, INVOCATION_ID, CACHE_DIRECTORY …) every service has.
MATTERS = re.compile(
    r"(?:SGLANG|SGL|LD|CUDA|NVIDIA|NCCL|TORCH|PYTORCH|TRITON|HF|TRANSFORMERS|FLASHINFER|OMP|MKL|VLLM)_|PYTHON|TORCHINDUCTOR"
)


@dataclass(frozen=True)
class Said:
    """One thing the engine said: fields of a line or of a JSON answer, who spoke, where it was read.

    `text` is the line, for people. `problem` says why it could not be read; its fields are unknown then, never defaults.
    """

    fields: dict
    where: str
    speaker: dict = field(default_factory=dict)
    problem: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Evidence:
    """What one start of one unit shows. What was not read is None; what was read and empty is empty."""

    unit: object = None  # systemd_unit.Unit as systemd has loaded it
    unit_path: str = ""  # where our unit file lies
    manager_environ: dict | None = None  # what systemd hands to all units
    argv: tuple | None = None  # of the main process
    environ: dict | None = None
    environs: dict = field(default_factory=dict)  # process id → environment, of all processes of the unit
    echo: Said | None = None  # server_args= of this start
    lines: dict = field(default_factory=dict)  # head → [Said]
    alarms: dict = field(default_factory=dict)  # text that must not be said → Said, the first line with it
    gap: Said | None = None  # where something was lost that could be an alarm; fields: {"before_ready": bool}
    server_info: Said | None = None
    model_info: Said | None = None
    listener: Said | None = None  # fields: {"ours": bool, "owner": "python (pid 7)"}
    keyless: Said | None = None  # what a request without the API key is answered
    generation: Said | None = None  # fields: {"text": …, "meta_info": …}
    acceptance: Said | None = None  # the same of a longer probe, and {"floor": tokens per step}


@dataclass(frozen=True)
class Verdict:
    setting: str
    hop: str
    verdict: str
    declared: object
    found: object
    where: str
    severity: str = "critical"
    says: str = ""  # the words that decided it: "draft_window_size=2048", or the whole line where it broke
    next: str = ""

    @property
    def passes(self):
        return self.verdict in (MATCH, UNSTATED) or self.severity == "warning"


def judge(plan, evidence):
    """All verdicts, in the order of the hops."""
    return [
        *judge_unit(plan, evidence),
        *judge_process(plan, evidence),
        *judge_echoed(plan, evidence),
        *judge_effective(plan, evidence),
        *judge_served(plan, evidence),
    ]


def contradicted(plan, evidence):
    """The verdicts that no later line can mend: the engine has already said something else."""
    said = [*judge_echoed(plan, evidence), *judge_effective(plan, evidence)]
    return [verdict for verdict in said if verdict.verdict in (DIFFERS, FORBIDDEN) and not verdict.passes]


def judge_unit(plan, evidence):
    """Does systemd hold what the plan says? The loaded unit, with all drop-ins, not the file."""
    unit = evidence.unit
    where = f"systemd's loaded {plan.unit}"
    redeploy = "ansible-playbook deploy.yml"
    if unit is None or unit.load_state != "loaded":
        found = unit.load_state if unit else "nothing"
        return [Verdict("unit", "unit", MISSING, "loaded", found, where, next=redeploy)]
    where += f" ({', '.join([unit.fragment_path, *unit.drop_in_paths])})"
    if evidence.unit_path and unit.fragment_path != evidence.unit_path:
        mend = f"remove {unit.fragment_path}, it hides {evidence.unit_path}; then {redeploy}"
        return [Verdict("unit", "unit", DIFFERS, evidence.unit_path, unit.fragment_path, where, next=mend)]
    if unit.drop_in_paths:
        drop_ins = ", ".join(unit.drop_in_paths)
        mend = f"if it comes from a drop-in, declare it in the inventory and remove {drop_ins}; then {redeploy}"
    elif unit.need_daemon_reload:
        mend = f"systemctl daemon-reload on the host, or {redeploy}"
    else:
        mend = redeploy
    broken = [
        *_compare_start(plan, "unit", unit.argv, unit.environment, where, mend),
        *_foreign_environment(plan, evidence, where),
    ]
    if plan.user and unit.user != plan.user:
        broken.append(Verdict("user", "unit", DIFFERS, plan.user, unit.user or "root", where, next=mend))
    if not broken and unit.need_daemon_reload:
        broken = [Verdict("unit", "unit", DIFFERS, "the file as loaded", "a file changed since", where, next=mend)]
    if broken:
        return broken
    return [*_doubts(plan, unit, where), Verdict("unit", "unit", MATCH, plan.digest, plan.digest, where)]


def _doubts(plan, unit, where):
    """What is no difference from the plan, and could become one."""
    if unit.unit_file_state not in ("enabled", "enabled-runtime"):
        state, again = unit.unit_file_state or "nothing", f"systemctl enable {plan.unit} on the host"
        yield Verdict("at boot", "unit", DIFFERS, "enabled", state, where, severity="warning", next=again)
    for path in unit.drop_in_paths:
        # It can change more than a command and its environment: BindPaths=, WorkingDirectory=, ExecStartPre=, limits.
        yield Verdict("drop-in", "unit", DIFFERS, "none", path, where, severity="warning", next=f"systemctl cat {plan.unit}")


def _foreign_environment(plan, evidence, where):
    """What no unit of ours brings into the environment, and no restart would take away."""
    for path in evidence.unit.environment_files:
        mend = f"declare its content in sglang_service_environment and take {path} out of the unit's drop-in"
        yield Verdict("environment", "unit", DIFFERS, "no environment file", path, where, next=mend)
    for name, value in sorted(redact.mapping(evidence.manager_environ or {}).items()):
        if MATTERS.match(name) and name not in plan.environment:
            mend = f"systemctl unset-environment {name} on the host, or declare it in sglang_service_environment"
            yield Verdict(name, "unit", DIFFERS, "none", value, "systemd's own environment, set for all units", next=mend)


def judge_process(plan, evidence):
    """Was this process started with it? An environment file or an old process wins over the best unit."""
    if evidence.argv is None or evidence.environ is None:
        return [
            Verdict("process", "process", MISSING, "running", "no process", plan.unit, next=f"systemctl status {plan.unit}")
        ]
    where = f"/proc/{evidence.unit.main_pid}/cmdline and environ"
    mend = f"ansible-playbook deploy.yml (it restarts {plan.unit})"
    broken = [
        *_compare_start(plan, "process", evidence.argv, evidence.environ, where, mend),
        *_environment_from_within(plan, evidence),
    ]
    return broken or [Verdict("process", "process", MATCH, plan.digest, plan.digest, where)]


def _environment_from_within(plan, evidence):
    """What a start-up hook or a plugin of the engine's Python set: its workers are started with it."""
    mend = "remove what sets it, a *.pth file, sitecustomize.py or a plugin of the engine's environment; then restart"
    for pid, environment in sorted(evidence.environs.items()):
        for name, value in redact.mapping(environment).items():
            if name.startswith(_FORBIDDEN_VARIABLES) and name not in {**plan.environment, **evidence.environ}:
                yield Verdict(name, "process", DIFFERS, "none", value, f"/proc/{pid}/environ", next=mend)
                return


def _compare_start(plan, hop, argv, environment, where, mend):
    """Verdicts for what differs between the plan and a command line with its environment; [] if nothing does."""
    return [
        Verdict(setting, hop, DIFFERS, declared, seen, where, next=mend)
        for setting, declared, seen in start_differences(plan, argv, environment)
    ]


def start_differences(plan, argv, environment):
    """[(setting or name, declared, found)] of a command line and environment against the plan. [] means: carries it."""
    differences = []
    if tuple(argv) != plan.argv:
        if tuple(argv[1:3]) == plan.argv[1:3] and argv[0] != plan.argv[0]:  # as of another release
            differences.append(("engine", plan.argv[0], argv[0]))
        for expectation in plan.expectations:
            if expectation.carrier.startswith("--"):
                found = option_value(argv, expectation.carrier)
                if found != option_value(plan.argv, expectation.carrier):
                    differences.append((expectation.setting, shown(expectation.value), shown(found)))
        if not differences:
            pairs = enumerate(zip(plan.argv, argv))
            same_until = next((n for n, (a, b) in pairs if a != b), min(len(plan.argv), len(argv)))
            rest = [" ".join(redact.argv(arguments)[same_until:]) or "nothing" for arguments in (plan.argv, argv)]
            differences.append(("command", *rest))
    carried = {expectation.carrier: expectation.setting for expectation in plan.expectations}
    wanted, seen = redact.mapping(plan.environment), redact.mapping(environment)
    for name, value in plan.environment.items():
        if name != DIGEST_VARIABLE and environment.get(name) != value:
            differences.append((carried.get(name, name), wanted[name], shown(seen.get(name))))
    for name in sorted(environment):
        if MATTERS.match(name) and name not in plan.environment:
            differences.append((name, "none", seen[name]))
    if not differences and environment.get(DIGEST_VARIABLE) != plan.digest:
        # Argv and environment agree: what else a plan covers was another when it was started.
        found = shown(environment.get(DIGEST_VARIABLE))
        differences.append(("plan", plan.digest, f"{found} (engine, model files, key file or unit were others)"))
    return differences


def option_value(argv, option):
    """The value of an option as argparse would bind it: the last one wins; True without a value; None if absent."""
    value = None
    for position, argument in enumerate(argv):
        if argument == option:
            after = [*argv, "--"][position + 1]
            value = True if after.startswith("--") else after
        elif argument.startswith(option + "="):
            value = argument[len(option) + 1 :]
    return value


def judge_echoed(plan, evidence):
    """What SGLang made of it: `server_args=` of this start, else the top level of /server_info."""
    said = evidence.echo or evidence.server_info
    return [_echo_verdict(expectation, said) for expectation in plan.expectations]


def _echo_verdict(expectation, said):
    key = expectation.echoed_as

    def verdict(kind, found, where, says=""):
        return Verdict(expectation.setting, "echoed", kind, expectation.value, found, where, expectation.severity, says)

    if key is None:
        return verdict(UNSTATED, None, f"{expectation.carrier or 'what no option carries'} is not echoed")
    if said is None:
        return verdict(MISSING, None, "no server_args= in this start")
    if said.problem:
        return verdict(UNREADABLE, None, f"{said.where}: {said.problem}")
    if key not in said.fields:
        return verdict(MISSING, None, f"{said.where}: no readable field {key}")
    found = said.fields[key]
    return verdict(MATCH if same(found, expectation.echoed) else DIFFERS, found, said.where, f"{key}={found!r}")


def judge_effective(plan, evidence):
    """What runs: lines of the workers, and values that the scheduler granted."""
    alarms = evidence.alarms
    return [
        *(
            Verdict(e.setting, "effective", DIFFERS, e.value, "otherwise", alarms[t].where, e.severity, alarms[t].text)
            for e in plan.expectations
            for t in e.contradict
            if t in alarms
        ),
        *(
            _witness_verdict(plan, expectation, witness, evidence)
            for expectation in plan.expectations
            for witness in expectation.witnesses
            if witness["hop"] == "effective"
        ),
        *(
            Verdict("forbidden line", "effective", FORBIDDEN, None, f["reason"], said.where, f["severity"], said.text)
            for f in plan.forbidden
            for said in [alarms.get(f["text"])]
            if said
        ),
        *_unheard(plan, evidence),
    ]


def _unheard(plan, evidence):
    """Was something lost that could be a forbidden line? After the ready line, or of a start that was proved, it warns."""
    severities = {forbidden["severity"] for forbidden in plan.forbidden}
    if evidence.gap is None or not severities:
        return
    severity = "critical" if evidence.gap.fields["before_ready"] and "critical" in severities else "warning"
    where = f"{evidence.gap.where}: {evidence.gap.problem}"
    mend = f"systemctl cat {plan.unit} on the host: LogRateLimitIntervalSec=0 must win; then systemctl restart {plan.unit}"
    yield Verdict("forbidden line", "effective", UNREADABLE, "none", None, where, severity, next=mend)


def judge_served(plan, evidence):
    """Does this engine answer behind the port, and does it generate?"""
    verdicts = []
    address = f"{plan.host}:{plan.port}"
    if evidence.listener is None:
        verdicts.append(Verdict("port", "served", MISSING, f"{plan.unit} listens", "nobody listens", address))
    else:
        verdict = MATCH if evidence.listener.fields.get("ours") else DIFFERS
        found = evidence.listener.fields.get("owner")
        mend = f"stop {found}, then ansible-playbook deploy.yml" if verdict == DIFFERS else ""
        verdicts.append(Verdict("port", "served", verdict, plan.unit, found, evidence.listener.where, next=mend))
    verdicts += [
        _witness_verdict(plan, expectation, witness, evidence)
        for expectation in plan.expectations
        for witness in expectation.witnesses
        if witness["hop"] == "served"
    ]
    verdicts += _other_release(plan, evidence)
    verdicts += _changed(plan, evidence)
    if evidence.keyless is not None:
        said = evidence.keyless
        refused = " answered 401 " in (said.problem or "")
        found = said.problem or "an answer without a key"
        verdicts.append(Verdict("api_key", "served", MATCH if refused else DIFFERS, "needed", found, said.where))
    if evidence.generation is not None:
        said = evidence.generation
        verdict = UNREADABLE if said.problem else MATCH
        found = said.problem or ascii(said.fields["text"])
        accepted = _accepted(said)
        says = "" if accepted is None else f"{accepted:.2f} tokens accepted per step"
        where = f"{said.where}: {said.problem}" if said.problem else said.where
        verdicts.append(Verdict("generation", "served", verdict, "an answer", found, where, says=says))
    if evidence.acceptance is not None:
        verdicts.append(_acceptance_verdict(plan, evidence.acceptance))
    return verdicts


def _other_release(plan, evidence):
    """An engine that was replaced at its path echoes all that it was told."""
    info = evidence.server_info
    found = info.fields.get("version") if info else None
    if found not in (None, plan.release):
        mend = "ansible-playbook deploy.yml (it installs the declared release, and restarts)"
        yield Verdict("sglang_version", "served", DIFFERS, plan.release, found, info.where, next=mend)


# What the API can change while the engine runs (0.5.11 … 0.5.23: /update_weights_from_disk, /set_internal_state).
THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
CHANGEABLE = ("weight_version", *THRESHOLDS)


def _changed(plan, evidence):
    """What the engine answers otherwise than it said when it started: somebody changed it through the API."""
    settings = {e.echoed_as: e for e in plan.expectations if e.echoed_as}
    asked = [(evidence.server_info, settings)] if evidence.echo else []
    asked += [(evidence.model_info, ["weight_version"])]
    asked += [(state, THRESHOLDS) for state in _replicas(evidence.server_info)]
    started = (evidence.echo or evidence.server_info or Said({}, "")).fields
    mend = f"it was changed through the API: systemctl restart {plan.unit} on the host; then ansible-playbook deploy.yml"
    for said, keys in asked:
        for key in keys:
            if said is None or key not in started or key not in said.fields or same(said.fields[key], started[key]):
                continue
            name, severity = (settings[key].setting, settings[key].severity) if key in settings else (key, "critical")
            found = said.fields[key]
            says = f"{key}={found!r}, at the start {started[key]!r}"
            yield Verdict(name, "served", DIFFERS, started[key], found, said.where, severity, says, mend)


def _accepted(said):
    """Tokens per verification step of a generation, None where the engine does not speculate or does not say."""
    meta = said.fields.get("meta_info")
    accepted = meta.get("spec_accept_length") if isinstance(meta, dict) else None
    return accepted if isinstance(accepted, (int, float)) else None


def _acceptance_verdict(plan, said):
    floor, accepted = said.fields["floor"], _accepted(said)

    def verdict(kind, found, where=said.where, says=""):
        return Verdict("acceptance", "served", kind, f"at least {floor}", found, where, says=says)

    if said.problem:
        return verdict(UNREADABLE, None, f"{said.where}: {said.problem}")
    if accepted is None:
        return verdict(MISSING, None, f"{said.where}: no spec_accept_length in meta_info")
    says = f"spec_accept_length over {said.fields['meta_info'].get('completion_tokens')} tokens"
    return verdict(MATCH if accepted >= floor else DIFFERS, round(accepted, 2), says=says)


def _witness_verdict(plan, expectation, witness, evidence):
    wanted = witness["value"]
    statements = {
        "line": lambda: evidence.lines.get(witness.get("head"), []),
        "granted": lambda: _replicas(evidence.server_info),
        "served": lambda: [evidence.model_info] if evidence.model_info else [],
    }[witness["source"]]()
    name = witness.get("head") or f"{witness['source']} {witness['field']}"
    hop = witness["hop"]

    def verdict(kind, found, where, says=""):
        return Verdict(expectation.setting, hop, kind, wanted, found, where, expectation.severity, says)

    broken = next((s for s in statements if s.problem), None)
    if broken:
        return verdict(UNREADABLE, None, f"{broken.where}: {broken.problem}", broken.text)
    if witness["relation"] != "present":
        for said in statements:
            found = _field(said.fields, witness["field"])
            if found is ABSENT:
                return verdict(MISSING, None, f"{said.where}: no field {witness['field']}", said.text)
            if not _related(found, witness["relation"], wanted):
                return verdict(DIFFERS, found, said.where, said.text or f"{witness['field']}={found!r}")
    speakers = {said.speaker.get("DP") for said in statements}
    needed = 1 if witness["source"] == "served" else plan.replicas
    if len(speakers) < needed:
        return verdict(MISSING, None, f"'{name}' said by {len(speakers)} of {needed} replicas in this start")
    said = statements[0]
    if witness["relation"] == "present":
        return verdict(MATCH, expectation.value, said.where, name)
    found = _field(said.fields, witness["field"])
    return verdict(MATCH, found, said.where, f"{witness['field']}={found!r}")


def _replicas(server_info):
    """internal_states[] of /server_info, one per replica."""
    if server_info is None:
        return []
    if server_info.problem:
        return [server_info]
    states = server_info.fields.get("internal_states") or []
    return [
        Said(state, f"internal_states[{index}] of {server_info.where}", {"DP": index}) for index, state in enumerate(states)
    ]


ABSENT = object()


def _field(fields, name):
    """A field by its name, or by its dotted path: "memory_usage.token_capacity". ABSENT if it is not there."""
    for key in name.split("."):
        fields = fields.get(key, ABSENT) if isinstance(fields, dict) else ABSENT
    return fields


def _related(found, relation, wanted):
    if relation == "eq":
        return same(found, wanted)
    if relation == "in":
        return any(same(found, one) for one in wanted)
    numbers = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in (found, wanted)]
    return all(numbers) and (found <= wanted if relation == "le" else found >= wanted)


def first_broken(verdicts):
    """The verdict to name: the first that does not pass, in the order of the hops. None if all pass."""
    return min((v for v in verdicts if not v.passes), key=lambda v: HOPS.index(v.hop), default=None)


def sentence(plan, broken, verdicts):
    """The first broken verdict as a tired person needs it: what, where, what the hops before it said, what to do."""
    declared, found = apart(shown(broken.declared), shown(broken.found), limit=400)
    state = {
        DIFFERS: f"found {found}",
        MISSING: "nothing says so" if broken.found is None else f"found {found}",
        UNREADABLE: "the evidence cannot be read",
    }.get(broken.verdict)
    if broken.verdict == FORBIDDEN:
        opening = f"the engine says what it must not say: {broken.found}"
    else:
        opening = f"{broken.setting}: declared {declared}, {state}"
    lines = [
        f"{opening} ({broken.hop} hop, {broken.verdict}).",
        f"  read in  {broken.where}" + (f': "{_brief(broken.says)}"' if broken.says else ""),
    ]
    before = [hop for hop in HOPS[: HOPS.index(broken.hop)] if any(v.hop == hop for v in verdicts)]
    if before:
        lines.append(f"  but      {', '.join(before)} carried it")
    lines.append(f"  next     {broken.next or _next(plan, broken)}")
    return "\n".join(lines)


def _next(plan, broken):
    if broken.hop in ("echoed", "effective"):
        return (
            f"journalctl -u {plan.unit} -b on the host: look for a warning about {broken.setting}; "
            "then declare what this engine can do, or another sglang_version"
        )
    return f"journalctl -u {plan.unit} -b on the host; then ansible-playbook deploy.yml"


def table(plan, verdicts, *, title, notes=(), passed):
    """What the callback prints at the end: a row for each setting, then for what else did not hold or was asked."""
    settings = {expectation.setting for expectation in plan.expectations}
    rows = [_row(e, [v for v in verdicts if v.setting == e.setting]) for e in plan.expectations]
    for v in verdicts:
        if v.setting not in settings and (v.hop == "served" or v.verdict != MATCH):
            read_in = _brief(f"{v.where} {v.says}".strip())
            declared, found = apart(shown(v.declared), shown(v.found))
            rows.append([v.setting, declared, "-", found, v.verdict + _star(v), read_in])
    columns = ["setting", "declared", "echoed", "effective", "verdict", "read in"]
    return {"key": plan.unit, "title": title, "columns": columns, "rows": rows, "notes": list(notes), "passed": passed}


def _row(expectation, verdicts):
    by_hop = {hop: [v for v in verdicts if v.hop == hop] for hop in HOPS}
    worst = next((v for v in verdicts if v.verdict not in (MATCH, UNSTATED)), None)
    strongest = next((by_hop[hop] for hop in reversed(HOPS) if by_hop[hop]), [])
    decisive = [worst] if worst else strongest
    says = ", ".join(v.says for v in decisive if v.says)
    return [
        expectation.setting,
        shown(expectation.value),
        _cell(by_hop["echoed"], expectation.value),
        _cell(by_hop["effective"] or by_hop["served"], expectation.value),
        (decisive[0].verdict if decisive else "not asked") + (_star(worst) if worst else ""),
        _brief(f"{decisive[0].where} {says}".strip()) if decisive else "",
    ]


def _star(verdict):
    return "*" if verdict.passes and verdict.verdict not in (MATCH, UNSTATED) else ""


def _cell(verdicts, declared):
    if not verdicts:
        return "-"
    if verdicts[0].verdict in (MISSING, UNREADABLE, UNSTATED):
        return verdicts[0].verdict
    return apart(shown(declared), shown(verdicts[0].found))[1]


def apart(declared, found, limit=160):
    """Both texts, each cut to `limit` characters around their first difference; of texts that are the same, the ends."""
    at = next((n for n, (a, b) in enumerate(zip(declared, found)) if a != b), min(len(declared), len(found)))
    if declared == found:
        at = len(found)
    return tuple(_around(text, at, limit) for text in (declared, found))


def _around(text, at, limit):
    """At most `limit` characters of a text, a third of them before position `at`."""
    if len(text) <= limit:
        return text
    begin = min(max(at - limit // 3, 0), len(text) - limit)
    end = begin + limit
    head, tail = "… " * (begin > 0), " …" * (end < len(text))
    return head + text[begin + len(head) : end - len(tail)] + tail


def _brief(text, limit=160):
    return _around(text, len(text), limit)
