"""Makes the plan of an instance on its host: of what is declared, and of the engine and the models that lie there."""

from __future__ import annotations

import hashlib
import json
import os

from . import sglang_engine, sglang_runs
from .sglang_host import CannotRead
from .sglang_proof import contract, fork, key_file, plan
from .sglang_proof.facts import NotAnEngine

# What is declared of one instance; sglang_plan describes it.
DECLARATION = {
    "instance": {"type": "str", "required": True},
    "settings": {"type": "dict", "required": True},
    "python": {"type": "path", "required": True},
    "release": {"type": "str"},
    "facts": {"type": "path"},
    "extra_args": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
    "key_file": {"type": "path", "no_log": False},
    "inputs": {"type": "raw"},
    "contract": {"type": "dict"},
    "user": {"type": "str"},
}

ERRORS = (plan.Refused, fork.BadContract, CannotRead, NotAnEngine)


def make(declaration, check_mode=False):
    """The Plan, or None where no engine is there yet in check mode. Raises ERRORS."""
    rules = fork.read(declaration["contract"]) if declaration["contract"] else contract.BUILT_IN
    engine = _installed(declaration, check_mode)
    return engine and _plan(declaration, engine, rules)


def told(declaration, error):
    """One of ERRORS, for people."""
    if isinstance(error, plan.Refused):
        return plan.refusal(declaration["instance"], error.problems)
    if isinstance(error, fork.BadContract):
        return f"The contract cannot be used. Nothing was changed.\n{plan.indented(error.problems)}"
    return f"sglang-{declaration['instance']}: {error}"


def unknown_table(declaration):
    """Check mode before the engine is there: what it would say is not guessed."""
    rows = [[name, str(value), "unknown until installed"] for name, value in declaration["settings"].items()]
    unit = f"sglang-{declaration['instance']}.service"
    return {
        "key": unit,
        "title": f"{unit}  not installed; a run would install, start and prove it",
        "columns": ["setting", "declared", "verdict"],
        "rows": rows,
        "passed": None,
    }


def _installed(declaration, check_mode):
    try:
        return sglang_engine.read(declaration["python"], declaration["facts"], declaration["release"])
    except sglang_engine.Missing as missing:
        if check_mode:
            return None
        raise CannotRead(f"{missing}. Next: apply the role sglang_engine here, or correct 'python'") from None


def _plan(declaration, engine, rules):
    facts = engine.facts
    family = rules.family_of(facts).name
    configs, manifests, problems = {}, {}, []
    for role, name in (("target", "model"), ("drafter", "draft_model")):
        directory = declaration["settings"].get(name)
        if isinstance(directory, str) and directory.startswith("/"):
            try:
                configs[role], manifests[role] = _read_model(directory)
            except CannotRead as error:
                problems.append(f"{name}: {error}")
    given = {"given": declaration["inputs"], "engine": engine.installation, "models": manifests}
    if declaration["key_file"]:
        try:  # a rotated key needs a restart
            given["key"] = hashlib.sha256(key_file.read(declaration["key_file"]).encode()).hexdigest()
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise plan.Refused(problems)
    return plan.make(
        declaration["instance"],
        declaration["python"],
        plan.declared(declaration["settings"], family, configs, facts.release, rules),
        facts,
        extra_args=declaration["extra_args"],
        environment=dict(_read_environment(declaration["environment"])),
        inputs=given,
        key_file=declaration["key_file"],
        user=declaration["user"] or "",
    )


def _read_environment(environment):
    """(name, text) of each variable. Raises Refused for values of which nobody can know what text is meant."""
    for name, value in environment.items():
        if name == plan.DIGEST_VARIABLE:
            raise plan.Refused([f"environment {name}: this name is the project's own; choose another"])
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise plan.Refused(
                [f"environment {name}: declared a {type(value).__name__}, but it must be text or a number; quote it"]
            )
        yield name, str(value)


def _read_model(directory):
    """(config.json, [name, bytes, modified]) of a model's directory: files replaced at the same path are another model."""
    path = os.path.join(directory, "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        files = [entry for entry in os.scandir(directory) if entry.name.endswith(sglang_runs.MODEL_FILES)]
        entries = sorted((entry.name, entry.stat().st_size, int(entry.stat().st_mtime)) for entry in files)
    except OSError as error:
        raise CannotRead(f"declared {directory}, but {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CannotRead(f"declared {directory}, but {path} is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise CannotRead(f"declared {directory}, but {path} is no model's: it holds a {type(config).__name__}")
    return config, entries
