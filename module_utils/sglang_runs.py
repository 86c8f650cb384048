"""What an engine runs from, in a form in which hosts can be compared: without times, addresses and secrets.

Two hosts can each carry out their own declaration and still not run the same: a package of another version, a patched file,
a model that was copied to its end on one of them only. Standard library only; what is not there is left out.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

# What engines load from a model's directory; a README that is touched is no other model.
MODEL_FILES = (".json", ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".model", ".tiktoken", ".txt", ".jinja", ".py")
SMALL = 2**20  # bytes; such a file is compared by its content, a larger one by its size: nobody reads 500 GB of weights


def runs(plan):
    """{subject: {name: value}}, all text: the engine's packages and own files, and the files of its models."""
    found = _engine(plan)
    models = [plan.model, *(e.value for e in plan.expectations if e.setting == "draft_model")]
    for directory in dict.fromkeys(m for m in models if isinstance(m, str) and m.startswith("/")):
        files = _files(directory, (name for name in sorted(_names(directory)) if name.endswith(MODEL_FILES)))
        if files:
            found[f"model {directory}"] = files
    return found


def _engine(plan):
    environment = Path(plan.argv[0]).parent.parent
    for site in sorted(environment.glob("lib/python3*/site-packages")):
        packages = dict(path.stem.rsplit("-", 1) for path in sorted(site.glob("*.dist-info")) if "-" in path.stem)
        own = sorted((site / "sglang").rglob("*.py"))  # 28 MB in 0.5.13: a quarter of a second, once per proof
        if own:
            content = b"".join(f"{path.relative_to(site)}\0".encode() + path.read_bytes() for path in own)
            packages["own files"] = f"{len(own)} files {_short(content)}"
        return {f"SGLang {plan.release} in {environment}": packages}
    return {}


def _names(directory):
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _files(directory, names):
    found = {}
    for name in names:
        path = Path(directory, name)
        try:
            size = path.stat().st_size
            found[name] = f"{size} bytes" + (f" {_short(path.read_bytes())}" if size <= SMALL else "")
        except OSError as error:
            found[name] = str(error.strerror)
    return found


def _short(content):
    return hashlib.sha256(content).hexdigest()[:12]
