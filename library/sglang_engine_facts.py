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
  release:
    description: The release that was declared. It is an error that another one is installed there.
    type: str
  cache:
    description:
      - A file on the host that keeps the facts as JSON.
      - It is used again as long as the engine's C(RECORD) and the size and time of every source file are as
        they were, so an engine that is patched in place is read anew.
      - Its directory is made, for root alone, where it is not there.
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
    release: 0.5.13
    cache: /var/lib/sglang/facts-0.5.13.json
  register: engine

- name: Refuse a flag that this engine does not know
  ansible.builtin.assert:
    that: "'--speculative-draft-window-size' in engine.flags"
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
release:
  description: The release that the engine gives as its own.
  type: str
  returned: when installed
  sample: 0.5.13
flags:
  description: The option strings of the server, an alias being one of its own.
  type: list
  elements: str
  returned: when installed
fingerprint:
  description: SHA-256 over release, options and the messages that the engine can log.
  type: str
  returned: when installed
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

import os

from ansible.module_utils import sglang_engine
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotKeep, CannotRead, write_json
from ansible.module_utils.sglang_proof.facts import NotAnEngine


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
            "release": {"type": "str"},
            "cache": {"type": "path"},
            "required": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    python, cache = module.params["python"], module.params["cache"]
    try:
        engine = sglang_engine.read(python, cache, module.params["release"])
    except sglang_engine.Missing as missing:
        if module.params["required"] and not module.check_mode:
            module.fail_json(msg=f"{missing}. Next: apply the role sglang_engine here, or correct 'python'.")
        module.exit_json(changed=False, installed=False, msg=f"{missing}: unknown until installed.")
    except (CannotRead, NotAnEngine) as error:
        module.fail_json(msg=str(error))

    result = {
        "installed": True,
        "package": str(engine.package),
        "release": engine.facts.release,
        "flags": [option.flag for option in engine.facts.options],
        "fingerprint": engine.facts.fingerprint,
        "installation": engine.installation,
        "cached": engine.cached,
    }
    changed = bool(cache) and not engine.cached
    if changed:
        result["diff"] = {
            "before_header": cache,
            "after_header": cache,
            "before": summary(engine.kept.get("facts")),
            "after": summary(engine.facts.to_dict()),
        }
    if changed and not module.check_mode:
        try:
            os.makedirs(os.path.dirname(os.path.abspath(cache)), mode=0o700, exist_ok=True)
            write_json(cache, engine.to_keep())
        except OSError as error:
            module.fail_json(msg=f"{python} was read, but cannot be kept: the directory of {cache}: {error.strerror}")
        except CannotKeep as error:
            module.fail_json(msg=f"{python} was read, but cannot be kept: {error}")
    module.exit_json(changed=changed, **result)


if __name__ == "__main__":
    main()
