"""Stands in for sgl_kernel, SGLang's compiled kernels, which have no CPU build: their names must import all the same.

Every name and every submodule is there; all but three raise NotImplementedError when called.
`sgl_kernel.scalar_type` alone is absent: SGLang asks for it inside `try … except ImportError`, and does without.
"""

import importlib.abc
import importlib.machinery
import sys
import types

import torch

from ._cache_locations import (  # noqa: F401
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
)

ABSENT = {"sgl_kernel.scalar_type"}

# SGLang 0.5.23 calls it on every device; for a tensor on a CPU, which has no streams, torch raises RuntimeError.
torch.Tensor.record_stream = lambda tensor, stream: None


def _kernel(name):
    def kernel(*args, **kwargs):
        raise NotImplementedError(f"{name}: a compiled kernel of SGLang; the CPU engine has a stand-in only")

    return kernel


class _Submodule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _kernel(f"{self.__name__}.{name}")


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("sgl_kernel.") and fullname not in ABSENT:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Submodule(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(_Submodules())


def __getattr__(name):
    if name.startswith("__") or f"sgl_kernel.{name}" in ABSENT:
        raise AttributeError(name)
    return _kernel(f"sgl_kernel.{name}")
