"""Hosts that the tests of one file share."""

from __future__ import annotations

import os

import pytest
from deployment import Deployment, hosts, python


def pytest_collection_modifyitems():
    if os.geteuid():  # skipped tests would end well without having shown anything
        raise pytest.UsageError("hosts need root. Next: sudo make integration")


@pytest.fixture(scope="module")
def engine_layer():
    return python("testhosts.cpu_engine", "build").strip()


@pytest.fixture(scope="module")
def deployment(engine_layer):
    hosts("down", "deploy1")
    hosts("up", "--layer", engine_layer, "deploy1=10.213.77.31")
    yield Deployment("deploy1")
    hosts("down", "deploy1")
