"""Stands for ssh to a host: passes everything on and records the answers, or plays such a recording back for any host."""

from __future__ import annotations

import ast
import json
import os
import re
import time

from ansible.errors import AnsibleError
from ansible.plugins.connection.ssh import DOCUMENTATION as SSH
from ansible.plugins.connection.ssh import Connection as Ssh

DOCUMENTATION = SSH.replace("name: ssh\n", "name: recorded\n", 1)
TAPE = os.environ["TAPE"]  # the file, one JSON object a line
RECORDS = os.environ.get("TAPE_MODE") == "record"
SPEED = float(os.environ.get("TAPE_SPEED", "inf"))  # how much faster than it was recorded an answer comes
TEMPORARY = re.compile(r"ansible-tmp-[\d.-]+")


class Connection(Ssh):
    """What Ansible does on the controller is all real: templates, modules packed and parsed, processes forked."""

    transport = "recorded"

    def exec_command(self, cmd, in_data=None, sudoable=True):
        asked = question(cmd, in_data)
        began = time.monotonic()
        if not RECORDS:
            call = nearest(asked)
            time.sleep(call["seconds"] / SPEED)
            stdout = call["stdout"]
            if temporary := TEMPORARY.search(cmd):  # the name that this run gave the directory
                stdout = TEMPORARY.sub(temporary[0], stdout)
            return call["rc"], stdout.encode(), call["stderr"].encode()
        rc, stdout, stderr = super().exec_command(cmd, in_data, sudoable)
        call = {**asked, "seconds": time.monotonic() - began, "rc": rc}
        with open(TAPE, "a", encoding="utf-8") as tape:
            tape.write(json.dumps({**call, "stdout": stdout.decode(), "stderr": stderr.decode()}) + "\n")
        return rc, stdout, stderr

    def put_file(self, in_path, out_path):
        return super().put_file(in_path, out_path) if RECORDS else None

    def reset(self):
        if RECORDS:
            super().reset()


def question(cmd, in_data):
    """{"what": module or command, "arguments": of the module}."""
    text = (in_data or b"").decode(errors="replace")
    module = re.search(r"^module_fqn='([\w.]+)',$", text, re.MULTILINE)
    if not module:
        return {"what": TEMPORARY.sub("ansible-tmp", cmd), "arguments": {}}
    literal = re.search(r"^params=(.+),$", text, re.MULTILINE).group(1)
    arguments = json.loads(ast.literal_eval(literal))["ANSIBLE_MODULE_ARGS"]
    return {"what": module.group(1), "arguments": {k: v for k, v in arguments.items() if not k.startswith("_ansible")}}


def nearest(asked):
    """The recorded call of the same module whose arguments are most like these: a token or a process differs each time."""
    begins = json.dumps({"what": asked["what"]})[:-1]
    with open(TAPE, encoding="utf-8") as tape:
        same = [json.loads(line) for line in tape if line.startswith(begins)]
    if not same:
        raise AnsibleError(f"nothing recorded of {asked['what'][:300]}. Next: record anew")
    given = asked["arguments"].items()
    return max(same, key=lambda call: sum(call["arguments"].get(key) == value for key, value in given))
