"""What an installed SGLang says about itself, read from its files without importing it.

An engine is recognised by what it can be told (the options of its argument parser) and by what it can say
(the messages it logs), not by its version number: a fork reports the release that it was based on.

Importing SGLang costs a torch import and ``--help`` hides options, so the source is read instead. Options
are declared in two ways: ``parser.add_argument("--x", …)`` and, in later releases, ``x: A[int, Arg(…)] = …``
in a record class (``A`` is ``typing.Annotated``; sglang 0.5.23 srt/arg_groups/arg_utils.py).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PLACEHOLDER = "{}"


class NotAnEngine(Exception):
    """The directory does not hold an SGLang that can be read; the text says what was looked for and where."""


@dataclass(frozen=True)
class Option:
    """One option string of the engine's argument parser.

    ``field`` is the name under which the engine keeps and echoes the value. ``values`` says what follows the
    flag on a command line: "none", "one", "optional" (none or one) or "many".
    """

    flag: str
    field: str
    action: str
    values: str


@dataclass(frozen=True)
class EngineFacts:
    """Release, options and log templates of one installed engine; ``fingerprint`` identifies the three."""

    release: str
    options: tuple[Option, ...]
    templates: tuple[str, ...]
    fingerprint: str

    def option(self, flag: str) -> Option | None:
        """The option spelled exactly ``flag`` (without ``=value``), or None."""
        return next((option for option in self.options if option.flag == flag), None)

    def abbreviates(self, flag: str) -> tuple[str, ...]:
        """The options that ``flag`` is a proper prefix of.

        argparse takes an unknown flag for the only option that it abbreviates, which in the next release can
        be another one (no SGLang release sets ``allow_abbrev=False``). So refuse a flag that ``option`` does
        not know, even where the engine would accept it.
        """
        return tuple(o.flag for o in self.options if o.flag.startswith(flag) and o.flag != flag)

    def has_template(self, text: str) -> bool:
        """Whether the engine can log a message that begins with ``text``; values are ``{}`` in templates."""
        return any(template.startswith(text) for template in self.templates)

    def last_field(self, text: str) -> str | None:
        """The last ``name=value`` of the message that begins with ``text``, or None where it ends otherwise."""
        ends = [re.search(r"(\w+)=\{\}$", template) for template in self.templates if template.startswith(text)]
        return ends[0][1] if len(ends) == 1 and ends[0] else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "release": self.release,
            "options": [asdict(option) for option in self.options],
            "templates": list(self.templates),
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EngineFacts:
        options = tuple(Option(**option) for option in data["options"])
        return cls(data["release"], options, tuple(data["templates"]), data["fingerprint"])


def read_engine(package_dir: Path, metadata_dir: Path | None = None, release: str | None = None) -> EngineFacts:
    """Read the engine in ``package_dir`` (the directory that is imported as ``sglang``).

    ``metadata_dir`` is its ``*.dist-info``; a checkout without one tells its release in ``_version.py`` or
    ``version.py``, unless ``release`` is given. Raises NotAnEngine.
    """
    release = release or _release(package_dir, metadata_dir)
    options = _options(package_dir)
    templates = _templates(package_dir / "srt")
    content = json.dumps([release, [asdict(option) for option in options], templates])
    fingerprint = hashlib.sha256(content.encode()).hexdigest()
    return EngineFacts(release, tuple(options), tuple(templates), fingerprint)


def source_key(package_dir: Path, metadata_dir: Path | None = None) -> str:
    """SHA-256 over what ``read_engine`` depends on, cheaper than the source: equal keys, equal facts.

    That is the installer's RECORD, each file's size and time (a patch in place is not in RECORD), and this
    reader.
    """
    digest = hashlib.sha256(__spec__.loader.get_source(__name__).encode())
    record = metadata_dir / "RECORD" if metadata_dir else None
    if record and record.is_file():
        digest.update(record.read_bytes())
    for path in sorted(package_dir.rglob("*.py")):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def installation_key(package_dir: Path) -> str:
    """SHA-256 over what the engine's interpreter would run: another key, another engine, whatever release it bears.

    That is what pip recorded of each installed package, the start-up hooks beside them, and size and time of the
    engine's own files (a patch in place is in no RECORD).
    """
    digest = hashlib.sha256()
    site = package_dir.parent
    hooks = [*site.glob("*.pth"), *site.glob("*customize.py")]
    for path in sorted([*site.glob("*.dist-info/RECORD"), *hooks]):
        digest.update(f"{path}\0".encode() + path.read_bytes())
    for path in sorted(package_dir.rglob("*.py")):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _release(package_dir: Path, metadata_dir: Path | None) -> str:
    in_source = r"""^__version__\b.*=\s*["']([^"']+)["']"""
    places = [(package_dir / "_version.py", in_source), (package_dir / "version.py", in_source)]
    if metadata_dir:
        places.insert(0, (metadata_dir / "METADATA", r"^Version:\s*(\S+)"))
    for path, pattern in places:
        found = path.is_file() and re.search(pattern, _text(path), re.MULTILINE)
        if found:
            return found.group(1)
    raise NotAnEngine(f"No SGLang release is told by {', '.join(str(path) for path, _ in places)}.")


def _text(path: Path) -> str:
    return path.read_text("utf-8-sig", errors="replace")


# ---- options ----


def _options(package_dir: Path) -> list[Option]:
    srt = package_dir / "srt"
    files = [srt / "server_args.py", *sorted((srt / "arg_groups").rglob("*.py"))]
    try:
        trees = [ast.parse(_text(path), str(path)) for path in files if path.is_file()]
    except SyntaxError as error:
        raise NotAnEngine(f"This Python cannot read the engine's source: {error}.") from error
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    valueless = {node.name for node in classes if _is_valueless_action(node)}
    renamed = {old: new for tree in trees for old, new in _renamed(tree)}
    found = {}
    for declaration in (*map(_annotated, classes), *map(_added, calls)):
        for flags, field, keywords in declaration:
            for option in _spellings(flags, renamed.get(field, field), keywords, valueless):
                found[option.flag] = option
    if not found:
        raise NotAnEngine(f"{srt}/server_args.py and {srt}/arg_groups declare no option of a server.")
    return [found[flag] for flag in sorted(found)]


_Declaration = tuple[list[str], str, dict[str, ast.expr]]  # flags, field, keywords as of add_argument


def _added(call: ast.Call) -> Iterator[_Declaration]:
    if getattr(call.func, "attr", None) != "add_argument":
        return
    flags = [text for text in map(_literal, call.args) if isinstance(text, str) and text.startswith("--")]
    if flags:
        keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        yield flags, _literal(keywords.get("dest")) or _field(flags[0]), keywords


def _annotated(record: ast.ClassDef) -> Iterator[_Declaration]:
    for field in record.body:
        note = field.annotation if isinstance(field, ast.AnnAssign) else None
        if not isinstance(note, ast.Subscript) or _name(note.value) not in ("A", "Annotated"):
            continue
        if not isinstance(note.slice, ast.Tuple):
            continue
        kind, *notes = note.slice.elts
        arg = next((x for x in notes if _name(x) == "Arg"), None)
        if arg is None and not any(isinstance(x, (ast.Constant, ast.JoinedStr)) for x in notes):
            continue  # the engine registers only fields with Arg(…) or a help text
        keywords = {keyword.arg: keyword.value for keyword in arg.keywords if keyword.arg} if arg else {}
        if _literal(keywords.get("no_cli")):
            continue
        name = field.target.id
        flag = _literal(keywords.get("cli_name")) or "--" + name.replace("_", "-")
        aliases = _literal(keywords.get("aliases")) or []
        yield [flag, *aliases], name, {**_implied(kind, keywords), **keywords}


def _implied(kind: ast.expr, keywords: Mapping[str, ast.expr]) -> dict[str, ast.expr]:
    """What the engine derives from an annotated type: bool is a switch, a list takes many values."""
    extra = keywords.get("action_kwargs")
    if isinstance(extra, ast.Dict):
        return {_literal(key): value for key, value in zip(extra.keys, extra.values)}
    if isinstance(kind, ast.Subscript) and _name(kind.value) == "Optional":
        kind = kind.slice
    if isinstance(kind, ast.BinOp):  # T | None
        kind = kind.left
    if _name(kind) == "bool":
        return {"action": ast.Constant("store_true")}
    is_list = isinstance(kind, ast.Subscript) and _name(kind.value) in ("List", "list")
    return {"nargs": ast.Constant("+")} if is_list and "type_parser" not in keywords else {}


def _spellings(flags: list[str], field: str, keywords: Mapping[str, ast.expr], valueless: set) -> Iterator[Option]:
    action = _literal(keywords.get("action")) or _name(keywords.get("action")) or "store"
    if "nargs" in keywords:
        values = {None: "one", 0: "none", "?": "optional"}.get(_literal(keywords["nargs"]), "many")
    else:
        switches = {"store_true", "store_false", "store_const", "BooleanOptionalAction", *valueless}
        values = "none" if action in switches else "one"
    if action == "BooleanOptionalAction":
        flags = flags + ["--no-" + flag[2:] for flag in flags]
    for flag in flags:
        yield Option(flag, field, action, values)


def _is_valueless_action(node: ast.ClassDef) -> bool:
    """Whether this argparse.Action says ``nargs=0``, as a default of its __init__."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            names = [argument.arg for argument in method.args.args]
            defaults = dict(zip(reversed(names), reversed(method.args.defaults)))
            return "nargs" in defaults and _literal(defaults["nargs"]) == 0
    return False


def _renamed(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """`args.tp_size = args.tensor_parallel_size`: kept and echoed as tp_size (from_cli_args, sglang 0.5.11 … 0.5.13)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and _name(target.value) == _name(node.value.value) == "args":
                yield node.value.attr, target.attr


def _field(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _name(node: ast.AST | None) -> str | None:
    """`X`, `m.X` and `X(…)` are named X."""
    if isinstance(node, ast.Call):
        node = node.func
    return getattr(node, "attr", None) or getattr(node, "id", None)


def _literal(node: ast.AST | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


# ---- log templates ----

# `logger.info(…)`, `self.logger.warning_once(…)`, `log_info_on_rank0(logger, …)`; debug is off by default.
_LOG_CALL = re.compile(
    r"\blogger\.(?:info|warn|warning|error|exception|critical)(?:_once)?\(|\blog_(?!debug)\w+\(\s*logger\b"
)
_CONVERSION = re.compile(r"%(?:\(\w+\))?[-#0 +]*[\d*]*(?:\.[\d*]+)?[a-zA-Z]")
_LONGEST = 40  # lines that one logging call may have; in 0.5.11 … 0.5.23 all are shorter


def _templates(source: Path) -> list[str]:
    """Every message that the source logs, sorted, each value in it as a placeholder.

    Only the logging calls are parsed, not the 36 MB around them: faster, and independent of syntax that is
    newer than this Python.
    """
    found = set()
    for path in source.rglob("*.py"):
        text = _text(path)
        for start in (match.start() for match in _LOG_CALL.finditer(text)):
            is_comment = "#" in text[text.rfind("\n", 0, start) + 1 : start]
            if not is_comment:
                found.update(_messages(text, _statement(text, start)))
    return sorted(found)


def _messages(text: str, statement: ast.stmt | None) -> Iterator[str]:
    call = getattr(statement, "value", None)
    if not isinstance(call, ast.Call):
        return
    arguments = [argument for argument in call.args if _name(argument) != "logger"]
    if not arguments:
        return
    message, has_values = arguments[0], len(arguments) > 1
    sources = [message]
    if isinstance(message, ast.Name):  # msg = f"…"; msg += f"…"; logger.info(msg)
        starts = re.finditer(rf"^[ \t]*({message.id}) *\+?=(?!=)", text, re.MULTILINE)
        sources = [getattr(_statement(text, start.start(1)), "value", None) for start in starts]
    for template in (_template(source, has_values) for source in sources):
        if template.replace(PLACEHOLDER, "").strip():
            yield template


def _statement(text: str, start: int) -> ast.stmt | None:
    """The simple statement that begins at ``start``, or None where none does."""
    end = start
    for _ in range(_LONGEST):
        end = text.find("\n", end + 1)
        end = len(text) if end < 0 else end
        try:
            return ast.parse(text[start:end]).body[0]
        except (SyntaxError, ValueError):
            continue
    return None


def _template(node: ast.AST | None, has_values: bool) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _CONVERSION.sub(PLACEHOLDER, node.value).replace("%%", "%") if has_values else node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part, has_values) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left, has_values) + _template(node.right, has_values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _template(node.left, True)
    if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "format":
        return _template(node.func.value, has_values)
    return PLACEHOLDER
