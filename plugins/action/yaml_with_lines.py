"""Read a YAML file on the controller, with the line of every key, for a module that checks what it says.

Arguments:
  path      the file, relative to the playbook if it is not absolute

Returns `document`: {file, data, lines}; `lines` maps "a.b.0.c" to a line number. Keys must be text and stand once.
It changes nothing and needs no connection.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _, given = self.validate_argument_spec({"path": {"type": "str", "required": True}})
        path = Path(self._loader.path_dwim(given["path"]))
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        try:
            return {"changed": False, "document": {"file": str(shown), **read(path.read_text(encoding="utf-8"))}}
        except OSError as error:
            raise AnsibleActionFail(f"{shown}: {error.strerror}") from None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1
            raise AnsibleActionFail(f"{shown}:{line}: {error.problem}") from None


def read(text):
    """{"data": …, "lines": {…}} of a YAML text. Raises yaml.MarkedYAMLError."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        lines = {}
        data = None if node is None else _value(loader, node, "", lines)
    finally:
        loader.dispose()
    return {"data": data, "lines": lines}


def _value(loader, node, at, lines):
    if isinstance(node, yaml.MappingNode):
        mapping = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node)
            if not isinstance(key, str) or key in mapping:
                problem = f"{key} stands twice" if key in mapping else f"{key!r} is no name"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            inside = f"{at}.{key}" if at else key
            lines[inside] = key_node.start_mark.line + 1
            mapping[key] = _value(loader, value_node, inside, lines)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            lines[f"{at}.{position}"] = item.start_mark.line + 1
        return [_value(loader, item, f"{at}.{n}", lines) for n, item in enumerate(node.value)]
    return loader.construct_object(node)
