"""systemd units as data: quote what is written into them, read what systemd and the kernel hold of them.

What is written here comes back unchanged, whatever the value: declared value → unit file → systemd → process.
Rules of quoting: systemd.service(5) "Command lines", systemd.syntax(7) "Quoting", systemd.exec(5)
"Environment="; held to by tests/integration/test_quoting.py on a real systemd.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# ---- writing ----

_SAFE = re.compile(r"[A-Za-z0-9_./:,=+@-]+")
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\t": r"\t", "\r": r"\r"}


def quote(value: str) -> str:
    """``value`` as one argument of ``ExecStart=``: not split, no ``$VARIABLE`` or ``%specifier`` replaced.

    Raises ValueError for text that no process can be given: NUL, or text that is no Unicode.
    """
    return _quoted(value.replace("$", "$$"))


def exec_start(argv: Sequence[str]) -> str:
    """The value of ``ExecStart=`` that starts ``argv``; ``argv[0]`` is the absolute path of the program.

    Raises ValueError as ``quote`` does, and for a program that systemd would not start as it is written: no
    absolute path, or one with quotes, backslashes, control characters or ``$``.
    """
    program, *arguments = argv
    if not re.fullmatch(r"/[^\x00-\x1f\x7f\"'\\$]*", program):
        raise ValueError(f"ExecStart needs an absolute path without quotes, \\ and $, not {program!r}.")
    return " ".join([_quoted(program), *map(quote, arguments)])


def environment_line(name: str, value: str) -> str:
    """The ``Environment=`` line that sets one variable.

    Raises ValueError for a name that is none, and for control characters other than tab and newline: systemd
    drops such an assignment and starts the service without it.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} is not the name of an environment variable.")
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", value):
        raise ValueError(f"{name}: systemd sets no variable that has control characters: {value!r}.")
    return "Environment=" + _quoted(f"{name}={value}")


def _quoted(value: str) -> str:
    if "\0" in value:
        raise ValueError(f"A process cannot be given a NUL: {value!r}.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"A unit file holds Unicode text only, not {value!r}.") from error
    value = value.replace("%", "%%")
    if _SAFE.fullmatch(value):
        return value
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    if unicodedata.category(character) == "Cc":
        return _ESCAPES.get(character) or "".join(f"\\x{byte:02x}" for byte in character.encode())
    return _ESCAPES.get(character, character)


# ---- reading ----

_BUS = "org.freedesktop.systemd1"


@dataclass(frozen=True)
class Unit:
    """A service as systemd holds it now; empty or zero where systemd says nothing.

    systemd forgets invocation, start and exit of a service that is stopped and that no other unit refers to;
    it keeps those of a failed one.

    ``argv`` is what the main process is started with. Arguments that a hand-written unit lets systemd expand
    from the environment are also listed in ``expanded``, because what they become is not known here; units
    written with ``exec_start`` have none. ``environment`` is that of ``Environment=`` alone: the files of
    ``environment_files`` are read by systemd at each start. ``exec_main_start`` is in seconds since 1970.
    """

    name: str
    load_state: str
    load_error: str
    active_state: str
    sub_state: str
    result: str
    unit_file_state: str
    fragment_path: str
    drop_in_paths: tuple[str, ...]
    need_daemon_reload: bool
    argv: tuple[str, ...]
    expanded: tuple[str, ...]
    environment: Mapping[str, str]
    environment_files: tuple[str, ...]
    main_pid: int
    invocation_id: str
    exec_main_start: float
    exec_main_code: int
    exec_main_status: int
    n_restarts: int
    control_group: str
    user: str

    @property
    def exists(self) -> bool:
        return self.load_state == "loaded"


def object_path(unit: str) -> str:
    """The D-Bus object of a unit: all but letters and digits, and a leading digit, become ``_`` and hex."""
    escaped = re.sub(rb"^[0-9]|[^A-Za-z0-9]", lambda byte: b"_%02x" % ord(byte.group()), unit.encode())
    return f"/org/freedesktop/systemd1/unit/{escaped.decode()}"


def busctl_argv(unit: str) -> list[str]:
    """The command that prints every property of a unit for ``parse_properties``.

    systemd loads the unit to answer, so stopped, never started and missing units have an answer too.
    """
    call = ["call", _BUS, object_path(unit), "org.freedesktop.DBus.Properties", "GetAll", "s", ""]
    return ["busctl", "--system", "--json=short", *call]


def parse_properties(json_text: str) -> Unit:
    """The answer to ``busctl_argv``. Raises ValueError when it is none."""
    try:
        typed = json.loads(json_text)["data"][0]
        held = {name: value["data"] for name, value in typed.items()}
        return _unit(held)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"Not the properties of a unit ({error!r}): {json_text[:200]!r}") from error


def _unit(held: Mapping[str, Any]) -> Unit:
    commands = held.get("ExecStart") or []
    argv = commands[0][1] if commands else []
    return Unit(
        name=held["Id"],
        load_state=held["LoadState"],
        load_error=held["LoadError"][1],
        active_state=held["ActiveState"],
        sub_state=held["SubState"],
        result=held.get("Result", ""),
        unit_file_state=held["UnitFileState"],
        fragment_path=held["FragmentPath"],
        drop_in_paths=tuple(held["DropInPaths"]),
        need_daemon_reload=held["NeedDaemonReload"],
        argv=tuple(argument.replace("$$", "$") for argument in argv),
        expanded=tuple(argument for argument in argv if "$" in argument.replace("$$", "")),
        environment=dict(item.split("=", 1) for item in held.get("Environment", ())),
        environment_files=tuple(path for path, _optional in held.get("EnvironmentFiles", ())),
        main_pid=held.get("MainPID", 0),
        invocation_id=bytes(held["InvocationID"]).hex(),
        exec_main_start=held.get("ExecMainStartTimestamp", 0) / 1e6,
        exec_main_code=held.get("ExecMainCode", 0),
        exec_main_status=held.get("ExecMainStatus", 0),
        n_restarts=held.get("NRestarts", 0),
        control_group=held.get("ControlGroup", ""),
        user=held.get("User", ""),
    )


def parse_cmdline(content: bytes) -> list[str]:
    """``/proc/<pid>/cmdline`` as a list; empty for a process that has ended."""
    return _strings(content)


def parse_environ(content: bytes) -> dict[str, str]:
    """``/proc/<pid>/environ``: the environment that the process was started with."""
    return dict(item.split("=", 1) for item in _strings(content) if "=" in item)


def _strings(content: bytes) -> list[str]:
    """NUL-terminated strings; empty ones count."""
    return [item.decode(errors="surrogateescape") for item in content.split(b"\0")[:-1]]
