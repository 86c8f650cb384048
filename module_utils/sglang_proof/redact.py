"""Takes secrets out of what leaves the host, by their names. Returns copies; twice is as good as once.

SGLang prints its keys (`server_args=`, `/server_info`, its argv); REDACTED is the word that it uses itself.
"""

from __future__ import annotations

import re

REDACTED = "[REDACTED]"

_SECRET = re.compile(
    r"(?:.*_)?(?:password|passwd|passphrase|secret|credentials?|authorization|cookie|token|api_?keys?)"
    r"|pass|.*_keys?(?:_[a-z])?"
)
# Tokens of a vocabulary, and counts of tokens.
_WORDS = re.compile(
    r"(?:.*_)?(?:mask|[be]os|pad|unk|sep|cls|image|audio|video|stop|think|special|noise)_token"
    r"|(?:.*_)?(?:per|num|max|first|next|last|new|draft)_token"
)
_NAMED = re.compile(
    r"(?<![\w.#-])(?P<name>(?:--)?[A-Za-z_.][\w.-]*)"
    # an option's value may also follow after a blank or, in a printed list, after a comma
    r"""(?:(?P<assigned>\\*["']?\s*[:=]\s*)|\\*["']?,\s*|\s+)"""
)
_VALUE = re.compile(
    r"""(?:(?:Bearer|Basic|Digest|Token|ApiKey)\ +)?(?:
      (?P<escaped>\\+["']).*?(?:(?P=escaped)|$)
    | [bru]?'[^'\\]*(?:\\.[^'\\]*)*(?:'|\\?$)
    | [bru]?"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?$)
    | [\w.]*\([^)]*\)? | \[[^\]]*\]? | \{[^}]*\}?
    | (?P<bare>\S+)
    )""",
    re.VERBOSE | re.DOTALL,
)
# "NAME=a b", as systemd and shells quote a whole assignment: to the quote that opened before the name.
_WHOLE = {'"': re.compile(r'(?:[^"\\]|\\.)+'), "'": re.compile(r"(?:[^'\\]|\\.)+")}
_UNSET = re.compile(r"""(?:None|null|True|False|true|false|''|""|\[\]|\{\}|\(\))(?![\w.-])""")
_URL = re.compile(r"(://[^/\s:@'\"]*):[^/\s@'\"]+@")


def is_secret(name):
    """Tell whether a value of this name is a secret: `--api-key`, `HF_TOKEN`, `ssl_keyfile_password`."""
    name = name.lstrip("-").lower().replace("-", "_").replace(".", "_")
    return _SECRET.fullmatch(name) is not None and _WORDS.fullmatch(name) is None


def mapping(values):
    """Return a copy of a mapping (server_args, an environment) without its secrets, at any depth."""
    return {key: _of(key, value) for key, value in values.items()}


def argv(arguments):
    """Return a copy of a command line, `--api-key X` and `--api-key=X` without X."""
    shown, hide = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide:
            shown.append(REDACTED)
        elif equals and is_secret(name):
            shown.append(f"{name}={REDACTED}")
        else:
            shown.append(text(argument))
        hide = argument.startswith("--") and not equals and is_secret(argument)
    return shown


def text(line):
    """Return a line of a log or of a command without secrets, also where it is cut inside one."""
    shown, position = [], 0
    for named in _NAMED.finditer(line):
        start, name = named.end(), named["name"]
        if start < position or not is_secret(name) or not (named["assigned"] or name.startswith("--")):
            continue
        whole = _WHOLE.get(line[named.start() - 1 : named.start()]) if named["assigned"] == "=" else None
        value = (whole and whole.match(line, start)) or _VALUE.match(line, start)
        if value and not _UNSET.match(line, start):
            shown += [line[position:start], REDACTED if value.re is whole else _hidden(value)]
            position = value.end()
    return _URL.sub(rf"\1:{REDACTED}@", "".join(shown) + line[position:])


def _hidden(value):
    """Return the word in the quotes of the value, so that a printed mapping can still be read."""
    if value["bare"]:
        return REDACTED + value[0][len(value[0].rstrip("\\'\",;)}")) :]
    quote = re.match(r"\\*['\"]", value[0])
    return f"{quote[0]}{REDACTED}{quote[0]}" if quote else REDACTED


def _of(name, value):
    if isinstance(name, str) and is_secret(name):
        return value if value is None or value == "" or isinstance(value, bool) else REDACTED
    if isinstance(value, dict):
        return mapping(value)
    if isinstance(value, (list, tuple)):
        items = argv(value) if all(isinstance(item, str) for item in value) else [_of(None, item) for item in value]
        return type(value)(items)
    return text(value) if isinstance(value, str) else value
