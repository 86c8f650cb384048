"""Refuse, before anything is touched, names that mean nothing and values that no engine could run; gather the rest.

Arguments:
  instances  the engines of the host, each with a `name` and perhaps `settings`
  only       name of the one to look at; all where it is empty
  shared     settings of all instances
  contract   a fork's contract as the action yaml_with_lines read it: {file, data, lines}
  prefix     each setting may also be declared as the variable PREFIX + name, which wins
  short      those settings that may be declared by their bare name too
  aliases    {other short name: the role variable it stands for}
  own        names that the user declares as his own

Known are the settings of the contract, and every option in the argument specs of the project's roles. A name from -e must
be known, own, or begin with ansible_. A variable of the inventory must be known or own if it is the name of a setting that
has no short form, begins with the first word of PREFIX or looks like a misspelt known name; all others are the user's
business. A short and its long name with different values are an error. All problems come in one message.

Returns `settings`: {name: value} of what was declared as variables. It changes nothing and needs no connection, so it runs
in check mode too, and runs in Ansible's own process: over a fleet it is asked once for each host.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from itertools import chain, combinations
from pathlib import Path
from typing import NamedTuple

import ansible.module_utils
import yaml
from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.inventory.helpers import sort_groups
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:  # not a public interface; without it errors name the group, not the line
    Origin = None

# Ansible gives its modules this path, and its plugins not.
ansible.module_utils.__path__.extend(C.DEFAULT_MODULE_UTILS_PATH)
from ansible.module_utils.sglang_proof import contract, fork, plan  # noqa: E402  found by the line above

MISSPELT = 0.8  # similarity from which an unknown inventory variable is taken for a misspelt one
TABLES = "verdict_table"


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(
            {
                "instances": {"type": "list", "elements": "dict", "required": True},
                "only": {"type": "str", "default": ""},
                "shared": {"type": "dict", "default": {}},
                "contract": {"type": "dict"},
                "prefix": {"type": "str", "required": True},
                "short": {"type": "list", "elements": "str", "default": []},
                "aliases": {"type": "dict", "default": {}},
                "own": {"type": "list", "elements": "str", "default": []},
            }
        )
        given = plain(given)
        if TABLES not in C.CALLBACKS_ENABLED:
            raise AnsibleActionFail(
                f"The callback {TABLES} is not enabled, so this run could end well without a proof "
                f"(configuration in force: {C.CONFIG_FILE or 'none'}). "
                "Next: run from the project's directory, or set ANSIBLE_CONFIG to its ansible.cfg"
            )
        try:
            rules = fork.read(given["contract"]) if given["contract"] else contract.BUILT_IN
        except fork.BadContract as bad:
            problems = plan.indented(bad.problems)
            raise AnsibleActionFail(f"The contract cannot be used. Nothing was changed.\n{problems}") from None
        host = task_vars["inventory_hostname"]
        declared = self._inventory_variables(host)
        extra = {name: (value, origin(name, "-e")) for name, value in load_extra_vars(self._loader).items()}
        # Which of several declarations wins is Ansible's to say.
        declared = {name: (task_vars.get(name, value), where) for name, (value, where) in declared.items()}
        settings = plain(self._settings(declared | extra, rules.names(), given))
        problems = [
            *self._names(declared, extra, rules.names(), given),
            *unread(task_vars, declared | extra, rules.names(), given),
            *unclear(host, settings, given),
            *impossible(settings, rules, given),
        ]
        return {
            "changed": False,
            "failed": bool(problems),
            "msg": "\n".join(problems) or "all of it is known, and could run",
            "settings": settings,
        }

    def _names(self, declared, extra, settings, given):
        roles = role_options()
        pairs = {**{name: given["prefix"] + name for name in given["short"]}, **given["aliases"]}
        long = {name: given["prefix"] + name for name in settings}
        known = Known(
            {*long.values(), *pairs, *given["own"], *chain(*roles.values())},
            long,
            (given["prefix"].split("_")[0] + "_", *(f"{role}_" for role in roles)),
        )
        yield from known.problems(extra, everything=True)
        yield from known.problems(declared)
        yield from self._disagreeing(declared | extra, pairs)

    def _settings(self, declared, settings, given):
        found = {}
        for name in settings:
            names = [given["prefix"] + name, *([name] if name in given["short"] else [])]
            for value in (declared[n][0] for n in names if n in declared):
                found[name] = self._templar.template(value)
        return found

    def _inventory_variables(self, name):
        """Return {variable: (value, where it was read)} of a host; what is nearer to the host wins."""
        inventory = self._task.get_variable_manager()._inventory
        host = inventory.get_host(name)
        declared = {}
        for entity in [*sort_groups(host.get_groups()), host]:
            place = f"host {entity.name}" if entity is host else f"group {entity.name}"
            for variables in (
                entity.vars,
                get_vars_from_inventory_sources(self._loader, inventory._sources, [entity], "task"),
                get_vars_from_path(self._loader, self._loader.get_basedir(), [entity], "task"),
            ):
                declared.update({key: (value, origin(key, place)) for key, value in variables.items()})
        return declared

    def _disagreeing(self, declared, pairs):
        for short, long in pairs.items():
            if short in declared and long in declared:
                (a, read_a), (b, read_b) = declared[short], declared[long]
                if self._comparable(a) != self._comparable(b):
                    yield f"{short}: {a} ({read_a}), but {long}: {b} ({read_b}). Next: keep one of them"

    def _comparable(self, value):
        """-e makes every value a string: 2048 and "2048", null and "none" are the same declaration."""
        return str(self._templar.template(value)).strip().lower()


class Known(NamedTuple):
    """The names that mean something, settings by their long names, and the prefixes that only such names may have."""

    names: set
    long: dict
    prefixes: tuple

    def problems(self, declared, everything=False):
        """A line for each unknown name; of the inventory (not `everything`) only for what is meant for this project."""
        for name, (_, read) in declared.items():
            if name in self.names or name.startswith("ansible_"):
                continue
            if name in self.long:  # it would be read by nobody, and the play would end well without it
                yield f"{name}: this setting has no short name ({read}). Say {self.long[name]}"
                continue
            match = get_close_matches(name, self.names, n=1, cutoff=0.6 if everything else MISSPELT)
            if everything or name.startswith(self.prefixes) or (match and name != match[0] + "s"):
                yield f"{name}: unknown ({read})." + (f" Did you mean {match[0]}?" if match else "")


def plain(value):
    """As a module would get it: numbers and texts, not Ansible's own kinds of them."""
    return json.loads(json.dumps(value, default=str))


def unread(variables, declared, settings, given):
    """Settings that a play or a task declares: a fleet's declaration is what the inventory and -e say."""
    for name in (*(given["prefix"] + name for name in settings), *given["short"]):
        if name in variables and name not in declared:
            yield f"{name}: declared in a play, where it is not read. Put it into the inventory, or give it with -e."


def unclear(host, settings, given):
    """What was declared for one of several instances, and does not say which."""
    names = [instance["name"] for instance in given["instances"]]
    if settings and not given["only"] and len(names) > 1:
        declared, which = ", ".join(settings), ", ".join(names)
        yield f"{declared}: declared for {host}, which has the instances {which}. Say which one: -e instance={names[0]}."


def impossible(settings, rules, given):
    """What no engine could run, and what no two of one host: as far as it is known without the host."""
    chosen = [given["only"]] if given["only"] else [instance["name"] for instance in given["instances"]]
    declared = {}
    for instance in given["instances"]:
        name, own = instance["name"], instance.get("settings") or {}
        raw = {**given["shared"], **own, **(settings if name in chosen else {})}
        try:
            declared[name] = plan.declared(raw, contract=rules)
        except plan.Refused as refused:
            if name in chosen:
                yield plan.refusal(name, refused.problems)
    mine_first = sorted(declared.items(), key=lambda item: item[0] not in chosen)
    for one, other in combinations(mine_first, 2):
        problems = list(plan.collisions(one, [other])) if one[0] in chosen else []
        if problems:
            yield plan.refusal(one[0], problems)


def role_options():
    """{role: its variables}, of all roles in the roles path that have argument specs."""
    found = {}
    for directory in C.DEFAULT_ROLES_PATH:
        for path in sorted(Path(directory).glob("*/meta/argument_specs.yml")):
            specs = yaml.safe_load(path.read_text())["argument_specs"]
            found[path.parts[-3]] = [name for spec in specs.values() for name in spec.get("options", {})]
    return found


def origin(name, otherwise):
    """Say where a variable's name was written: file and line where Ansible kept them."""
    tag = Origin.get_tag(name) if Origin else None
    if not tag or not tag.path:
        return otherwise
    path = Path(tag.path)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    where = f"{shown}:{tag.line_num}" if tag.line_num else str(shown)
    return f"-e @{where}" if otherwise == "-e" else where
