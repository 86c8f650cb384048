"""The fleet of tests/integration, for longer tests of it."""

from __future__ import annotations

import pytest
from rollout_fleet import booted


@pytest.fixture(scope="module")
def fleet():
    with booted() as fleet:
        yield fleet
