"""Refuse what the hosts' own Python cannot run: newer grammar than 3.9, imports beyond the standard library.

Usage: lint_target_code.py FOLDER …
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

HOSTS_HAVE = sys.stdlib_module_names - {"tomllib"}  # tomllib came with 3.11
ELSEWHERE = "# in the engine's Python"  # marks an import that runs in another Python than the module's


def problems(path):
    """Yield `file:line: problem` for each thing in this file that a host cannot run."""
    text = path.read_text()
    try:
        tree = ast.parse(text, feature_version=(3, 9))
    except SyntaxError as error:
        yield f"{path}:{error.lineno}: not Python 3.9: {error.msg}"
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        for name in imported(node):
            known = name.split(".")[0] in HOSTS_HAVE or name.startswith("ansible.module_utils.")
            if not known and not lines[node.lineno - 1].endswith(ELSEWHERE):
                yield f"{path}:{node.lineno}: hosts have no {name}"


def imported(node):
    """The full names that a syntax node imports, without relative ones."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def main(arguments):
    files = sorted(file for folder in arguments for file in Path(folder).rglob("*.py"))
    found = [problem for file in files for problem in problems(file)]
    if found:
        sys.exit("\n".join(found))
    print(f"{len(files)} files can run under the hosts' Python")


if __name__ == "__main__":
    main(sys.argv[1:])
