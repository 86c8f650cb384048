#!/usr/bin/python
"""Read what an installed SGLang can be told and can say, without importing it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_engine_facts
short_description: Read the options and log messages of an installed SGLang
description:
  - Finds the SGLang of a Python environment and reads its release, the options of its argument parser and the
    messages that it can log, from its source, without importing it. This takes about a second and no GPU.
  - With these facts a plan can refuse, before a model is loaded, a flag that this engine does not know and a
    pattern that it never logs. The fingerprint tells a fork or a patched engine from the release whose number
    it bears.
options:
  python:
    description: The interpreter of the engine's environment.
    type: path
    required: true
  cache:
    description:
      - A file on the host that keeps the facts as JSON.
      - It is used again as long as the engine's C(RECORD) and the size and time of every source file are as
        they were, so an engine that is patched in place is read anew.
      - The directory must exist.
    type: path
  required:
    description:
      - Whether it is an error that the interpreter or SGLang is not there.
      - In check mode it never is, because an earlier task would have installed it.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Reads as always; does not write the cache.
  diff_mode:
    support: full
    description: Shows how release, fingerprint and options differ from the cached ones.
notes:
  - The result is changed when the cache is written, in check mode when it would be. Reading changes nothing.
"""

EXAMPLES = r"""
- name: Read the engine that the service will start
  sglang_engine_facts:
    python: /opt/sglang/0.5.13/bin/python
    cache: /var/lib/sglang/facts-0.5.13.json
  register: engine

- name: Refuse a flag that this engine does not know
  ansible.builtin.assert:
    that: "'--speculative-draft-window-size' in engine.facts.options | map(attribute='flag')"
  when: engine.installed
"""

RETURN = r"""
installed:
  description: Whether the interpreter and SGLang are there. Without them everything else is unknown.
  type: bool
  returned: success
package:
  description: The directory of the package.
  type: str
  returned: when installed
  sample: /opt/sglang/0.5.13/lib/python3.12/site-packages/sglang
facts:
  description: What was read.
  type: dict
  returned: when installed
  contains:
    release:
      description: The release that the engine gives as its own.
      type: str
      sample: 0.5.13
    options:
      description: The options of the server, by flag.
      type: list
      elements: dict
      contains:
        flag:
          description: The option string; an alias is an entry of its own.
          type: str
          sample: --speculative-draft-window-size
        field:
          description: The field of the server's arguments that keeps the value.
          type: str
          sample: speculative_draft_window_size
        action:
          description: The action of the argument parser.
          type: str
          sample: store
        values:
          description: How many values follow the flag, V(none), V(one), V(optional) or V(many).
          type: str
          sample: one
    templates:
      description: The messages that the engine can log, sorted; C({}) stands for a value.
      type: list
      elements: str
    fingerprint:
      description: SHA-256 over release, options and messages.
      type: str
installation:
  description:
    - SHA-256 over all that the interpreter would run. It changes when a package is replaced under the same version or a file
      is patched in place, and then a running engine is another than the installed one.
  type: str
  returned: when installed
cached:
  description: Whether the facts come from the cache.
  type: bool
  returned: when installed
msg:
  description: What is not there, and that the facts are unknown until it is installed.
  type: str
  returned: when not installed
"""

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_proof.facts import EngineFacts, NotAnEngine, installation_key, read_engine, source_key

FIND_ENGINE = """
import importlib.metadata, importlib.util, json
package = importlib.util.find_spec("sglang")
try:
    metadata = str(importlib.metadata.distribution("sglang")._path)
except importlib.metadata.PackageNotFoundError:
    metadata = None
print(json.dumps([list(package.submodule_search_locations) if package else [], metadata]))
"""


def find_engine(module, python):
    """(package directory, metadata directory or None), or None if the environment has no SGLang."""
    rc, stdout, stderr = module.run_command([python, "-c", FIND_ENGINE], cwd="/")
    if rc != 0:
        last = (stderr.strip().splitlines() or ["it printed nothing"])[-1]
        module.fail_json(msg=f"{python} cannot be asked where SGLang is; it ended with status {rc}: {last}")
    locations, metadata = json.loads(stdout.splitlines()[-1])
    return (Path(locations[0]), metadata and Path(metadata)) if locations else None


def read_cache(path):
    """The content of the cache; empty if there is none that can be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def summary(facts):
    """Facts as lines for a diff; messages are only in the fingerprint, there are thousands."""
    if not facts:
        return ""
    lines = [f"release {facts['release']}", f"fingerprint {facts['fingerprint']}"]
    return "\n".join(lines + [f"{option['flag']} ({option['values']})" for option in facts["options"]]) + "\n"


def main():
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "cache": {"type": "path"},
            "required": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    python = module.params["python"]
    has_python = Path(python).exists()
    engine = find_engine(module, python) if has_python else None
    if engine is None:
        missing = f"{python} has no SGLang" if has_python else f"{python} is not there"
        if module.params["required"] and not module.check_mode:
            module.fail_json(msg=f"{missing}. Next: apply the role sglang_engine here, or correct 'python'.")
        module.exit_json(changed=False, installed=False, msg=f"{missing}: unknown until installed.")

    path = module.params["cache"] and Path(module.params["cache"])
    key = source_key(*engine)
    kept = read_cache(path) if path else {}
    cached = kept.get("key") == key
    try:
        facts = (EngineFacts.from_dict(kept["facts"]) if cached else read_engine(*engine)).to_dict()
    except NotAnEngine as error:
        module.fail_json(msg=f"{python}: {error}")

    result = {"installed": True, "package": str(engine[0]), "facts": facts, "cached": cached}
    result["installation"] = installation_key(engine[0])
    changed = bool(path) and not cached
    if changed:
        result["diff"] = {
            "before_header": str(path),
            "after_header": str(path),
            "before": summary(kept.get("facts")),
            "after": summary(facts),
        }
    if changed and not module.check_mode:
        new = Path(module.tmpdir) / "facts.json"
        new.write_text(json.dumps({"key": key, "facts": facts}), "utf-8")
        module.atomic_move(str(new), str(path))
    module.exit_json(changed=changed, **result)


if __name__ == "__main__":
    main()
