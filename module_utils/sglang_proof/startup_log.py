"""What one start of SGLang said about itself: server_args, statements, ready or not. Pure, no I/O.

Line formats: sglang 0.5.11 … 0.5.23, read from the sources and from runs of each release.
"""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass, replace

from .contract import ENDINGS
from .failure import FailureLog
from .journal import STAMP, Record

READY = "The server is fired up and ready to roll!"

# Which release has exactly these names of fields: SHA-256 of the sorted names. A post release has those of its base.
_RELEASES = {
    "f214f6c1d1c5": "0.5.11",
    "ed77e6fb815c": "0.5.12",
    "bc46bfd130f3": "0.5.13",
    "9c382d6f5638": "0.5.14",
    "335de71533f3": "0.5.15",
    "77fa24bac4c0": "0.5.16",
    "209c60dd8cbb": "0.5.17",
    "41f16f23923e": "0.5.18",
    "3208526e1cd2": "0.5.19",
    "734c7a736d59": "0.5.20",
    "15174833395c": "0.5.21",
    "0b9a1b186c60": "0.5.22",
    "59452ce9b463": "0.5.23",
}
# How a line begins or goes on that tells of a setting of which the engine made something else (0.5.11 … 0.5.23).
# Each line of a start is searched: no IGNORECASE, which makes it five times as slow.
_OVERRIDE = re.compile(
    r"[Oo]verrid(?:ing |es |den )|(?:is|was|are|been) (?:re)?set to |adjusted to |was reduced |"
    r"(?:is|are) (?:disabled|ignored|forced) (?:because|since|when|as|for|to)\b|will (?:fallback|fall back|be ignored)|"
    r"mismatch: using |[Ff]alls? ?back to |has no effect|KV pool holds \d+ tokens, fewer|"
    r"[Aa]utomatically (?:set|enabl|disabl|adjust)"
)


class Unreadable(ValueError):
    """Text that can't be read in full; the message says why."""


@dataclass(frozen=True)
class Echo:
    """The launcher's ``server_args=`` line.

    ``values`` are the fields that are literals, ``unreadable`` the names of the others. With ``problem``
    nothing was read. A name in neither is unknown: it was not printed, which is no default.
    """

    values: dict
    unreadable: frozenset
    record: Record
    problem: str | None = None

    @property
    def release(self):
        """The SGLang whose fields these are: of a fork the release it comes from, if it adds none; None if unknown."""
        names = " ".join(sorted([*self.values, *self.unreadable]))
        return _RELEASES.get(hashlib.sha256(names.encode("utf-8", "replace")).hexdigest()[:12])


@dataclass(frozen=True)
class Statement:
    """A line ``head key=value, …``. ``speaker`` holds its ranks: ``{"DP": 0, "TP": 1}``.

    Where ``problem`` is set nothing was read.
    """

    fields: dict
    speaker: dict
    record: Record
    problem: str | None = None


_MARK = re.compile(r"['\"()\[\]{}<>,…]|\.\.\.")
_STRING = {quote: re.compile(rf"{quote}[^{quote}\\]*(?:\\.[^{quote}\\]*)*{quote}", re.DOTALL) for quote in "'\""}
_CLOSER = {"(": ")", "[": "]", "{": "}", "<": ">"}
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ITEM = re.compile(r"\s*['\"]([^'\"\\]*)['\"]\s*:(.*)", re.DOTALL)
_SCALAR = re.compile(r"[-+]?(?:\d+(?P<real>\.\d*(?:[eE][-+]?\d+)?|[eE][-+]?\d+)?|\.\d+)")
_WORDS = {"None": None, "True": True, "False": False}


def split_fields(text, start, closer=""):
    """Split ``text`` at its top-level commas, from ``start`` to ``closer``, in linear time.

    Before ``start`` stands what opens the fields: a bracket or a comma. Brackets, quoted strings and reprs in
    angle brackets stay whole; a quote counts where a value can begin.
    """
    pieces, begin, position, closers = [], start, start, []
    while True:
        mark = _MARK.search(text, position)
        if mark is None:
            break
        at, position, symbol = mark.start(), mark.end(), mark[0]
        if symbol in ("...", "…"):
            raise Unreadable("parts of the line were left out (…)")
        if symbol in "'\"":
            if _value_begins(text, at):
                string = _STRING[symbol].match(text, at)
                if string is None:
                    raise Unreadable("a string is not closed: the line is cut or wrapped")
                position = string.end()
        elif symbol == "<":
            if closers[-1:] == [">"] or _value_begins(text, at):
                closers.append(">")
        elif symbol in _CLOSER:
            closers.append(_CLOSER[symbol])
        elif symbol == ",":
            if not closers:
                pieces.append(text[begin:at])
                begin = position
        elif closers:
            if symbol == closers[-1]:
                closers.pop()
            elif ">" not in (symbol, closers[-1]):
                raise Unreadable(f"{symbol!r} where {closers[-1]!r} was expected: parts of the line are missing")
        elif symbol == closer:
            if text[position:].strip():
                raise Unreadable("text follows the closing bracket")
            return _with_last(pieces, text[begin:at])
    if closers or closer:
        raise Unreadable("a bracket is not closed: the line is cut or wrapped")
    return _with_last(pieces, text[begin:])


def _with_last(pieces, last):
    return [*pieces, last] if last.strip() else pieces


def _value_begins(text, at):
    at -= 1
    if text[at] in "bB":
        at -= 1
    while text[at] == " ":
        at -= 1
    return text[at] in "=:,([{"


def parse_echo(text):
    """Read ``ServerArgs(k=v, …)`` (to 0.5.18) or ``{'k': v, …}`` (from 0.5.19): (values, unreadable)."""
    values, unreadable, name = {}, set(), "server_args="
    if text.startswith("ServerArgs("):
        pieces, field_of = split_fields(text, len("ServerArgs("), ")"), _KEYWORD
    elif text.startswith("{"):
        pieces, field_of = split_fields(text, 1, "}"), _ITEM
    else:
        form = re.match(r"[\w.]*", text)[0]
        raise Unreadable(f"neither ServerArgs(…) nor a dict, but {form}…")
    for piece in pieces:
        match = field_of.fullmatch(piece)
        if match is None:
            raise Unreadable(f"what follows {name} is no field")
        name, value = match[1], match[2].strip()
        if name in values or name in unreadable:
            raise Unreadable(f"{name} is there twice")
        try:
            if "..." in value or "…" in value:
                raise Unreadable("parts were left out")
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            unreadable.add(name)
    if not pieces:
        raise Unreadable("no fields")
    return values, frozenset(unreadable)


def parse_statement(head, body, last=None):
    """Read the fields of a statement. A head that ends in ``=`` is the first field's name, `last` is the last field's."""
    ending = ENDINGS.get(head)
    if not body.startswith(head) or (ending and not re.search(ending + "$", body)):
        raise Unreadable("the line is cut or parts of it were left out")
    rest = body if head.endswith("=") else body[len(head) :]
    fields = {}
    for piece in split_fields("," + rest, 1):
        match = _KEYWORD.fullmatch(piece)
        if match is None or not match[2].strip():
            raise Unreadable(f"no key=value: {piece.strip()[:40]!r}")
        if match[1] in fields:
            raise Unreadable(f"{match[1]} is there twice")
        fields[match[1]] = _scalar(match[2].strip())
    if not fields:
        raise Unreadable("no fields")
    if last and not ending and last != [*fields][-1]:
        raise Unreadable(f"the line is cut: it ends with {last}")
    return fields


def _scalar(text):
    if text in _WORDS:
        return _WORDS[text]
    number = _SCALAR.fullmatch(text)
    if number is None or len(text) > 40:
        return text
    return float(text) if number["real"] or "." in text else int(text)


class StartupLog:
    """The evidence in the records of one start; ``add`` them in their order, as they come.

    ``heads`` are the beginnings of the statements looked for, for example "Initialized DFLASH draft runner.", and may
    map to the last field of each, without which it is cut.
    ``alarming`` are texts that must not be said, and a line with a ``benign`` text is none, whatever else it says;
    ``alarms`` has the first record with each. ``ready`` is the record of the ready line. ``unreadable`` are records
    that may be evidence and can't be read, ``problem`` says why; ``overrides`` are the lines up to ready by which the
    engine says that it made something else of a setting; ``suppressed`` are journald's notes that it dropped
    messages. With one of either, what is not there may have been said; ``gaps`` are those of which not a word is
    left, each with whether it came before the ready line.
    """

    def __init__(self, heads, alarming=(), benign=()):
        self.statements = {head: [] for head in heads}
        self._last = dict(heads) if isinstance(heads, dict) else {}
        self.alarms = {}
        self._alarming, self._benign = tuple(alarming), tuple(benign)
        self._any = re.compile("|".join(map(re.escape, self._alarming)) or r"(?!)")
        self.gaps = []
        self.unit = None  # of which the start is, where it is known
        self.ready = None
        self.unreadable = []
        self.suppressed = []
        self.echoes = []
        self.overrides = []
        self._failure = FailureLog()

    def add(self, record):
        if record.text is None or record.origin == "journald":
            self.gaps.append((record, self.ready is None))
        if record.text is None:
            self.unreadable.append(record)
        elif record.origin == "journald":
            self.suppressed.append(record)
        elif record.origin == "service":
            for line in record.text.split("\n"):
                self._line(line, record)
        else:
            self._failure.outside(record)

    @property
    def echo(self):
        """The launcher's echo, None if there was none; two that differ are one that can't be read."""
        if not self.echoes:
            return None
        first, *others = self.echoes
        if all((other.values, other.unreadable) == (first.values, first.unreadable) for other in others):
            return first
        cursors = ", ".join(str(echo.record.cursor) for echo in self.echoes)
        problem = f"server_args= was printed more than once, and differs: {cursors}"
        return Echo({}, frozenset(), first.record, problem)

    def failure(self):
        """Return the true cause of its end, None if nothing is known. Ask only when the start has ended."""
        return self._failure.cause(self.unit)

    def _line(self, line, record):
        speaker, body, stamped = read_prefix(line)
        head = next((head for head in self.statements if _begins(body, head)), None)
        if head:
            self._state(head, body, speaker, record)
        elif body.startswith("server_args=") and not speaker:
            self._echo(body[len("server_args=") :], record)
        elif body.strip() == READY and not speaker:
            self.ready = self.ready or record
        else:
            if stamped and not self.ready and body not in self.overrides and _OVERRIDE.search(body):
                self.overrides += [] if self._is_benign(body) else [body]
            if self._any.search(body) and not self._is_benign(body):
                for text in self._alarming:
                    if text in body:
                        self.alarms.setdefault(text, record)
            self._failure.line(body, stamped, record)
            return
        self._failure.progress(echo=bool(self.echoes), ready=bool(self.ready))

    def _is_benign(self, body):
        return any(text in body for text in self._benign)

    def _echo(self, text, record):
        try:
            echo = Echo(*parse_echo(text.strip()), record)
        except Unreadable as error:
            echo = Echo({}, frozenset(), record, str(error))
            self.unreadable.append(replace(record, problem=str(error)))
        self.echoes.append(echo)

    def _state(self, head, body, speaker, record):
        try:
            statement = Statement(parse_statement(head, body.strip(), self._last.get(head)), speaker, record)
        except Unreadable as error:
            statement = Statement({}, speaker, record, str(error))
            self.unreadable.append(replace(record, problem=str(error)))
        self.statements[head].append(statement)


def _begins(body, head):
    """Tell whether this is a line with this head, or what a cut or an elision in the head left of one."""
    return body.startswith(head) or (body[:14] == head[:14] and head.startswith(re.split(r"\.\.\.|…", body)[0]))


def read_prefix(line):
    """Split ``[2026-05-20 10:00:00 DP0 TP1] body`` into {"DP": 0, "TP": 1}, body, whether it is stamped."""
    stamp = STAMP.match(line)
    if stamp is None:
        return {}, line, False
    tags = (re.fullmatch(r"([A-Z_]+)(\d{1,9})", tag) for tag in stamp["tags"].split())
    return {tag[1]: int(tag[2]) for tag in tags if tag}, line[stamp.end() :], True
