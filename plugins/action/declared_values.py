"""Refuse values of roles' variables that cannot be meant, before anything is touched.

Arguments:
  roles     whose variables are looked at
  except    those that this run does not read

A value must be of the type and among the choices that the role's argument specs say, and keep to its meta/legal_values.yml:
{variable: rule}, where a rule has any of

  minimum, maximum   of a number; without them a whole number is from 0 to 2147483647
  form               of a text, or of each text in a list: one of FORMS, by default `line`
  pattern, legal     a form of its own: a regular expression, and in words
  length             characters of a text, at most; by default 1000
  empty              whether an empty text, list or dictionary means something; by default if the default is empty
  keys, values       the rules of a dictionary's keys and values, by default each a `line`
  truth              whether true and false are such a value too
  options            the rules of a dictionary's options, by default those of the variable ROLE_OPTION
  else               what is said besides of an option that there is not
  secret             whether a value may have a secret in it, and is not shown; as `no_log` in the argument specs says, too
  required           of such an option, that it must be there; in the argument specs an empty dictionary would lack it too

Only what is declared is looked at, and what must be. A variable whose default is `{{ other | default('') }}` is checked by
that other name too. All problems come in one message. It changes nothing and needs no connection.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import yaml
from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

try:  # not a public interface; without it errors do not name the line
    from ansible._internal._datatag._tags import Origin, VaultedValue
except ImportError:
    Origin = VaultedValue = None

WORD = "[A-Za-z0-9][A-Za-z0-9._-]*"
FORMS = {
    "line": (r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]+", "one line of text"),
    "text": (r"[^\x00-\x08\x0b-\x1f\x7f]+", "text"),
    "word": (WORD, "a word of letters, digits and . _ -"),
    "path": (r"/[A-Za-z0-9._/+@=,-]*", "an absolute path of letters, digits and . _ / + @ = , -"),
    "program": (rf"/[A-Za-z0-9._/+@=,-]*|{WORD}", "an absolute path, or a program's name"),
    "file": (r"[^\x00-\x1f\x7f]+", "a file on the controller"),
    "host": (r"[^\x00-\x1f\x7f]+", "the name of a host in the inventory, or localhost"),
    "address": (r"[A-Za-z0-9._:-]+|\[[0-9A-Fa-f:.]+\]", "a host's name or address"),
    "url": (r"https?://([A-Za-z0-9._~:/?#@!&*+,;=\[\]-]|%[0-9A-Fa-f]{2})+", "a URL that begins with http:// or https://"),
    "argument": (r"[A-Za-z0-9 ._~:/?#@!&*+,;=|()<>{}\[\]^-]+", "one line of ASCII without quotes, $, % and \\"),
    "release": (r"[0-9]+(\.[0-9]+)+(\.post[0-9]+)?", "a full release number such as 0.5.13"),
    "package": (r"[a-z0-9][a-z0-9.+-]+(=[A-Za-z0-9.+:~-]+)?", "a package of the distribution"),
    "variable": (r"[A-Za-z_][A-Za-z0-9_]*", "the name of a variable"),
    "day": (r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", "a day, YYYY-MM-DD"),
}
LARGEST = 2**31 - 1
LONGEST = 1000
MOST = 1000  # elements of a list or dictionary
TRUTH = {"true", "false", "yes", "no", "on", "off", "1", "0"}  # what -e, where all is text, has for a bool
NUMBERS = {"int": r"-?[0-9]+", "float": r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?"}
ALIAS = re.compile(r"\{\{ (\w+) \| default\(''\) \}\}")  # a default that is another variable
SHOWN = 60


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        names = {"type": "list", "elements": "str"}
        _, given = self.validate_argument_spec({"roles": {**names, "required": True}, "except": {**names, "default": []}})
        known = {"host": {"localhost", *task_vars["groups"]["all"]}.__contains__, "file": self._is_file}
        # What is declared may speak of the default of any role, in the play that knows none yet.
        variables = {**self._all_defaults(), **task_vars}
        problems = []
        for role in [Role(name) for name in given["roles"]]:
            options = {name: spec for name, spec in role.options.items() if name not in given["except"]}
            found = list(self._problems(role, options, Rules(role, known), task_vars, variables))
            problems += [*found, f"  next     ansible-doc -t role -e main {role.name}"] if found else []
        return {
            "changed": False,
            "failed": bool(problems),
            "msg": "\n".join([*problems, "Nothing was changed."]) if problems else "all values are legal",
        }

    def _problems(self, role, options, rules, task_vars, variables):
        """A line for each of these variables of the role that is declared and not legal, or is not declared and must be."""
        defaults = self._defaults(role.directory)
        templar = self._templar.copy_with_new_env(available_variables=variables)
        for name, spec in options.items():
            alias = ALIAS.fullmatch(str(defaults.get(name)))
            # In a role the defaults are there as well; 1 is true for Python, and no `true`.
            names = [
                n for n in (name, alias and alias[1]) if n in task_vars and repr(task_vars[n]) != repr(defaults.get(n, ...))
            ]
            if spec.get("required") and not names:
                yield f"{name}: declared nothing. Legal is {rules.legal(name)}."
            for declared in names:
                where, words = place(task_vars[declared]), rules.legal(name)
                try:
                    value = native(templar.template(task_vars[declared]))
                except AnsibleError as error:
                    yield f"{declared}: {short(str(error), 200)} ({where}). Legal is {words}."
                    continue
                for at, found, words, is_secret in rules.broken(name, value):
                    told = in_short(found) if is_secret or is_vaulted(found) else short(repr(found))
                    yield f"{declared}{at}: declared {told} ({where}). Legal is {words}."
                    break  # one of each variable is enough to read

    def _defaults(self, role):
        path = str(role / "defaults/main.yml")
        return self._loader.load_from_file(path, trusted_as_template=True) if self._loader.path_exists(path) else {}

    def _all_defaults(self):
        roles = (path for root in C.DEFAULT_ROLES_PATH for path in Path(root).glob("*/") if path.is_dir())
        return {name: value for role in roles for name, value in self._defaults(role).items()}

    def _is_file(self, path):
        return os.path.isfile(path) or os.path.isfile(self._loader.path_dwim(path))


class Role:
    """What a role says of its variables. options, legal: {name: argument spec, rule}. Raises AnsibleActionFail."""

    def __init__(self, name):
        self.name = name
        paths = [path for root in C.DEFAULT_ROLES_PATH if (path := Path(root) / name).is_dir()]
        if not paths:
            raise AnsibleActionFail(
                f"There is no role {name} in {', '.join(C.DEFAULT_ROLES_PATH)}. Next: see ANSIBLE_ROLES_PATH"
            )
        self.directory = directory = paths[0]
        specs = read(directory / "meta/argument_specs.yml")["argument_specs"]
        self.options = {name: option for spec in specs.values() for name, option in spec.get("options", {}).items()}
        self.legal = read(directory / "meta/legal_values.yml")


class Rules:
    """The rules of one role. known: {form: whether there is such a host, such a file}."""

    def __init__(self, role, known):
        self.role, self.known = role, known

    def broken(self, name, value):
        """(where in the value, what is there, what is legal, whether it may be a secret) of all that is not legal."""
        return self._broken("", value, *self._of(name))

    def legal(self, name):
        return legal(*self._of(name))

    def _of(self, name):
        spec, rule = self.role.options[name], self.role.legal.get(name, {})
        return spec, {"empty": spec.get("default") in ("", [], {}), "secret": spec.get("no_log", False), **rule}

    def _broken(self, at, value, spec, rule):
        kind = spec.get("type", "str")
        is_whole = value or rule.get("empty")
        if kind == "list" and isinstance(value, list) and is_whole and len(value) <= MOST:
            for number, item in enumerate(value):
                yield from self._broken(f"{at}[{number}]", item, element(spec), {**rule, "empty": False})
        elif kind == "dict" and isinstance(value, dict) and is_whole and len(value) <= MOST:
            yield from (
                self._broken_options(at, value, spec, rule) if "options" in spec else self._broken_items(at, value, rule)
            )
        elif not self._fits(value, kind, spec, rule):
            yield at, value, legal(spec, rule), rule.get("secret", False)

    def _broken_options(self, at, value, spec, rule):
        for name in value:
            if name not in spec["options"]:
                yield at, name, f"only {', '.join(spec['options'])}" + rule.get("else", ""), False
        for name, option in spec["options"].items():
            own = rule.get("options", {}).get(name, {})
            if name in value:
                same = f"{self.role.name}_{name}"  # a variable of which this is the one for an instance
                option, own = self._of(same) if same in self.role.options and not own else (option, own)
                yield from self._broken(f"{at}.{name}", value[name], option, own)
            elif value and (option.get("required") or own.get("required")):
                yield at, list(value), f"one with {name}", False

    def _broken_items(self, at, value, rule):
        for name, inner in value.items():
            inside = {"secret": rule.get("secret", False)}
            yield from self._broken(f"{at} key", name, {"type": "str"}, {**inside, **rule.get("keys", {})})
            own = {**inside, **rule.get("values", {})}
            kind = own.get("type", "str")
            if kind != "any":
                yield from self._broken(f"{at}.{short(str(name))}", inner, {"type": kind}, own)

    def _fits(self, value, kind, spec, rule):
        """Whether it is legal, of what has nothing inside."""
        if kind == "bool":
            return isinstance(value, bool) or (isinstance(value, (str, int)) and str(value).lower() in TRUTH)
        if rule.get("truth") and isinstance(value, bool):
            return True
        if isinstance(value, (bool, list, dict)) or value is None or kind in ("list", "dict"):
            return False
        text = str(value)
        if kind in ("int", "float"):
            low, high = bounds(rule)
            return len(text) < SHOWN and bool(re.fullmatch(NUMBERS[kind], text)) and low <= float(text) <= high
        if text == "":
            return bool(rule.get("empty"))
        if "choices" in spec:
            return text in spec["choices"]
        form = form_of(spec, rule)
        pattern = rule.get("pattern") or FORMS[form][0]
        is_known = self.known.get(form, bool)
        return len(text) <= rule.get("length", LONGEST) and bool(re.fullmatch(pattern, text)) and is_known(text)


def element(spec):
    """The spec of what a list holds."""
    return {"type": spec.get("elements", "str"), **{key: spec[key] for key in ("choices", "options") if key in spec}}


def form_of(spec, rule):
    return rule.get("form", "path" if spec.get("type") == "path" else "line")


def bounds(rule):
    return rule.get("minimum", 0), rule.get("maximum", LARGEST)


def legal(spec, rule):
    """What is legal, in words."""
    kind = spec.get("type", "str")
    if kind == "list":
        words = f"a list, each {legal(element(spec), {**rule, 'empty': False})}"
    elif kind == "dict":
        words = "a dictionary" + (f" of {', '.join(spec['options'])}" if "options" in spec else "")
    elif kind == "bool":
        words = "true or false"
    elif kind in ("int", "float"):
        words = "a{} number from {} to {}".format(" whole" if kind == "int" else "", *bounds(rule))
    elif "choices" in spec:
        words = f"one of {', '.join(spec['choices'])}"
    else:
        words = rule.get("legal") or FORMS[form_of(spec, rule)][1]
        words += f" of at most {rule.get('length', LONGEST)} characters"
    return words + (", or empty" if rule.get("empty") else "")


def native(value):
    """A value that was worked out to its end, as plain lists and dictionaries."""
    if isinstance(value, Mapping):
        return {key: native(inner) for key, inner in value.items()}
    return [native(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def in_short(value):
    """What may be told of a secret."""
    for kind, words in ((str, "a text of {} characters"), (list, "a list of {}"), (dict, "a dictionary of {}")):
        if isinstance(value, kind):
            return words.format(len(value)) + ", not shown"
    return "a value that is not shown"


def is_vaulted(value):
    return VaultedValue is not None and VaultedValue.is_tagged_on(value)


def short(text, most=SHOWN):
    text = re.sub(r"://.*@", "://…@", text)  # a user and a password
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def place(value):
    """Where a value was written: file and line where Ansible kept them."""
    tag = Origin.get_tag(value) if Origin else None
    if not tag or not tag.path:
        return ((tag and tag.description) or "in the inventory or with -e").replace("<CLI option '-e'>", "-e")
    path = Path(tag.path)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{tag.line_num}" if tag.line_num else str(shown)


def read(path):
    """A YAML file of a role, {} where it has none."""
    # A run over two hundred hosts reads these in a process for each: libyaml's loader takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), loader) if path.exists() else {}
