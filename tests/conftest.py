"""For all tests: they import the project's code as Ansible does, and a slow machine is no failure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ansible.module_utils
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
ansible.module_utils.__path__.append(str(ROOT / "module_utils"))

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("mutation", settings.get_profile("project"), max_examples=20)  # thousands of runs
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "project"))
