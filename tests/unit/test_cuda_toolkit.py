"""Which toolkit goes with the declared SGLang and driver."""

from __future__ import annotations

import pytest

PLAY = """
- name: Preflight alone
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Preflight
      ansible.builtin.include_role:
        name: cuda_toolkit
        tasks_from: preflight
        public: true

    - name: What would be installed
      ansible.builtin.debug:
        msg: "would install {{ cuda_toolkit_packages | join(' ') }} for {{ __cuda_toolkit_home }}"
"""


@pytest.fixture
def preflight(ansible_playbook, tmp_path):
    (tmp_path / "play.yml").write_text(PLAY)

    def run(**declared):
        arguments = [word for name, value in declared.items() for word in ("-e", f"{name}={value}")]
        done = ansible_playbook(tmp_path / "play.yml", "-i", "localhost,", "-c", "local", *arguments)
        return done.returncode, " ".join(done.stdout.split())

    return run


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"sglang_version": "0.5.13"}, "would install cuda-toolkit-13-0 for /usr/local/cuda-13.0"),
        ({"sglang_version": "0.5.10"}, "would install cuda-toolkit-12-9 for /usr/local/cuda-12.9"),
        (
            {"cuda_toolkit_version": "13.1", "nvidia_driver_version": "590.44.01"},
            "would install cuda-toolkit-13-1 for /usr/local/cuda-13.1",
        ),
    ],
)
def test_the_toolkit_is_that_of_the_engines_wheels_or_the_declared_one(preflight, declared, said):
    status, output = preflight(**declared)
    assert status == 0, output
    assert said in output


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"cuda_toolkit_version": "13.1"}, "at most 13.0, the CUDA of NVIDIA driver 580"),
        ({"cuda_toolkit_version": "12.8"}, "at least 12.9"),
        ({"cuda_toolkit_version": "13-0"}, "declared '13-0'"),
    ],
)
def test_a_toolkit_that_the_driver_cannot_load_or_that_cannot_compile_for_these_cards_is_refused(preflight, declared, said):
    status, output = preflight(**declared)
    assert status != 0
    assert said in output
