"""The project, as its benchmarks call it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python(module, *arguments, **options):
    """`python3 -m …` of the project, and what it printed."""
    line = [sys.executable, "-m", module, *arguments]
    return subprocess.run(line, cwd=ROOT, check=True, stdout=subprocess.PIPE, **{"text": True, **options}).stdout


def on_host(host, *command, **options):
    """What a command prints in a test host, as root."""
    return python("testhosts", "exec", host, *command, **options)


def give(host):
    """Put what runs on targets into a test host: /root/bench/module_utils."""
    packed = subprocess.run(["tar", "-C", ROOT, "-c", "module_utils"], check=True, stdout=subprocess.PIPE).stdout
    on_host(host, "sh", "-c", "mkdir -p /root/bench && tar -C /root/bench -x", input=packed, text=False)
