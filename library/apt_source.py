#!/usr/bin/python
"""Declare a signed package repository, after it was tried out."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_source
short_description: Declare a signed flat apt repository whose key is pinned
description:
  - Fetches the signing key, refuses it unless its fingerprint is the declared one, and tries the repository with a
    configuration of its own. Only then it writes one file, the source with its key inside (C(Signed-By)), so that the key is
    trusted for no other repository.
  - Run with C(check_mode=true) it asks the repository what it offers and changes nothing.
options:
  name:
    description: Stem of the file below C(/etc/apt/sources.list.d).
    type: str
    required: true
  uri:
    description: The repository; the indexes lie directly below it.
    type: str
    required: true
  key:
    description: URL of the key, ASCII-armoured. Fetched only if the file is not as declared.
    type: str
    required: true
  fingerprint:
    description: The key's fingerprint, 40 hexadecimal digits; blanks do not matter.
    type: str
    required: true
  packages:
    description: Globs of the packages whose versions are returned.
    type: list
    elements: str
    default: []
  refresh:
    description: Ask the repository also where the file is as declared.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Fetches and tries as always, and writes nothing.
  diff_mode:
    support: full
notes:
  - Does not refresh the host's own package lists.
author: The contributors
"""

EXAMPLES = r"""
- name: The repository
  apt_source:
    name: nvidia-cuda
    uri: https://mirror.example.com/cuda/debian12/x86_64
    key: https://mirror.example.com/cuda/debian12/x86_64/3bf863cc.pub
    fingerprint: EB693B3035CD5710E231E123A4B469963BF863CC
    packages: ["*nvidia*"]
"""

RETURN = r"""
versions:
  description: Versions by name of the packages asked for; null where the repository was not asked.
  type: dict
  returned: success
"""

import tempfile
import urllib.request
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpu_host import apt_source

SOURCES = Path("/etc/apt/sources.list.d")
SECONDS = 30  # for one answer of the repository


def read(path):
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return answer.read(1 << 20).decode("ascii", "replace")
    except (OSError, ValueError) as error:
        raise apt_source.Refused(f"it cannot be read: {error}") from error


def try_out(module, text, patterns):
    """Versions that the repository offers, asked without the host's own configuration and lists."""
    with tempfile.TemporaryDirectory(dir=module.tmpdir) as scratch:
        source = Path(scratch, "try.sources")
        source.write_text(text)
        lists = Path(scratch, "lists")
        (lists / "partial").mkdir(parents=True)
        options = {
            "Dir::Etc::SourceList": source,
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": lists,
            "Dir::Cache": scratch,
            "APT::Sandbox::User": "root",  # another could not enter the module's directory
            "APT::Update::Error-Mode": "any",
            "Acquire::GzipIndexes": "false",
            "Acquire::http::Timeout": SECONDS,
            "Acquire::https::Timeout": SECONDS,
        }
        arguments = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        rc, _, stderr = module.run_command(["apt-get", "update", "--quiet", *arguments], environ_update={"LC_ALL": "C"})
        if rc:
            raise apt_source.Refused(f"apt refuses it: {' '.join(stderr.split())}")
        return apt_source.versions("\n\n".join(map(read, sorted(lists.glob("*_Packages")))), patterns)


def main():
    module = AnsibleModule(
        {
            "name": {"type": "str", "required": True},
            "uri": {"type": "str", "required": True},
            "key": {"type": "str", "required": True, "no_log": False},
            "fingerprint": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "refresh": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    name, uri, key, fingerprint, patterns, refresh = (
        module.params[option] for option in ("name", "uri", "key", "fingerprint", "packages", "refresh")
    )
    path = SOURCES / f"{name}.sources"
    for other in [SOURCES.parent / "sources.list", *sorted(SOURCES.glob("*.list")), *sorted(SOURCES.glob("*.sources"))]:
        if other != path and apt_source.names_source(read(other), uri):
            module.fail_json(msg=f"{other} declares {uri} too. Nothing was changed. Next: remove that file on the host.")

    before = after = read(path)
    what = f"the key {key}"
    offered = None
    try:
        if not apt_source.is_as_declared(before, uri, fingerprint):
            armoured = fetch(key)
            apt_source.check_key(armoured, fingerprint)
            after = apt_source.render(uri, armoured)
        if refresh or before != after:
            what = f"the repository {uri}"
            offered = try_out(module, after, patterns)
    except apt_source.Refused as refusal:
        module.fail_json(msg=f"{what}: {refusal}. Nothing was changed.")

    if before != after and not module.check_mode:
        new = Path(module.tmpdir, "new.sources")
        new.write_text(after, "utf-8")
        module.atomic_move(str(new), str(path))
        module.set_mode_if_different(str(path), "0644", False)
    names = {"before_header": str(path), "after_header": str(path)}
    module.exit_json(changed=before != after, versions=offered, diff={**names, "before": before, "after": after})


if __name__ == "__main__":
    main()
