#!/usr/bin/python
"""Puts the command sglang-deploy on a host: the code that proves it, to be used there without a controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_command
short_description: Put the command sglang-deploy on a host
description:
  - Writes one executable file, a Python archive of the very code that the modules of this project run on the host. It
    shows what runs and what was verified (C(status)), and goes back to the last verified state (C(rollback)), without a
    controller.
options:
  path:
    description: Where the command lies.
    type: path
    default: /usr/local/sbin/sglang-deploy
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: An archive has no lines.
author: The contributors
"""

EXAMPLES = r"""
- name: Command
  sglang_command:
"""

RETURN = r""" # """

import contextlib
import io
import os
import sys
import zipfile
from pathlib import Path

from ansible.module_utils import sglang_cli
from ansible.module_utils.basic import AnsibleModule

PARENT = sglang_cli.__name__.rpartition(".")[0] + "."
OURS = ("sglang_", "host_lease")
MAIN = "import sys\n\nfrom sglang_deploy.sglang_cli import main\n\nsys.exit(main())\n"


def main():
    module = AnsibleModule({"path": {"type": "path", "default": "/usr/local/sbin/sglang-deploy"}}, supports_check_mode=True)
    path = Path(module.params["path"])
    wanted = archive()
    try:
        changed = not path.exists() or path.read_bytes() != wanted
        if changed and not module.check_mode:
            put(path, wanted)
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be written: {error.strerror}")
    module.exit_json(changed=changed)


def archive():
    """The bytes of an executable archive of `sglang_cli` and all of this project that it imports."""
    sources = {"__main__.py": MAIN, "sglang_deploy/__init__.py": ""}
    for name in sorted(sys.modules):
        own = name[len(PARENT) :] if name.startswith(PARENT) else ""
        if not own.startswith(OURS):
            continue
        loader = sys.modules[name].__spec__.loader
        place = own.replace(".", "/") + ("/__init__" if loader.is_package(name) else "")
        sources[f"sglang_deploy/{place}.py"] = loader.get_source(name)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for place in sorted(sources):  # with the time that ZipInfo has by itself: the same code is the same file
            file.writestr(zipfile.ZipInfo(place), sources[place], zipfile.ZIP_DEFLATED)
    return f"#!{sys.executable}\n".encode() + content.getvalue()


def put(path, content):
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_bytes(content)
        new.chmod(0o755)
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


if __name__ == "__main__":
    main()
