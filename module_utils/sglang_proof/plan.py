"""The plan: the contract applied to one service on one host. Unit and verification both use it, so they cannot disagree.

`declared()` needs no host: names, types and bounds. `make()` adds the installed engine (its options and log lines), the
models' config.json and a digest of all that makes a restart necessary. `contradictions()` holds what the engine's own
resolver answered against the plan.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from dataclasses import asdict, dataclass, field

from . import redact, releases
from .contract import BUILT_IN, FORBIDDEN_VARIABLES, Contract, Environment, Flag, Line
from .expressions import Unknown, evaluate
from .settings import OFF, UNSET, BadValue, Integer, Switch, is_unset, read, shown

VERSION = 1  # of the plan's form; a kept plan of another version is not read as this one
DIGEST_VARIABLE = "DEPLOYED_PLAN"  # the digest in the engine's environment: which plan this process was started with


class Refused(Exception):
    """The declaration cannot run. `problems` is a list of sentences, each with what to do next."""

    def __init__(self, problems):
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Expectation:
    """What one setting's evidence must say. `value` and the witnesses' `value` are plain JSON; None is `none`.

    carrier: the option or variable; "" where nothing is told to the engine and only its witnesses speak.
    """

    setting: str
    value: object
    severity: str
    carrier: str
    echoed_as: str | None
    echoed: object = None
    witnesses: tuple = ()  # dicts: hop, source, head | field, relation, value
    contradict: tuple = ()  # texts; a line of the start that has one says that the setting is not in effect


@dataclass(frozen=True)
class Plan:
    """All of it is plain JSON data, so it travels as a module argument and is kept on the host as it is."""

    instance: str
    release: str
    family: str
    argv: tuple
    environment: dict
    expectations: tuple
    replicas: int
    host: str
    port: int
    model: str
    digest: str
    notes: tuple = ()
    user: str = ""  # that the process runs as
    forbidden: tuple = ()  # dicts: text, severity, reason; no line of the start may have the text
    benign: tuple = ()  # texts; a line that has one is no alarm, whatever else it says
    version: int = VERSION

    @property
    def unit(self):
        return f"sglang-{self.instance}.service"

    def to_dict(self):
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_dict(cls, data):
        """Raises ValueError if the data is no plan of this version."""
        if not isinstance(data, dict) or data.get("version") != VERSION:
            found = data.get("version") if isinstance(data, dict) else type(data).__name__
            raise ValueError(
                f"this is no plan of version {VERSION} (found {found!r}): make it with sglang_plan of this project"
            )
        lists = {name: tuple(data.get(name, ())) for name in ("argv", "notes", "forbidden", "benign")}
        expectations = (
            Expectation(**{k: tuple(v) if isinstance(v, list) else v for k, v in e.items()}) for e in data["expectations"]
        )
        return cls(**{**data, **lists, "expectations": tuple(expectations)})


@dataclass(frozen=True)
class Declared:
    """Settings as read: values and OFF; what is `unset` is left out. `names` is what expressions may speak of."""

    values: dict
    algorithm: str | None
    names: dict = field(default_factory=dict)
    contract: Contract = BUILT_IN


def refusal(instance, problems):
    """What is said of an instance whose declaration has these problems, sentences."""
    return f"sglang-{instance}: the declaration cannot run. No service was touched.\n{indented(problems)}"


def indented(problems):
    """A line for each."""
    return "\n".join(f"  {problem}" for problem in problems)


def declared(raw, family=None, configs=None, release=None, contract=BUILT_IN):
    """The settings of one instance, checked as far as it is known here. Raises Refused with all problems at once.

    raw: name → value from `-e`, YAML or JSON. family: of the engine; None before it is installed.
    configs: "target" and "drafter" → content of their config.json, where they could be read.
    """
    algorithm = _algorithm(raw)
    _insist_on_algorithm(raw.get("spec_algorithm"), contract)
    problems, out_of_place = [], []
    values = {}
    for name in raw:
        if name not in contract.names():
            nearest = difflib.get_close_matches(str(name), contract.names())
            hint = f"did you mean {nearest[0]}?" if nearest else "known are " + ", ".join(contract.names())
            problems.append(f"{name}: no setting has this name; {hint}")
            continue
        entry = contract.find(name, algorithm, family)
        if entry is None:
            if not is_unset(raw[name]):
                out_of_place.append(_out_of_place(name, raw[name], algorithm, release, contract))
            continue
        try:
            value = read(entry.type, raw[name])
        except BadValue as wanted:
            problems.append(f"{name}: declared {_brief(raw[name])}, but it must be {wanted}{_or_off(entry)}")
            continue
        if value is OFF and not entry.can_be_off:
            problems.append(f"{name}: declared none, but it cannot be off; leave it undeclared, or say unset")
        elif value is not UNSET:
            values[name] = value
    problems += out_of_place if algorithm or "model" in raw else [_no_model(values)] if out_of_place else []
    entries = {name: contract.find(name, algorithm, family) for name in contract.names()}
    names = _names(values, entries, configs or {})
    for name, value in values.items():
        problems += _impossible(entries[name], value, names)
    if problems:
        raise Refused(problems)
    return Declared(values, algorithm, names, contract)


def _algorithm(raw):
    """The declared algorithm, needed before the other settings can be read; None without one."""
    value = raw.get("spec_algorithm")
    text = value.upper() if isinstance(value, str) else None
    return None if text in (None, "NONE", "NULL", "UNSET") else text


def _insist_on_algorithm(raw, contract):
    """Raises Refused for an algorithm that nobody knows: most of the other settings seem wrong then, so it is said alone."""
    known = {}
    for entry in contract.elsewhere("spec_algorithm"):
        try:
            read(entry.type, raw)
            return
        except BadValue:
            known.update(dict.fromkeys(entry.type.words))
    nearest = next(iter(difflib.get_close_matches(str(raw).upper(), known)), None)
    hint = f"; did you mean {nearest}?" if nearest else ""
    raise Refused([f"spec_algorithm: declared {_brief(raw)}, but it must be one of {', '.join(known)}, or none{hint}"])


def _no_model(values):
    known = ", ".join(values) or "nothing"
    return (
        f"model: not declared (declared is {known}). A host's or group's own sglang_service_settings hides all of the "
        "others'; declare a single setting there as sglang_service_<setting>"
    )


def _brief(raw):
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}… ({len(text)} characters)"


def _or_off(entry):
    return ", or none" if entry.can_be_off and not isinstance(entry.type, Switch) else ""


def _out_of_place(name, raw, algorithm, release, contract):
    entries = contract.elsewhere(name)
    engine = f"SGLang {release}" if release else "SGLang"
    under = algorithm or "plain decoding"
    algorithms = sorted({a for entry in entries for a in entry.algorithms})
    families = sorted({entry.family for entry in entries if entry.family})
    build = f" (a {' or '.join(families)} build)" if all(e.family for e in entries) else ""
    return (
        f"{name}: declared {_brief(raw)}, but under {under} nothing in {engine} carries or honours it; "
        f"it is a setting of {', '.join(algorithms)}{build}; remove it, or declare spec_algorithm accordingly"
    )


def _names(values, entries, configs):
    names = {f"{model}.{key}": value for model, config in configs.items() for key, value in flat(config).items()}
    for name, value in values.items():
        names[name] = None if value is OFF else value
    for name, entry in entries.items():
        if name in names or entry is None or entry.default is None:
            continue
        # Without a config.json, or the key in it, the value stays unknown here; the engine's own resolver will know.
        value = _known(entry.default, names)
        if value is not None:
            names[name] = value
    return names


def flat(config):
    """A config.json with the keys of its text model (Kimi K2.x) and of its DFlash part on top."""
    return {**config, **(config.get("text_config") or {}), **(config.get("dflash_config") or {})}


def _impossible(entry, value, names):
    """Sentences: what the engine would refuse, rewrite or ignore."""
    name, known = entry.name, {**names, "declared": None if value is OFF else value}
    if value is not OFF:
        yield from (
            f"{name}: declared {shown(value)}, which needs {other}; declare it, or remove {name}"
            for other in entry.needs
            if names.get(other) is None
        )
    if isinstance(entry.type, Integer) and value is not OFF:
        least, most = _known(entry.type.minimum, names), _known(entry.type.maximum, names)
        if least is not None and value < least:
            yield f"{name}: declared {value}, but it must be at least {_limit(least, entry.type.minimum)}"
        if most is not None and value > most:
            yield f"{name}: declared {value}, but it must be at most {_limit(most, entry.type.maximum)}"
    for refusal in entry.refuse if value is not OFF else ():
        if _known(refusal.when, known):
            yield f"{name}: declared {shown(value)}, but {_said(refusal.because, known)}; change or remove it"


def _said(text, names):
    """A text of the contract for people: {names} in braces become their values."""
    return re.sub(r"\{([\w.]+)\}", lambda match: shown(names.get(match[1])), text)


def _limit(value, expression):
    return str(value) if expression == str(value) else f"{value} ({expression})"


def _known(expression, names):
    try:
        return evaluate(expression, names) if expression is not None else None
    except Unknown:
        return None


def collisions(instance, beside):
    """Sentences: what an instance (name, Declared) takes of its host that one of those beside it takes too."""
    name, declaration = instance
    for other, its in beside:
        for setting, claim, value in _claims(declaration):
            for same_setting, same_claim, its_value in _claims(its):
                both = _both(value, its_value) if (setting, claim) == (same_setting, same_claim) else None
                places = {names.get(claim.within) for names in (declaration.names, its.names)}
                if both and (len(places) == 1 or places & {"0.0.0.0", "::"}):
                    yield f"{setting}: {name} and {other} of one host both take {claim.what} {both}; each needs its own"


def _claims(declaration):
    for name in declaration.contract.names():
        entry = declaration.contract.find(name, declaration.algorithm, None)
        if entry and entry.claims and _holds(entry.claims.when, declaration.names):
            yield name, entry.claims, declaration.names.get(name)


def _both(one, other):
    """What two claims have in common, for people; a claim of None is one of all there is."""
    named = [str(value).split(",") for value in (one, other) if value is not None]
    common = [value for value in named[0] if value in named[-1]] if named else ["0 and all others"]
    return ", ".join(common)


def make(instance, python, declaration, facts, extra_args=(), environment=None, inputs=None, key_file=None, user=""):
    """The plan of one instance. Raises Refused.

    python: the engine's interpreter. declaration: what `declared()` returned for this engine. facts: EngineFacts.
    inputs: any further JSON data that must lead to a restart when it changes (unit options, model manifests).
    """
    problems = []
    argv = [python, "-m", "sglang.launch_server"]
    env = dict(environment or {})
    expectations = []
    contract = declaration.contract
    family = contract.family_of(facts)
    if "model" not in declaration.values:
        problems.append(_no_model(declaration.values))
    if declaration.algorithm and declaration.algorithm not in family.algorithms:
        problems.append(f"spec_algorithm: declared {declaration.algorithm}, which the installed {family.name} build lacks")
    for name in contract.names():
        if name not in declaration.values:
            continue
        value = declaration.values[name]
        entry = contract.find(name, declaration.algorithm, family.name)
        carrier = entry.carrier(facts.release)
        if carrier is None and entry.carried_by:
            spans = " or ".join(c.releases for c in entry.carried_by)
            problems.append(f"{name}: SGLang {facts.release} has no option for it; {spans} has; change sglang_version")
            continue
        problems += _absent(name, entry, carrier, facts)
        if value is not OFF:
            _carry(carrier, entry, value, argv, env)
        if carrier or entry.witnesses:
            expectations.append(expectation(entry, carrier, value, declaration.names, facts))
    carried = _carried(declaration, family)
    problems += _extra(extra_args, facts, carried)
    problems += _variables(environment or {}, declaration.names, carried)
    if problems:
        raise Refused(problems)
    argv += [*extra_args, *(["--config", key_file] if key_file else [])]
    digest = _digest({"argv": argv, "environment": env, "engine": facts.fingerprint, "inputs": inputs})
    return Plan(
        instance=instance,
        release=facts.release,
        family=family.name,
        argv=tuple(argv),
        environment={**env, DIGEST_VARIABLE: digest},
        expectations=tuple(expectations),
        replicas=declaration.names["dp"],
        host=declaration.names["host"],
        port=declaration.names["port"],
        model=declaration.values.get("model", ""),
        digest=digest,
        notes=tuple(_notes(declaration, family.name, facts.release)),
        user=user,
        forbidden=tuple(forbidden_lines(contract, declaration.algorithm, declaration.names)),
        benign=tuple(contract.benign(declaration.algorithm, family.name)),
    )


def _absent(name, entry, carrier, facts):
    """A pattern of the contract that the installed engine does not have is found here, not after a ten-minute load."""
    if isinstance(carrier, Flag) and facts.option(carrier.option) is None:
        close = difflib.get_close_matches(carrier.option, [option.flag for option in facts.options], cutoff=0.8)
        hint = f"; the nearest it has is {close[0]}" if close else ""
        yield (
            f"{name}: the installed engine says it is SGLang {facts.release} but has no option {carrier.option}{hint}; "
            "it is a fork that needs a contract of its own, or the installation is broken"
        )
    for witness in entry.witnesses:
        if isinstance(witness, Line) and not facts.has_template(witness.head):
            yield (
                f"{name}: the installed engine (SGLang {facts.release}) never logs '{witness.head}', "
                "so nothing could prove the setting; it is a fork that needs a contract of its own"
            )


def _carry(carrier, entry, value, argv, env):
    if isinstance(carrier, Environment):
        env[carrier.name] = str(value)
    elif carrier and isinstance(entry.type, Switch):
        argv.append(carrier.option)
    elif carrier:
        argv += [carrier.option, str(value)]


def expectation(entry, carrier, value, names, facts):
    """What a declared value (OFF for none) makes the engine say. `names` is what expressions may speak of."""
    plain = None if value is OFF else value
    known = {**names, "declared": plain}
    witnesses = []
    for witness in entry.witnesses:
        wanted = {"hop": witness.hop, "source": type(witness).__name__.lower(), "field": witness.field}
        if isinstance(witness, Line):
            wanted.update(head=witness.head, last=facts.last_field(witness.head))
        wanted.update(relation=witness.relation, value=_known(witness.expect, known))
        witnesses.append(wanted)
    option = facts.option(carrier.option) if isinstance(carrier, Flag) else None
    return Expectation(
        setting=entry.name,
        value=plain,
        severity=entry.severity,
        carrier=carrier.option if isinstance(carrier, Flag) else carrier.name if carrier else "",
        echoed_as=option.field if option else None,
        echoed=_echo(entry, plain, known),
        witnesses=tuple(witnesses),
        contradict=entry.contradict,
    )


def _echo(entry, plain, known):
    if isinstance(entry.type, Switch):
        return bool(plain)
    return entry.off_echo if plain is None else evaluate(entry.echo, known)


def _carried(declaration, family):
    """Option or variable → name of the setting that carries it, under this algorithm first."""
    entries = sorted(declaration.contract.settings, key=lambda s: s.applies(declaration.algorithm, family.name))
    return {c.option if isinstance(c, Flag) else c.name: entry.name for entry in entries for c in entry.carried_by}


def _variables(environment, names, carried):
    """Variables that would make what the engine says worth nothing, or that a setting carries."""
    for variable in environment:
        if variable in carried:
            yield f"environment {variable}: this is the setting {carried[variable]}; declare it, so that it is proved"
        for forbidden in FORBIDDEN_VARIABLES:
            if variable.startswith(forbidden.name) and _holds(forbidden.when, names):
                yield f"environment {variable}: {forbidden.reason}; remove it"


def _holds(when, names):
    """Does the condition hold? What is not known holds: a forbidden thing is not excused by ignorance."""
    try:
        return evaluate(when, names)
    except Unknown:
        return True


def forbidden_lines(contract, algorithm, names):
    """The lines that a start may not have under this algorithm, as `Plan.forbidden` has them."""
    for line in contract.forbidden:
        if (not line.algorithms or algorithm in line.algorithms) and _holds(line.when, names):
            yield {"text": line.text, "severity": line.severity, "reason": line.reason}


def _extra(extra_args, facts, carried):
    """Arguments outside the contract: each an option of this engine, spelled in full, and none that a setting carries."""
    fields = {facts.option(flag).field: name for flag, name in carried.items() if facts.option(flag)}
    for argument in extra_args:
        if not argument.startswith("-") or argument.lstrip("-").isdigit():
            continue  # a value
        flag = argument.partition("=")[0]
        option = facts.option(flag)
        if flag == "--config":
            yield "extra argument --config: a file could override what is declared; declare its content as settings"
        elif redact.is_secret(flag):
            yield f"extra argument {flag}: every user of the host can read a command line; see sglang_service_key_file"
        elif option is None:
            longer = facts.abbreviates(flag)
            hint = f"; it is short for {' or '.join(longer)}: write it in full" if longer else ""
            yield f"extra argument {flag}: SGLang {facts.release} has no such option{hint}"
        elif option.field in fields:
            name = fields[option.field]
            yield f"extra argument {flag}: this is the setting {name}; declare {name}, so that it is proved"


def _digest(data):
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _notes(declaration, family, release):
    """What the operator should know beside the table; last, what the drafter's layers really attend to."""
    names = declaration.names
    for name, value in declaration.values.items():
        known = {**names, "declared": None if value is OFF else value, "name": name}
        for note in declaration.contract.find(name, declaration.algorithm, family).notes:
            if value is not OFF and _known(note.when, known):
                yield _said(note.text, {**known, "value": _known(note.value, known)})
    native, layers = names.get("drafter.sliding_window"), names.get("drafter.layer_types")
    if not native or not layers or "window" not in declaration.values:
        return
    honours_native = releases.within(release, ">=0.5.14")  # srt/models/dflash.py from 0.5.14; not at all before
    flag = names["window"]
    windows = []
    for layer in layers:
        limits = [limit for limit in (flag, native if honours_native and layer == "sliding_attention" else None) if limit]
        windows.append(str(min(limits)) if limits else "all")
    unused = "" if honours_native else ", which SGLang honours from 0.5.14 on"
    yield f"drafter layers attend to {', '.join(windows)} tokens (its own window: {native}{unused})"


def contradictions(plan, resolved):
    """Where the engine's own resolver would make something else of the plan: sentences. `resolved`: field → value."""
    for expectation in plan.expectations:
        key = expectation.echoed_as
        if key is None:
            continue
        if key not in resolved:
            yield f"{expectation.setting}: the engine's resolver knows no field {key}"
        elif not same(resolved[key], expectation.echoed):
            yield (
                f"{expectation.setting}: declared {shown(expectation.value)}, but this engine would run with "
                f"{shown(resolved[key])} ({key}, asked of its own argument resolver)"
            )


def same(found, expected):
    """Equal as the engine means it: 0.80 and 0.8, but not 1 and True."""
    if isinstance(found, bool) or isinstance(expected, bool):
        return found is expected
    return found == expected
