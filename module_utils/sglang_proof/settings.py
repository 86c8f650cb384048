"""One strict reader for declared values, whatever brought them here: `-e window=2048`, YAML, JSON.

A declared value is a value, OFF (`none`: declared off, and proved off) or UNSET (`unset`: not declared, nothing is claimed).
Extra vars are strings, and Ansible converts nothing on the way (ansible-core 2.19), so "2048" and 2048 mean the same
and what only looks like a number (`2_048`, `2048.0`, ` `) means nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


class _Mark:
    def __init__(self, word):
        self.word = word

    def __repr__(self):
        return self.word


OFF = _Mark("none")
UNSET = _Mark("unset")


class BadValue(ValueError):
    """The text of the exception says what was expected; the caller adds the setting's name."""


@dataclass(frozen=True)
class Integer:
    """A whole number; `minimum` and `maximum` are expressions of the contract's grammar, both inclusive."""

    minimum: str = "1"
    maximum: str | None = None
    wanted = "a whole number"

    def read(self, raw):
        if type(raw) is int and abs(raw) < 10**18:
            return raw
        if isinstance(raw, str) and _INTEGER.fullmatch(raw):
            return int(raw)
        raise BadValue(self.wanted)


@dataclass(frozen=True)
class Number:
    """A decimal number between two bounds (expressions of the contract's grammar cannot hold decimals: plain values)."""

    minimum: float
    maximum: float
    wanted = "a number"

    def read(self, raw):
        if isinstance(raw, str) and _NUMBER.fullmatch(raw):
            raw = float(raw)
        if type(raw) not in (int, float) or not self.minimum <= raw <= self.maximum:
            raise BadValue(f"a number from {self.minimum} to {self.maximum}")
        return raw


@dataclass(frozen=True)
class Text:
    """One line of text without control characters; `pattern` narrows it, and `wanted` says so in words."""

    pattern: str = r".+"
    wanted: str = "one line of text"

    def read(self, raw):
        # A value that begins with "-" would be taken for another option by the engine's argparse.
        if (
            isinstance(raw, str)
            and raw == raw.strip()
            and raw.isprintable()
            and not raw.startswith("-")
            and re.fullmatch(self.pattern, raw)
        ):
            return raw
        raise BadValue(self.wanted)


@dataclass(frozen=True)
class Choice:
    """One of a few words; upper and lower case are the same if `fold` is given ("upper" or "lower")."""

    words: tuple
    fold: str | None = None

    def read(self, raw):
        folded = getattr(raw, self.fold)() if self.fold and isinstance(raw, str) else raw
        if isinstance(folded, str) and folded in self.words:
            return folded
        raise BadValue("one of " + ", ".join(self.words))


class Switch:
    """A flag without a value: true, or off."""

    def read(self, raw):
        if raw is True or (isinstance(raw, str) and raw.lower() == "true"):
            return True
        if raw is False or (isinstance(raw, str) and raw.lower() == "false"):
            return OFF
        raise BadValue("true or false")


def read(kind, raw):
    """A raw value as declared: a value of the kind, OFF or UNSET. Raises BadValue with what was expected."""
    if raw is None or (isinstance(raw, str) and raw.lower() in ("none", "null")):
        return OFF
    if is_unset(raw):
        return UNSET
    return kind.read(raw)


def is_unset(raw):
    """Whether a raw value says that the setting is not declared; it can be asked without knowing the setting's type."""
    return isinstance(raw, str) and raw.lower() == "unset"


def shown(value):
    """A value as a person writes it: `none` for OFF and None, otherwise its plain text."""
    return "none" if value is None or value is OFF else str(value)
