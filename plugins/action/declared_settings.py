"""Refuse what the user declared under a name that means nothing, and gather what he declared, before anything is touched.

Arguments:
  settings  names of settings; each may be declared as the variable PREFIX + name
  prefix    the prefix of these long names
  short     those settings that may also be declared by their bare name
  aliases   {other short name: the role variable it stands for}
  own       names that the user declares as his own
  hosts     whose inventory variables are checked; by default the host of the task

Known are these names, and every option in the argument specs of the project's roles. A name from -e must be known,
own, or begin with ansible_. A variable of the inventory must be known or own if it is the name of a setting that has
no short form, begins with the first word of PREFIX or looks like a misspelt known name; all others are the user's
business. A short and its long name with different values are an error. All problems come in one message.

Returns `settings`: {name: value} as declared for the first of `hosts`. It changes nothing and needs no connection, so
it runs in check mode too.
"""

from __future__ import annotations

from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import NamedTuple

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

MISSPELT = 0.8  # similarity from which an unknown inventory variable is taken for a misspelt one
TABLES = "verdict_table"


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(
            {
                "settings": {"type": "list", "elements": "str", "required": True},
                "prefix": {"type": "str", "required": True},
                "short": {"type": "list", "elements": "str", "default": []},
                "aliases": {"type": "dict", "default": {}},
                "own": {"type": "list", "elements": "str", "default": []},
                "hosts": {"type": "list", "elements": "str", "default": [task_vars["inventory_hostname"]]},
            }
        )
        if TABLES not in C.CALLBACKS_ENABLED:
            raise AnsibleActionFail(
                f"The callback {TABLES} is not enabled, so this run could end well without a proof "
                f"(configuration in force: {C.CONFIG_FILE or 'none'}). "
                "Next: run from the project's directory, or set ANSIBLE_CONFIG to its ansible.cfg"
            )
        roles = role_options()
        pairs = {**{name: given["prefix"] + name for name in given["short"]}, **given["aliases"]}
        long = [given["prefix"] + name for name in given["settings"]]
        known = Known(
            {*long, *pairs, *given["own"], *chain(*roles.values())},
            dict(zip(given["settings"], long, strict=True)),
            (given["prefix"].split("_")[0] + "_", *(f"{role}_" for role in roles)),
        )
        extra = {name: (value, origin(name, "-e")) for name, value in load_extra_vars(self._loader).items()}
        problems = dict.fromkeys(known.problems(extra, everything=True))  # a dict: hosts share groups, each once
        settings = {}
        for host in reversed(given["hosts"]):
            declared = self._inventory_variables(host)
            problems.update(dict.fromkeys(known.problems(declared)))
            problems.update(dict.fromkeys(self._disagreeing(declared | extra, pairs)))
            settings = self._settings(declared | extra, given)
        return {
            "changed": False,
            "failed": bool(problems),
            "msg": "\n".join(problems) or "all names are known",
            "settings": settings,
        }

    def _settings(self, declared, given):
        found = {}
        for name in given["settings"]:
            names = [given["prefix"] + name, *([name] if name in given["short"] else [])]
            for value in (declared[n][0] for n in names if n in declared):
                found[name] = self._templar.template(value)
        return found

    def _inventory_variables(self, name):
        """Return {variable: (value, where it was read)} of a host; what is nearer to the host wins."""
        inventory = self._task.get_variable_manager()._inventory
        host = inventory.get_host(name)
        if host is None:
            raise AnsibleActionFail(f'hosts: "{name}" is not in the inventory. Next: ansible-inventory --graph')
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
