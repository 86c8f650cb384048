"""A fork's contract: entries of the contract's form, written as YAML (docs/forks.md), read over the built-in ones.

The controller reads the file and keeps the line of every key (plugins/action/declared_settings.py); here it is only data,
checked as a whole, so that each problem names its file and line, and the nearest right key.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace

from . import expressions
from .contract import (
    BUILT_IN,
    CRITICAL,
    FAMILIES,
    WARNING,
    Environment,
    Family,
    Flag,
    Forbidden,
    Granted,
    Line,
    Refuse,
    Served,
    Setting,
)
from .settings import Choice, Integer, Switch, Text

TYPES = {"integer": Integer(), "switch": Switch(), "text": Text()}  # or a list of words
SEVERITIES = (CRITICAL, WARNING)
RELATIONS = ("eq", "le", "ge", "present")
FAMILY_KEYS = ("family", "meaning", "options", "algorithms", "settings", "forbidden")
SETTING_KEYS = (
    "meaning", "type", "minimum", "maximum", "flag", "environment", "algorithms", "can_be_off", "default", "needs",
    "refuse", "witnesses", "contradict", "benign", "severity",
)  # fmt: skip
WITNESS_KEYS = ("line", "granted", "served", "field", "relation", "expect")


class BadContract(Exception):
    """The file is no contract. `problems` is a list of sentences, each with file and line."""

    def __init__(self, problems):
        super().__init__("\n".join(problems))
        self.problems = problems


def read(document):
    """The built-in contract with a fork's over it. Raises BadContract.

    document: {"file": path, "data": what the file holds, "lines": {"settings.topk.flag": 17, …}}.
    """
    reader = _Reader(document["file"], document["lines"])
    contract = reader.contract(document["data"])
    if reader.problems:
        raise BadContract(reader.problems)
    return contract


class _Reader:
    def __init__(self, file, lines):
        self.file, self.lines = file, lines
        self.names = set()
        self.problems = []

    def contract(self, data):
        data = self.mapping("", data, FAMILY_KEYS, ("family", "options", "algorithms", "settings"))
        algorithms = self.words("algorithms", data.get("algorithms"), r"[A-Z][A-Z0-9_]*", "names like DDTREE")
        family = Family(
            name=self.text("family", data.get("family"), r"[a-z][a-z0-9_-]*", "a name of small letters"),
            meaning=self.text("meaning", data.get("meaning", "a fork")),
            options=self.words("options", data.get("options"), r"--[a-z][a-z0-9-]*", "options like --speculative-x"),
            algorithms=tuple(dict.fromkeys([*algorithms, *FAMILIES[-1].algorithms])),
        )
        if "options" in data and not family.options:
            self.bad("options", "is empty, but it tells this build from a released one: name the options that only it has")
        entries = self.mapping("settings", data.get("settings", {}))
        self.names = {"declared", *BUILT_IN.names(), *entries}
        settings = tuple(self.setting(name, entry, family.name, algorithms) for name, entry in entries.items())
        forbidden = self.each("forbidden", data.get("forbidden"), self.forbidden)
        return replace(
            BUILT_IN,
            families=(family, *BUILT_IN.families),
            settings=(*settings, *BUILT_IN.settings),
            forbidden=(*BUILT_IN.forbidden, *(line for line in forbidden if line)),
        )

    def setting(self, name, data, family, algorithms):
        at = f"settings.{name}"
        data = self.mapping(at, data, SETTING_KEYS, ("type",))
        if "algorithms" in data:
            algorithms = self.words(f"{at}.algorithms", data["algorithms"], r"[A-Z][A-Z0-9_]*", "names like DDTREE")
        return Setting(
            name=name,
            meaning=self.text(f"{at}.meaning", data.get("meaning", name)),
            type=self.type(at, data),
            carried_by=self.carriers(at, data),
            source=self.where(at),
            algorithms=algorithms,
            family=family,
            can_be_off=self.one_of(f"{at}.can_be_off", data.get("can_be_off", False), (True, False)),
            default=self.expression(f"{at}.default", data.get("default")),
            needs=self.words(
                f"{at}.needs", data.get("needs", ()), "|".join(map(re.escape, self.names)), "names of settings"
            ),
            refuse=self.each(f"{at}.refuse", data.get("refuse"), self.refusal),
            witnesses=self.each(f"{at}.witnesses", data.get("witnesses"), self.witness),
            contradict=self.each(f"{at}.contradict", data.get("contradict"), self.text),
            benign=self.each(f"{at}.benign", data.get("benign"), self.text),
            severity=self.one_of(f"{at}.severity", data.get("severity", CRITICAL), SEVERITIES),
        )

    def type(self, at, data):
        kind = data.get("type")
        if isinstance(kind, list):
            fold = "upper" if at == "settings.spec_algorithm" else None  # as the engine does
            return Choice(self.words(f"{at}.type", kind, r"\S+", "a list of words"), fold)
        if "type" in data:
            self.one_of(f"{at}.type", kind, tuple(TYPES), "or a list of words")
        bounds = {
            key: self.expression(f"{at}.{key}", data[key] if isinstance(data[key], str) else str(data[key]))
            for key in ("minimum", "maximum")
            if key in data
        }
        if bounds and kind != "integer":
            self.bad(f"{at}.{next(iter(bounds))}", "only an integer has bounds")
        return Integer(**bounds) if kind == "integer" else TYPES.get(kind)

    def carriers(self, at, data):
        if "flag" in data and "environment" in data:
            self.bad(f"{at}.environment", "a setting is carried by a flag or by a variable, not by both")
        if "flag" in data:
            return (Flag(self.text(f"{at}.flag", data["flag"], r"--[a-z][a-z0-9-]*", "an option like --speculative-x")),)
        if "environment" in data:
            wanted = "a variable like SGLANG_X"
            return (Environment(self.text(f"{at}.environment", data["environment"], r"[A-Z][A-Z0-9_]*", wanted)),)
        return ()

    def witness(self, at, data):
        data = self.mapping(at, data, WITNESS_KEYS)
        kinds = [key for key in ("line", "granted", "served") if key in data]
        if len(kinds) != 1:
            self.bad(at, "it needs one of line (how a line of the log begins), granted or served (a field)")
            return None
        place = self.text(f"{at}.{kinds[0]}", data[kinds[0]])
        field = self.text(f"{at}.field", data["field"]) if "field" in data else None
        relation = self.one_of(f"{at}.relation", data.get("relation", "eq" if field else "present"), RELATIONS)
        expect = self.expression(f"{at}.expect", data.get("expect", "declared"))
        if kinds[0] != "line":
            return {"granted": Granted, "served": Served}[kinds[0]](place, data.get("relation", "eq"), expect)
        if (field is None) != (relation == "present"):
            self.bad(at, "a line is present, or it has a field to compare")
        return Line(place, field, relation, expect)

    def refusal(self, at, data):
        data = self.mapping(at, data, ("when", "because"), ("when", "because"))
        when = self.expression(f"{at}.when", data.get("when", "True"))
        return Refuse(when, self.text(f"{at}.because", data.get("because", "")))

    def forbidden(self, at, data):
        data = self.mapping(at, data, ("text", "reason", "severity"), ("text", "reason"))
        return Forbidden(
            self.text(f"{at}.text", data.get("text")),
            self.text(f"{at}.reason", data.get("reason")),
            self.one_of(f"{at}.severity", data.get("severity", CRITICAL), SEVERITIES),
        )

    # ---- kinds of values ----

    def mapping(self, at, data, known=(), required=()):
        if not isinstance(data, dict):
            self.bad(at, "must be keys with values")
            return {}
        prefix = f"{at}." if at else ""
        for key in data:
            if known and key not in known:
                nearest = difflib.get_close_matches(str(key), known, 1)
                self.bad(f"{prefix}{key}", f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known)}")
        for key in required:
            if key not in data:
                self.bad(at, f"{key} is missing")
        return data

    def each(self, at, data, read):
        if data is None:
            return ()
        if not isinstance(data, list):
            self.bad(at, "must be a list")
            return ()
        return tuple(read(f"{at}.{position}", item) for position, item in enumerate(data))

    def text(self, at, value, pattern=r".+", wanted="one line of text"):
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            if at in self.lines:  # what is missing was said already
                self.bad(at, f"is {value!r}, but it must be {wanted}")
            return ""
        return value

    def words(self, at, value, pattern, wanted):
        if not isinstance(value, (list, tuple)):
            if at in self.lines:
                self.bad(at, f"must be a list of {wanted}")
            return ()
        return tuple(self.text(f"{at}.{n}", word, pattern, f"one of {wanted}") for n, word in enumerate(value))

    def one_of(self, at, value, choices, more=""):
        if value not in choices:
            nearest = difflib.get_close_matches(str(value), [str(c) for c in choices], 1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            self.bad(at, f"is {value!r}, but it must be one of {', '.join(map(str, choices))} {more}".rstrip() + hint)
        return value

    def expression(self, at, text):
        if text is None:
            return None
        text = str(text)
        try:
            names = expressions.names_in(text)
        except expressions.Malformed as error:
            self.bad(at, str(error))
            return "None"
        for name in sorted(names):
            if name not in self.names and not name.startswith(("drafter.", "target.")):
                nearest = difflib.get_close_matches(name, self.names, 1)
                self.bad(at, f"no setting is named {name}" + (f"; did you mean {nearest[0]}?" if nearest else ""))
        return text

    def where(self, at):
        while at and at not in self.lines:
            at = at.rpartition(".")[0]
        return f"{self.file}:{self.lines.get(at, 1)}"

    def bad(self, at, text):
        self.problems.append(f"{self.where(at)}: {at or 'the file'}: {text}")
