"""Refuse, before anything is touched, names that mean nothing and values that no engine could run; gather the rest.

Arguments:
  instances  the engines of the host, each with a `name` and perhaps `settings`
  only       name of the one to look at; all where it is empty
  settings   whether settings are read in this run; without them only `instances` and the names of -e are looked at
  shared     settings of all instances
  generation, generation_waiver
             whether each instance must answer a prompt, where it does not say so itself, and who waived that
  contract   the file of a fork's contract, relative to the playbook if it is not absolute
  prefix     each setting may also be declared as the variable PREFIX + name, which wins
  short      those settings that may be declared by their bare name too
  aliases    {other short name: the role variable it stands for}
  own        names that the user declares as his own

Known are the settings of the contract, and every option in the argument specs of the project's roles. A name from -e must
be known, own, or begin with ansible_. A variable of the inventory must be known or own if it is the name of a setting that
has no short form, begins with the first word of PREFIX or looks like a misspelt known name; all others are the user's
business. A short and its long name with different values are an error. All problems come in one message.

Returns `settings`: {name: value} of what was declared as variables; `left_out`: the instances that `only` leaves out, which
the callback verdict_table prints; and `contract`: the file's {file, data, lines}, or {}, where `lines` maps "a.b.0.c" to a
line number. It changes nothing and needs no connection, so it runs in check mode too, and in Ansible's own process: over a
fleet it is asked once for each host.
"""

from __future__ import annotations

import json
import re
from datetime import date
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
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:  # not a public interface; without it errors name the group, not the line
    Origin = None

# Ansible gives its modules this path, and its plugins not.
ansible.module_utils.__path__.extend(C.DEFAULT_MODULE_UTILS_PATH)
from ansible.module_utils.sglang_proof import contract, fork, plan  # noqa: E402  found by the line above

INSTANCE = "[a-z0-9][a-z0-9-]{0,31}"  # a part of its unit's name
MISSPELT = 0.8  # similarity from which an unknown inventory variable is taken for a misspelt one
TABLES = "verdict_table"

display = Display()


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(
            {
                "instances": {"type": "list", "elements": "dict", "required": True},
                "only": {"type": "str", "default": ""},
                "settings": {"type": "bool", "default": True},
                "shared": {"type": "dict", "default": {}},
                "generation": {"type": "str", "default": "required"},
                "generation_waiver": {"type": "dict", "default": {}},
                "contract": {"type": "str", "default": ""},
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
        host = task_vars["inventory_hostname"]
        if problem := confused(host, given):
            raise AnsibleActionFail(problem)
        document = read_with_lines(self._loader.path_dwim(given["contract"])) if given["contract"] else {}
        try:
            rules = fork.read(document) if document else contract.BUILT_IN
        except fork.BadContract as bad:
            problems = plan.indented(bad.problems)
            raise AnsibleActionFail(
                f"The contract cannot be used. Nothing was changed.\n{problems}\n"
                "  next     correct it, or declare another sglang_service_contract"
            ) from None
        extra = {name: (value, origin(name, "-e")) for name, value in load_extra_vars(self._loader).items()}
        declared = self._inventory_variables(host) if given["settings"] else {}
        # Which of several declarations wins is Ansible's to say.
        declared = {name: (task_vars.get(name, value), where) for name, (value, where) in declared.items()}
        settings = plain(self._settings(declared | extra, rules.names(), given))
        problems = list(self._names(declared, extra, rules.names(), given))
        if given["settings"]:
            problems += unread(task_vars, declared | extra, rules.names(), given)
            problems += unclear(host, settings, given)
            problems += unwaived(given)
            problems += impossible(settings, rules, given)
        elif settings:
            display.warning(f"{', '.join(settings)}: a setting of engines, which this run does not read")
        return {
            "changed": False,
            "failed": bool(problems),
            "msg": "\n".join(problems) or "all of it is known, and could run",
            "settings": settings,
            "left_out": [i["name"] for i in given["instances"] if i not in chosen(given)],
            "contract": document,
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


def confused(host, given):
    """Why the instances cannot be told apart, or the one that is meant is none of them; None if all is well."""
    names = [instance["name"] for instance in given["instances"]]
    if given["only"] and given["only"] not in names:
        what = f"instance: declared {given['only']}, but {host} has {', '.join(names)} (sglang_service_instances)"
    elif not names or len(set(names)) < len(names) or not all(re.fullmatch(INSTANCE, name) for name in names):
        what = (
            f"sglang_service_instances: declared {', '.join(names) or 'none'}. Each needs a name of its own of lower-case "
            "letters, digits and dashes"
        )
    else:
        return None
    return f"{what}. Nothing was changed."


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


def chosen(given):
    """The instances that the run is for."""
    return [instance for instance in given["instances"] if given["only"] in ("", instance["name"])]


def unwaived(given):
    """Where no generation is asked for, and nobody says why, or until when."""
    for instance in chosen(given):
        asked = {**given, **instance}
        if asked["generation"] != "waived":
            continue
        try:
            reason, until = (asked["generation_waiver"][key] for key in ("reason", "until"))
            is_over = date.fromisoformat(until) < date.today()
        except (KeyError, TypeError, ValueError):
            yield (
                f"sglang_service_generation: declared waived for {instance['name']}, and nobody says why. "
                "Next: sglang_service_generation_waiver: {reason: …, until: YYYY-MM-DD}, or require it again."
            )
            continue
        if is_over:
            yield (
                f"sglang_service_generation_waiver: declared until {until} for {instance['name']} ({reason}), and that day "
                "is over. Next: a new date, or require the generation again."
            )


def impossible(settings, rules, given):
    """What no engine could run, and what no two of one host: as far as it is known without the host."""
    names = [instance["name"] for instance in chosen(given)]
    declared = {}
    for instance in given["instances"]:
        name, own = instance["name"], instance.get("settings") or {}
        raw = {**given["shared"], **own, **(settings if name in names else {})}
        try:
            declared[name] = plan.declared(raw, contract=rules)
        except plan.Refused as refused:
            if name in names:
                yield plan.refusal(name, refused.problems)
    mine_first = sorted(declared.items(), key=lambda item: item[0] not in names)
    for one, other in combinations(mine_first, 2):
        problems = list(plan.collisions(one, [other])) if one[0] in names else []
        if problems:
            yield plan.refusal(one[0], problems)


def role_options():
    """{role: its variables}, of all roles in the roles path that have argument specs."""
    # A run over two hundred hosts reads them in a process for each: libyaml's loader takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for directory in C.DEFAULT_ROLES_PATH:
        for path in sorted(Path(directory).glob("*/meta/argument_specs.yml")):
            specs = yaml.load(path.read_text(), loader)["argument_specs"]
            found[path.parts[-3]] = [name for spec in specs.values() for name in spec.get("options", {})]
    return found


def read_with_lines(path):
    """{"file", "data", "lines"} of a YAML file. Keys must be text and stand once. Raises AnsibleActionFail."""
    shown = from_here(Path(path))
    try:
        return {"file": str(shown), **with_lines(Path(path).read_text(encoding="utf-8"))}
    except OSError as error:
        raise AnsibleActionFail(f"{shown}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.reader.ReaderError) as error:
        raise AnsibleActionFail(f"{shown}: is no text in UTF-8: {error.reason}") from None
    except yaml.MarkedYAMLError as error:
        raise AnsibleActionFail(f"{shown}:{error.problem_mark.line + 1}: {error.problem}") from None


def with_lines(text):
    """{"data": …, "lines": {…}} of a YAML text. Raises yaml.MarkedYAMLError."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        lines = {}
        data = None if node is None else _read_node(loader, node, "", lines)
    finally:
        loader.dispose()
    return {"data": data, "lines": lines}


def _read_node(loader, node, at, lines):
    if isinstance(node, yaml.MappingNode):
        mapping = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str) or key in mapping:
                problem = f"{key} stands twice" if key in mapping else f"{key!r} is no name"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            inside = f"{at}.{key}" if at else key
            lines[inside] = key_node.start_mark.line + 1
            mapping[key] = _read_node(loader, value_node, inside, lines)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            lines[f"{at}.{position}"] = item.start_mark.line + 1
        return [_read_node(loader, item, f"{at}.{n}", lines) for n, item in enumerate(node.value)]
    return loader.construct_object(node)


def origin(name, otherwise):
    """Say where a variable's name was written: file and line where Ansible kept them."""
    tag = Origin.get_tag(name) if Origin else None
    if not tag or not tag.path:
        return otherwise
    shown = from_here(Path(tag.path))
    where = f"{shown}:{tag.line_num}" if tag.line_num else str(shown)
    return f"-e @{where}" if otherwise == "-e" else where


def from_here(path):
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
