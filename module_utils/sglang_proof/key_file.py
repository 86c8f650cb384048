"""The file with the API key: SGLang's own `--config` file with one entry, so that the key is on no command line.

0.5.11 … 0.5.23 take a key from `--api-key`, which every user of the host can read, or as `api-key` of the YAML file
behind `--config`; no environment variable is read. Its journal and its /server_info tell the key all the same.
"""

from __future__ import annotations

import os
import re

FORM = 'api-key: "…"'
# In quotes YAML takes it for nothing but text; the characters are those of a bearer token (RFC 6750).
_ENTRY = re.compile(r"""api-key: *(["'])(?P<key>[A-Za-z0-9][A-Za-z0-9._~+/=-]*)\1 *""")


def read(path):
    """The key. Raises ValueError with a sentence."""
    if not path.endswith((".yaml", ".yml")):
        raise ValueError(f"the key file {path} must end in .yaml, or SGLang does not read it")
    try:
        with open(path, encoding="utf-8") as file:
            others = os.fstat(file.fileno()).st_mode & 0o007
            lines = [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the key file {path} cannot be read: {getattr(error, 'strerror', error)}") from None
    entry = _ENTRY.fullmatch(lines[0]) if len(lines) == 1 else None
    if entry is None:  # another entry could override what is declared
        raise ValueError(f"the key file {path} must hold one line, {FORM}, and nothing else")
    if others:
        raise ValueError(f"the key file {path} can be read by every user of the host: chmod o= {path}")
    return entry["key"]
