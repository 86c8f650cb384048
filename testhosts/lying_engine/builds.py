"""The wheel named sglang of a release, or of a fork: the hand-written engine, and what is written from the real one's data.

Options and log messages are those of tests/unit/releases.json, so that what reads an installed engine's source finds in
this one what it finds in the real one; the lines of a start are those of a recorded start (recordings.py).
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

from ..cpu_engine.wheels import write_wheel
from . import recordings

SOURCE = Path(__file__).with_name("sglang")
DATA = Path(__file__).resolve().parents[2] / "tests/unit/releases.json"
HEAD = '"""Part of a stand-in for SGLang: {what} of release {release}{fork}, written from recorded data."""\n\n'

# What a fork adds to its release. `ddtree` is sglang#29907; `house` is the example of docs/forks.md.
FORKS = {
    "ddtree": {
        "options": {"--speculative-ddtree-budget": None},
        "templates": [
            "Initialized DDTree worker. block_size={}, tree_budget={}, max_tree_nodes={}",
            "Inferred speculative_ddtree_budget={} from speculative_num_draft_tokens={} for DDTREE.",
            "DDTREE verify completed. accept_length_per_req={}",
        ],
    },
    "house": {
        "options": dict.fromkeys(
            ("--speculative-ddtree-budget", "--speculative-ddtree-topk", "--speculative-ddtree-window")
        ),
        "templates": ["Initialized DDTREE worker. budget={}, topk={}, window={}"],
    },
}


def names() -> list[str]:
    """Every build: releases, and those that the forks were made from: 0.5.13-house."""
    return [*recordings.releases(), "0.5.13-house", "0.5.23-ddtree"]


def build_wheel(name: str, directory: Path) -> Path:
    """Write the wheel of a build and its lock into `directory`; a fork bears the release that it was made from."""
    release = name.partition("-")[0]
    path = write_wheel("sglang", release, package(name), directory)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (directory / f"{release}.txt").write_text(f"sglang=={release} --hash=sha256:{digest}\n")
    return path


def package(name: str) -> dict[str, bytes]:
    """Path in the wheel → content."""
    release, _, fork = name.partition("-")
    files = {f"sglang/{path.relative_to(SOURCE).as_posix()}": path.read_bytes() for path in sorted(SOURCE.rglob("*.py"))}
    script = recordings.read(release)
    script.update(release=release, fork=fork, options=_options(release, fork, script["fields"]))
    script["fields"] += [[_field(option), default] for option, default in _extra(fork)["options"].items()]
    written = {"release": release, "fork": f", fork {fork}" if fork else ""}
    files["sglang/srt/arg_groups/options.py"] = (
        HEAD.format(what="the options", **written) + _options_module(script["options"])
    ).encode()
    files["sglang/srt/messages.py"] = (
        HEAD.format(what="the messages", **written) + _messages_module([*_templates(release), *_extra(fork)["templates"]])
    ).encode()
    files["sglang/recording.json"] = json.dumps(script, ensure_ascii=False, indent=1).encode()
    return files


def _extra(fork):
    return FORKS[fork] if fork else {"options": {}, "templates": []}


@cache
def _data():
    return json.loads(DATA.read_text())


def _numbers(release):
    return [*map(int, release.split("."))]


def of(release, rows):
    return [row[:-2] for row in rows if _numbers(row[-2]) <= _numbers(release) <= _numbers(row[-1])]


def _templates(release):
    return [template for (template,) in of(release, _data()["templates"])]


def _options(release, fork, fields):
    """{flag: [field, action, values]}: as read from the release, and for every other field an option of its name."""
    options = {flag: [field, action, values] for flag, field, action, values in of(release, _data()["options"])}
    known = {field for field, _, _ in options.values()}
    for field, default in fields:
        if field in known or field.startswith("_") or "⟨" in str(default):
            continue
        values = {bool: "none", list: "many"}.get(type(default), "one")
        options["--" + field.replace("_", "-")] = [field, "store_true" if values == "none" else "store", values]
    options.update({flag: [_field(flag), "store", "one"] for flag in _extra(fork)["options"]})
    options["--config"] = ["config", "store", "one"]
    if _numbers(release) <= [0, 5, 11]:
        options["--speculative-algorithm"] += [["DFLASH", "EAGLE", "EAGLE3", "NEXTN", "NGRAM", "STANDALONE"]]
    return dict(sorted(options.items()))


def _field(option):
    return option.lstrip("-").replace("-", "_")


def _options_module(options):
    lines = [
        "from __future__ import annotations\n",
        "import argparse\n",
        "from .actions import DeprecatedAliasStoreAction, literal\n\n",
        "def add_options(parser):",
    ]
    for flag, (field, action, values, *choices) in options.items():
        words = [f'"{flag}"', f'dest="{field}"', "default=argparse.SUPPRESS"]
        if action == "BooleanOptionalAction":
            if flag.startswith("--no-"):
                continue
            words.append("action=argparse.BooleanOptionalAction")
        elif action.endswith("Action"):
            words += [f"action={action}", "type=literal"]
        elif values == "none":
            words.append(f'action="{action}"')
        else:
            words += ["type=literal", *(['nargs="+"'] if values == "many" else []), *(f"choices={c!r}" for c in choices)]
        lines.append(f"    parser.add_argument({', '.join(words)})")
    return "\n".join(lines) + "\n"


def _messages_module(templates):
    lines = ["import logging\n", "logger = logging.getLogger(__name__)\n\n", "def say(*values):"]
    for template in templates:
        text = template.replace("%", "%%").replace("{}", "%s")
        lines.append(f"    logger.info({text!r}, *values)")
    return "\n".join(lines) + "\n"
