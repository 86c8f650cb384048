"""What makes two hosts comparable: it must differ where the engine's files do, and nowhere else."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest
from ansible.module_utils.sglang_runs import SMALL, runs
from stage import make_plan


@pytest.fixture
def host(tmp_path):
    """Installed engine and model; returns what runs there, subjects without their places."""
    site = tmp_path / "venv/lib/python3.11/site-packages"
    for package in ("torch-2.9.0", "sglang-0.5.13"):
        (site / f"{package}.dist-info").mkdir(parents=True)
    (site / "sglang/srt").mkdir(parents=True)
    (site / "sglang/srt/worker.py").write_text("window = None\n")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"layers": 5}')
    (model / "model.safetensors").write_bytes(bytes(SMALL + 1))
    (model / "README.md").write_text("read me")
    made = make_plan()
    made = replace(made, argv=(str(tmp_path / "venv/bin/python"), *made.argv[1:]), model=str(model), expectations=())

    def read():
        engine, weights = runs(made).values()
        return engine, weights

    read.site, read.model = site, model
    return read


def test_packages_own_files_and_model_files_are_named(host):
    engine, weights = host()
    assert (engine["torch"], engine["sglang"]) == ("2.9.0", "0.5.13")
    assert engine["own files"].startswith("1 files ")
    assert sorted(weights) == ["config.json", "model.safetensors"]
    assert weights["model.safetensors"] == f"{SMALL + 1} bytes"


def test_a_later_copy_of_the_same_files_is_the_same(host):
    before = host()
    for path in (*host.site.rglob("*"), *host.model.iterdir()):
        os.utime(path, (1, 1))
    (host.model / "README.md").write_text("another")
    assert host() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda h: shutil.move(h.site / "torch-2.9.0.dist-info", h.site / "torch-2.9.1.dist-info"),
        lambda h: (h.site / "sglang/srt/worker.py").write_text("window = 2048\n"),
        lambda h: (h.model / "config.json").write_text('{"layers": 6}'),
        lambda h: (h.model / "model.safetensors").write_bytes(bytes(SMALL + 2)),
        lambda h: (h.model / "model.safetensors").unlink(),
    ],
)
def test_another_package_patch_or_weight_is_another(host, change):
    before = host()
    change(host)
    assert host() != before


def test_what_is_not_there_is_left_out(host):
    shutil.rmtree(host.site)
    shutil.rmtree(host.model)
    assert runs(replace(make_plan(), argv=("/nowhere/bin/python",), model="/nowhere", expectations=())) == {}
