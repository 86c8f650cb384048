"""Stands in for the GPU that DFLASH demands: SGLang 0.5.16 and later refuse it on the device `cpu` before trying.

Loaded at the start of every Python of the virtual environment (by the .pth file beside it), and idle unless the
environment says SGLANG_USE_CPU_ENGINE=1, which is SGLang's own switch. SGLang's files stay as they are: only the
check in `_handle_dflash` (srt/arg_groups/speculative_hook.py) is read with `cpu` beside `cuda`.
"""

import importlib.abc
import importlib.machinery
import os
import sys

CHECKS_ARGUMENTS = "sglang.srt.arg_groups.speculative_hook"
ASKED = '.device.startswith("cuda")'
ADMITTED = '.device.startswith(("cuda", "cpu"))'


def admit_cpu(source):
    """Rewrite the first question about the device in `_handle_dflash`; a source without it stays the same."""
    before, name, rest = source.partition("\ndef _handle_dflash(")
    body, end, after = rest.partition("\ndef ")
    return before + name + body.replace(ASKED, ADMITTED, 1) + end + after


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        return compile(admit_cpu(self.get_source(fullname)), self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname != CHECKS_ARGUMENTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
    sys.meta_path.insert(0, _Finder())
