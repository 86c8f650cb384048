"""What the role traffic makes of its variables, without a host."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[2] / "roles/traffic"
INSTANCES = {"sglang_service_instances": [{"name": "k26"}, {"name": "k27"}]}
SMG = {"traffic_kind": "smg", "traffic_gateways": ["http://gateway:8000"]}


def trusted(value):
    """A role's own texts are templates."""
    if isinstance(value, dict):
        return {name: trusted(content) for name, content in value.items()}
    if isinstance(value, list):
        return [trusted(content) for content in value]
    return trust_as_template(value) if isinstance(value, str) else value


def templar(**declared):
    defaults, own = (trusted(yaml.safe_load((ROLE / f"{name}/main.yml").read_text())) for name in ("defaults", "vars"))
    return Templar(DataLoader(), variables={"inventory_hostname": "gpu1", **defaults, **own, **declared})


@pytest.mark.parametrize(
    "declared, moved",
    [
        ({}, ["k26"]),
        (INSTANCES, ["k26", "k27"]),
        ({**INSTANCES, "instance": "k27"}, ["k27"]),
        ({**INSTANCES, "sglang_service_only": "k27"}, ["k27"]),
        ({**INSTANCES, "sglang_service_only": ""}, ["k26", "k27"]),
    ],
)
def test_a_run_moves_the_instances_that_it_changes(declared, moved):
    assert templar(**declared).template(trust_as_template("{{ __traffic_instances }}")) == moved


@pytest.mark.parametrize(
    "declared, passes",
    [
        ({}, True),
        (SMG, True),
        ({**SMG, "traffic_gateways": []}, False),
    ],
)
def test_a_balancer_that_is_not_described_is_refused(declared, passes):
    (check,) = yaml.safe_load((ROLE / "tasks/preflight.yml").read_text())
    that = trusted(check["ansible.builtin.assert"]["that"])
    assert all(templar(**declared).evaluate_conditional(condition) for condition in that) == passes
