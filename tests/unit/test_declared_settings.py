"""Names and values that cannot be meant, refused by real runs of ansible-playbook."""

from __future__ import annotations

import pytest

PLAYBOOK = """
- name: Check what is declared
  hosts: engines
  gather_facts: false
  tasks:
    - name: Refuse unknown names
      declared_settings:
        instances: "{{ instances | default([{'name': 'k26'}]) }}"
        only: "{{ instance | default('') }}"
        shared: {spec_algorithm: DDTREE, model: /m, draft_model: /d, block_size: 8}
        prefix: sglang_service_
        short: [window, budget]
        aliases: {sglang_version: sglang_engine_version, instance: sglang_service_only}
        own: [rack, instances]
      register: declared
    - name: Show what was declared
      ansible.builtin.debug:
        msg: "declared: {{ declared.settings | to_json(sort_keys=true) }}"
"""

INVENTORY = """
engines:
  hosts:
    a: {HOST}
    b:
  vars: {GROUP}
"""


@pytest.fixture
def check(tmp_path, monkeypatch, ansible_playbook):
    """Run the check with these variables of host a, of its group, and of group_vars/all.yml."""

    def run(*options, host="{}", group="{}", group_vars="{}", back=False):
        (tmp_path / "play.yml").write_text(
            PLAYBOOK.replace("shared:", "settings: false\n        shared:") if back else PLAYBOOK
        )
        (tmp_path / "hosts.yml").write_text(INVENTORY.replace("{HOST}", host).replace("{GROUP}", group))
        (tmp_path / "group_vars").mkdir(exist_ok=True)
        (tmp_path / "group_vars" / "all.yml").write_text(group_vars)
        monkeypatch.chdir(tmp_path)
        return ansible_playbook("play.yml", "-i", "hosts.yml", *options)

    run.again = lambda play: ansible_playbook(play, "-i", "hosts.yml")
    return run


def test_known_own_and_unrelated_names_pass(check):
    run = check(
        *("-e", "window=2048", "-e", "rack=7", "-e", "ansible_user=root", "--check"),
        host="{rack: 7, kubernetes: true}",
        group="{sglang_service_only: k26, ntp_servers: []}",
        group_vars="sglang_service_budget: 8",
    )
    assert run.returncode == 0, run.stdout
    assert "changed=0" in run.stdout


@pytest.mark.parametrize("extra", ["windw=2048", '{"windw": 2048}'])
def test_an_unknown_extra_variable_is_refused_with_the_nearest_name(check, extra):
    run = check("-e", extra)
    assert run.returncode == 2
    assert "windw: unknown (-e). Did you mean window?" in run.stdout


def test_an_unknown_name_in_a_file_of_extra_variables_is_refused_with_its_line(check, tmp_path):
    (tmp_path / "extra.yml").write_text("budget: 8\nzzz: 1\n")
    run = check("-e", "@extra.yml")
    assert run.returncode == 2
    assert "zzz: unknown (-e @extra.yml:2)." in run.stdout


def test_unknown_names_of_the_inventory_are_refused_with_the_file_and_line(check):
    run = check(
        host="{sglang_service_foo: 1}",
        group="{sglang_verson: 1}",
        group_vars="budget: 8\nsglang_service_windw: 2048\n",
    )
    assert run.returncode == 2
    output = run.stdout
    assert "sglang_service_windw: unknown (group_vars/all.yml:2). Did you mean sglang_service_window?" in output
    assert "sglang_verson: unknown (hosts.yml:6). Did you mean sglang_version?" in output
    assert "sglang_service_foo: unknown (hosts.yml:4)." in output


def test_a_problem_of_a_shared_group_is_told_once(check):
    run = check(group="{sglang_service_zzz: 1}")
    assert run.stdout.split("msg:")[1].count("sglang_service_zzz: unknown") == 1


def test_a_short_and_its_long_name_must_not_disagree(check):
    run = check("-e", "window=2048", group_vars="sglang_service_window: 1024")
    assert run.returncode == 2
    assert "window: 2048 (-e), but sglang_service_window: 1024 (group_vars/all.yml:1). Next: keep one of them" in run.stdout


@pytest.mark.parametrize(("short", "long"), [("2048", "2048"), ("none", "null"), ("2048", '"{{ 2 * 1024 }}"')])
def test_a_short_and_its_long_name_may_agree(check, short, long):
    run = check("-e", f"window={short}", group_vars=f"sglang_service_window: {long}")
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_strongest_declaration_of_a_host_is_compared(check):
    run = check("-e", "window=2048", group="{sglang_service_window: 1024}", host="{sglang_service_window: 2048}")
    assert run.returncode == 2  # host b has 1024
    run = check("-e", "window=2048", "-e", "sglang_service_window=2048", group="{sglang_service_window: 1024}")
    assert run.returncode == 0, run.stdout + run.stderr


def test_all_problems_come_in_one_message(check):
    run = check("-e", "windw=1 zzz=2", host="{sglang_service_foo: 1}")
    output = run.stdout
    assert all(name in output for name in ("windw: unknown", "zzz: unknown", "sglang_service_foo: unknown"))


def test_a_configuration_without_the_table_is_refused(check, monkeypatch):
    monkeypatch.setenv("ANSIBLE_CALLBACKS_ENABLED", "ansible.posix.timer")
    run = check()
    assert run.returncode == 2
    assert "The callback verdict_table is not enabled" in run.stdout


def test_what_was_declared_is_returned_whatever_name_it_has(check):
    run = check("-e", "window=2048", group_vars="sglang_service_budget: 8\nsglang_service_port: '{{ 30000 + 1 }}'")
    assert """declared: {"budget": 8, "port": 30001, "window": "2048"}""" in run.stdout


@pytest.mark.parametrize(("options", "read"), [((), "hosts.yml:4"), (("-e", "port=22"), "-e")])
def test_a_setting_under_a_name_that_nobody_reads_is_refused(check, options, read):
    run = check(*options, host="{port: 22}" if not options else "{}")
    assert run.returncode == 2
    assert f"port: this setting has no short name ({read}). Say sglang_service_port" in run.stdout


def test_unknown_names_that_begin_like_the_project_are_refused(check):
    run = check(host="{sglang_prot: 1, ports: [1]}")
    assert run.returncode == 2
    assert "sglang_prot: unknown (hosts.yml:4)." in run.stdout
    assert "ports:" not in run.stdout


def test_a_name_that_the_user_declares_as_his_own_stays_his(check):
    run = check(host="{rack: 7}")
    assert run.returncode == 0, run.stdout
    assert "declared: {}" in run.stdout


INSTANCES = '{instances: [{name: k26, settings: {port: 30000, gpus: "0,1"}}, {name: k27, settings: {port: %d, gpus: "2"}}]}'


def test_two_instances_that_take_the_same_are_refused_once(check):
    run = check("--limit", "a", host=INSTANCES % 30000)
    assert run.returncode == 2
    assert run.stdout.split("msg:")[1].count("port: k26 and k27 of one host both take port 30000; each needs its own") == 1


def test_a_setting_for_one_of_several_instances_says_which(check):
    run = check("--limit", "a", "-e", "window=512", host=INSTANCES % 30001)
    assert run.returncode == 2
    assert "window: declared for a, which has the instances k26, k27. Say which one: -e instance=k26." in run.stdout
    run = check("--limit", "a", "-e", "window=512", "-e", "instance=k27", host=INSTANCES % 30001)
    assert run.returncode == 0, run.stdout


def test_what_is_wrong_with_another_instance_is_its_own_business(check):
    of_k26 = "{instances: [{name: k26, settings: {window: 4}}, {name: k27, settings: {port: 30001}}]}"
    run = check("--limit", "a", host=of_k26)
    assert run.returncode == 2 and "window: declared 4" in run.stdout
    run = check("--limit", "a", "-e", "instance=k27", host=of_k26)
    assert run.returncode == 0, run.stdout


def test_which_of_several_declarations_wins_is_as_in_ansible(check):
    run = check(group="{window: 2048}", group_vars="window: 1024")  # group_vars/all.yml is above the inventory's file
    assert run.stdout.count("declared: {") and """declared: {"window": 1024}""" in run.stdout


def test_a_setting_of_a_play_is_refused_because_nobody_reads_it(check, tmp_path):
    run = check()
    assert run.returncode == 0
    play = (
        (tmp_path / "play.yml")
        .read_text()
        .replace("  gather_facts: false\n", "  gather_facts: false\n  vars: {window: 64}\n")
    )
    (tmp_path / "play.yml").write_text(play)
    (tmp_path / "site.yml").write_text("- import_playbook: play.yml\n")
    run = check.again("site.yml")
    assert run.returncode == 2
    assert "window: declared in a play, where it is not read." in run.stdout


@pytest.mark.parametrize(
    ("instances", "said"),
    [
        ("[]", "sglang_service_instances: declared none. Each needs a name of its own"),
        ("[{name: k26}, {name: k26}]", "sglang_service_instances: declared k26, k26. Each needs a name of its own"),
        ("[{name: K26}]", "sglang_service_instances: declared K26. Each needs a name of its own of lower-case letters"),
        (
            '[{name: "k26\\n"}]',
            "Each needs a name of its own of lower-case letters, digits and dashes. Nothing was changed.",
        ),
    ],
)
@pytest.mark.parametrize("back", [False, True])
def test_instances_that_cannot_be_told_apart_are_refused(check, instances, said, back):
    run = check("--limit", "a", host=f"{{instances: {instances}}}", back=back)
    assert run.returncode == 2 and said in " ".join(run.stdout.split())


WAIVED = "{generation: waived, generation_waiver: {reason: no kernel, until: %s}}"


@pytest.mark.parametrize(
    ("generation", "said"),
    [
        (WAIVED % "2999-01-01", ""),
        ("{generation: waived}", "sglang_service_generation: declared waived for k26, and nobody says why. Next: "),
        (
            WAIVED % "2026-11-28",
            "sglang_service_generation_waiver: declared until 2026-11-28 for k26 (no kernel), and that day is over. Next: ",
        ),
    ],
)
def test_a_waiver_that_does_not_hold_is_refused(check, generation, said):
    run = check("--limit", "a", host=f"{{instances: [{{name: k26, {generation[1:-1]}}}]}}")
    assert run.returncode == (2 if said else 0) and said in " ".join(run.stdout.split())
    assert check("--limit", "a", host=f"{{instances: [{{name: k26, {generation[1:-1]}}}]}}", back=True).returncode == 0


def test_a_way_back_reads_no_settings_and_refuses_what_it_cannot_know_all_the_same(check):
    run = check(host="{sglang_service_foo: 1, sglang_service_block_size: none}", back=True)
    assert run.returncode == 0, run.stdout
    run = check("-e", "window=many", back=True)
    assert run.returncode == 0
    assert "window: a setting of engines, which this run does not read" in " ".join(run.stderr.split())
    run = check("-e", "instnace=k26", back=True)
    assert run.returncode == 2 and "instnace: unknown (-e). Did you mean instance?" in run.stdout
    run = check("-e", "instance=k27", back=True)
    assert run.returncode == 2 and "instance: declared k27, but a has k26 (sglang_service_instances)" in run.stdout
