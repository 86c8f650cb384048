"""The stand-ins let SGLang import what it never runs on a CPU, and say so when it is run after all."""

import subprocess
import sys

import pytest

from testhosts.cpu_engine import wheels


def python(code, *path, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def kernels(tmp_path):
    """Runs code where `sgl_kernel` is the stand-in, with as much of torch as that touches."""
    (tmp_path / "torch.py").write_text("class Tensor: pass\n")
    return lambda code: python(code, wheels.STANDINS / "sgl_kernel_cpu_standin", tmp_path)


def test_any_kernel_can_be_imported(kernels):
    assert kernels("from sgl_kernel import rmsnorm; from sgl_kernel.flash_attn import varlen").returncode == 0


def test_a_kernel_that_is_called_says_who_it_is(kernels):
    result = kernels("import sgl_kernel.kvcacheio as k; k.transfer()")
    assert "NotImplementedError: sgl_kernel.kvcacheio.transfer" in result.stderr


def test_scalar_type_is_absent_so_that_sglang_does_without(kernels):
    assert "ModuleNotFoundError" in kernels("import sgl_kernel.scalar_type").stderr
    assert "ImportError" in kernels("from sgl_kernel import scalar_type").stderr


def test_cache_entries_are_copied_as_if_all_were_read_before_any_is_written(kernels):
    code = """
import ctypes
from types import SimpleNamespace
from sgl_kernel import copy_all_layer_kv_cache_cpu
tensor = lambda *values: SimpleNamespace(tolist=lambda: list(values))
buffer = ctypes.create_string_buffer(b"aabbcc", 6)
copy_all_layer_kv_cache_cpu(tensor(ctypes.addressof(buffer)), tensor(2), tgt_loc=tensor(1, 2), src_loc=tensor(0, 1))
print(buffer.raw.decode())
"""
    assert kernels(code).stdout.strip() == "aaaabb"


GATE = """
def _handle_dflash(server_args):
    if not (server_args.device.startswith("cuda") or server_args.device == "npu"):
        raise ValueError("DFLASH speculative decoding only supports CUDA and NPU devices.")
    if not server_args.device.startswith("cuda"):
        raise ValueError("DFLASH with dp attention requires CUDA or NPU.")


def _handle_dspark(server_args):
    if not server_args.device.startswith("cuda"):
        raise ValueError("DSpark speculative decoding only supports CUDA.")
"""


@pytest.fixture
def refused(tmp_path):
    """What SGLang's check of DFLASH's arguments refuses on a CPU, with the hook loaded as the .pth file does."""
    package = tmp_path / "sglang/srt/arg_groups"
    package.mkdir(parents=True)
    (package / "speculative_hook.py").write_text(GATE)

    def run(handler, **environment):
        code = f"""
import sglang_cpu_engine_hook
from types import SimpleNamespace
from sglang.srt.arg_groups import speculative_hook
speculative_hook.{handler}(SimpleNamespace(device="cpu"))
"""
        return python(code, wheels.STANDINS / "sglang_cpu_engine_hook", tmp_path, **environment).stderr

    return run


def test_the_first_question_for_a_gpu_is_answered_and_no_other(refused):
    assert "dp attention" in refused("_handle_dflash", SGLANG_USE_CPU_ENGINE="1")


def test_other_algorithms_are_refused_as_ever(refused):
    assert "DSpark" in refused("_handle_dspark", SGLANG_USE_CPU_ENGINE="1")


def test_the_hook_is_idle_unless_the_environment_asks_for_it(refused):
    assert "only supports CUDA and NPU" in refused("_handle_dflash")
