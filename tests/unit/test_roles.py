"""What a role documents is what it does."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parent.parent for path in ROOT.glob("roles/*/meta/argument_specs.yml"))


@pytest.fixture(params=ROLES, ids=lambda path: path.name)
def role(request):
    return request.param


def read(path):
    return yaml.safe_load(path.read_text()) or {}


def test_every_role_has_an_argument_spec():
    assert {path.name for path in ROLES} == {path.name for path in (ROOT / "roles").iterdir()}


def test_the_documented_defaults_are_the_defaults(role):
    options = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    documented = {name: option["default"] for name, option in options.items() if "default" in option}
    assert documented == read(role / "defaults/main.yml")
    required = {name for name, option in options.items() if option.get("required")}
    assert documented.keys() | required == options.keys()


def test_public_names_have_the_roles_prefix_and_private_ones_two_underscores(role):
    assert all(name.startswith(f"{role.name}_") for name in read(role / "defaults/main.yml"))
    assert all(name.startswith(f"__{role.name}_") for name in read(role / "vars/main.yml"))


PREFLIGHT = """
- name: Check what is declared
  hosts: sglang
  gather_facts: false
  tasks:
    - name: Refuse values that cannot be meant
      declared_values:
        roles: [sglang_engine, sglang_service, rollout, traffic, gpu_host]
    - name: Refuse unknown names, and values that no engine could run
      ansible.builtin.include_role:
        name: sglang_service
        tasks_from: preflight
"""


@pytest.mark.parametrize("inventory", sorted((ROOT / "inventories").iterdir()), ids=lambda path: path.name)
def test_the_inventories_declare_what_could_run(inventory, ansible_playbook, tmp_path):
    (tmp_path / "preflight.yml").write_text(PREFLIGHT)
    run = ansible_playbook(tmp_path / "preflight.yml", "-i", inventory)
    assert run.returncode == 0, run.stdout
    assert "failed=0" in run.stdout
