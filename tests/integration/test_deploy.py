"""The main job on a real host with the real engine, told in the order in which an operator lives it.

Each test leaves the host proved with window 2048 on SGLang 0.5.13, unless it says otherwise.
"""

from __future__ import annotations

import pytest
from deployment import INVENTORY

UNIT_FILE = "/etc/systemd/system/sglang-k26.service"
DROP_IN = "/etc/systemd/system/sglang-k26.service.d/old.conf"
WINDOW = "--speculative-draft-window-size"
WINDOW_OF_0_5_11 = "--speculative-dflash-draft-window-size"
KEY = "sk-7Hq2never-printed"
IGNORES_THE_WINDOW = f"""
import sys
if "{WINDOW}" in sys.argv:
    at = sys.argv.index("{WINDOW}")
    del sys.argv[at : at + 2]
"""


def test_check_mode_on_an_empty_host_guesses_nothing_and_changes_nothing(deployment):
    run = deployment.proves(deployment.deploy("-e", "window=2048", "--check", "--diff"))
    assert run.row("window")[:3] == ["2048", "unknown", "until"]
    assert (
        deployment.shell(f"ls {UNIT_FILE} /opt/sglang /var/lib/sglang-deploy 2>&1 || id sglang 2>&1 || true").count(
            "No such"
        )
        == 3
    )


def test_the_first_deployment_is_proved_by_the_engines_own_words(deployment):
    run = deployment.proves(deployment.deploy("-e", "window=2048"))
    assert run.row("window") == ["2048", "2048", "2048", "match"]
    assert "draft_window_size=2048, compact_cache=True" in run.output
    assert "draft_window_size=2048, compact_cache=True" in deployment.journal()
    assert run.row("generation")[-1] != "missing"
    assert run.row("port")[:2] == ["30000", "30000"]


def test_a_second_run_changes_and_restarts_nothing(deployment):
    start = deployment.start()
    run = deployment.proves(deployment.deploy("-e", "window=2048"))
    assert run.changed == 0
    assert deployment.start() == start


def test_an_ordinary_login_with_sudo_sees_the_same(deployment):
    start = deployment.start()
    run = deployment.proves(deployment.deploy("-e", "window=2048", "-e", "ansible_user=operator"))
    assert run.changed == 0
    assert deployment.start() == start
    assert run.row("window") == ["2048", "2048", "2048", "match"]


@pytest.mark.parametrize(
    "extra, said",
    [
        ("window=abc", "window: declared 'abc', but it must be a whole number, or none"),
        ("window=0", "window: declared 0, but it must be at least 8 (block_size)"),
        ("window=-5", "window: declared -5, but it must be at least 8 (block_size)"),
        ("window=4", "window: declared 4, but it must be at least 8 (block_size)"),
        ("window=2_048", "window: declared '2_048', but it must be a whole number, or none"),
        ("window=9999", "window: declared 9999, but it must be at most 4096 (context_length)"),
        ("context_length=9999", "context_length: declared 9999, but it must be at most 4096"),
        ("windwo=1024", "windwo: unknown (-e). Did you mean window?"),
        ("budget=8", "budget: declared '8', but under DFLASH nothing in SGLang"),
        ("sglang_service_windwo=1024", "Did you mean sglang_service_window?"),
        ("window=1024 sglang_service_window=2048", "window: 1024 (-e), but sglang_service_window: 2048 (-e)"),
        ("sglang_version=latest", "sglang_version: declared 'latest'"),
        ("instance=k27", "instance: declared k27, but deploy1 has k26"),
    ],
)
def test_what_cannot_run_is_refused_and_nothing_is_touched(deployment, extra, said):
    start = deployment.start()
    run = deployment.deploy("-e", extra)
    assert run.status == 2
    assert said in run.said
    assert run.changed == 0
    assert deployment.start() == start


def test_a_misspelt_name_in_the_inventory_is_refused_with_its_place(deployment, tmp_path):
    (tmp_path / "hosts.yml").write_text("sglang: {hosts: {deploy1: {ansible_host: 10.213.77.31}}}\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "sglang.yml").write_text("windwo: 1024\n")
    run = deployment.deploy(inventory=tmp_path)
    assert run.status == 2
    assert "group_vars/sglang.yml:1). Did you mean window?" in run.said


def test_check_mode_on_a_deployed_host_says_what_would_change(deployment):
    start = deployment.start()
    run = deployment.proves(deployment.deploy("-e", "window=1024", "--check", "--diff"))
    assert "-ExecStart=" in run.output and f"{WINDOW} 1024" in run.output
    assert "Restart, because window: declared 1024, the process runs with 2048" in run.output
    assert deployment.start() == start
    assert f"{WINDOW} 2048" in deployment.shell(f"cat {UNIT_FILE}")


def test_an_interrupted_change_is_named_by_its_hop_and_healed_by_the_next_run(deployment):
    start = deployment.start()
    run = deployment.deploy("-e", "window=1024", "--skip-tags", "restart,verify")
    assert run.status == 2
    assert "deploy1: what verifies was left out by --skip-tags" in run.output
    run = deployment.verify("-e", "window=1024")
    assert run.status == 2
    assert "window: declared 1024, found 2048 (process hop, differs)" in run.output
    assert deployment.start() == start

    run = deployment.proves(deployment.deploy("-e", "window=1024"))
    assert "Restart, because window: declared 1024, the process runs with 2048" in run.output
    assert run.row("window") == ["1024", "1024", "1024", "match"]
    assert deployment.start() != start


def test_off_is_proved_by_the_engine_saying_none(deployment):
    start = deployment.start()
    run = deployment.proves(deployment.deploy("-e", "window=none"))
    assert run.row("window") == ["none", "none", "none", "match"]
    assert "draft_window_size=None, compact_cache=False" in run.output
    assert WINDOW not in deployment.shell(f"cat {UNIT_FILE}")
    assert deployment.start() != start

    run = deployment.proves(deployment.deploy("-e", "window=2048"))
    assert run.row("window") == ["2048", "2048", "2048", "match"]


def test_a_unit_changed_behind_systemds_back_is_found_and_healed_without_a_restart(deployment):
    start = deployment.start()
    deployment.shell(f"sed -i 's/{WINDOW} 2048/{WINDOW} 1024/' {UNIT_FILE}")
    run = deployment.verify()
    assert run.status == 2
    assert "found a file changed since (unit hop, differs)" in run.output

    deployment.shell("systemctl daemon-reload")
    run = deployment.verify()
    assert run.status == 2
    assert "window: declared 2048, found 1024 (unit hop, differs)" in run.output

    run = deployment.proves(deployment.deploy("-e", "window=2048"))
    assert deployment.start() == start


def test_a_foreign_drop_in_is_named_and_nothing_is_restarted(deployment):
    start = deployment.start()
    argv = deployment.shell(f"sed -n 's/^ExecStart=//p' {UNIT_FILE}").strip().replace(f" {WINDOW} 2048", "")
    deployment.shell(
        f"mkdir -p $(dirname {DROP_IN}); printf '[Service]\\nExecStart=\\nExecStart=%s\\n' '{argv}' > {DROP_IN}"
    )
    for attempt in (deployment.deploy("-e", "window=2048"), deployment.verify()):
        assert attempt.status == 2
        assert "window: declared 2048, found none (unit hop, differs)" in attempt.output
        assert f"remove {DROP_IN}" in attempt.output
        assert deployment.start() == start

    deployment.shell(f"rm {DROP_IN}; systemctl daemon-reload")
    deployment.proves(deployment.verify())


def test_an_engine_that_ignores_the_flag_is_not_excused_by_its_older_good_start(deployment):
    """The founding failure: unit and process carry the flag, the restart is green, and the engine runs without it."""
    start = deployment.start()
    site = deployment.shell("echo /opt/sglang/0.5.13/lib/python3*/site-packages").strip()
    deployment.shell(f"cat > {site}/ignores.py <<'END'\n{IGNORES_THE_WINDOW}END\necho 'import ignores' > {site}/ignores.pth")

    run = deployment.deploy("-e", "window=2048")
    assert run.status == 2
    assert "Restart, because plan: declared" in run.output  # the installation is another: it may not go unnoticed
    assert "window: declared 2048, found none (echoed hop, differs)" in run.output
    assert "unit, process carried it" in run.output
    # What was verified before cannot hold with this engine either: both causes are told.
    assert "back     failed too, and nothing else was touched: window: declared 2048, found none" in run.output
    assert deployment.start() != start
    assert deployment.verify().status == 2

    # The process carries the very plan that was verified, and yet is started anew: its start was not proved.
    deployment.shell(f"rm {site}/ignores.*")
    run = deployment.proves(deployment.deploy("-e", "window=2048"))
    assert "Restart, because its last start was not proved" in run.output


def test_a_bad_change_goes_back_and_is_proved_again(deployment):
    """The configuration of its model is all there, so that nothing can be refused before; the weights are not."""
    deployment.shell("cp -r /srv/models/tiny-qwen3 /srv/models/no-weights; rm /srv/models/no-weights/*.safetensors")
    run = deployment.deploy("-e", "sglang_service_model=/srv/models/no-weights")
    assert run.status == 2
    said = run.said
    assert "Cannot find any model weights" in said
    assert "sglang-k26.service runs again what was verified" in said and "and it is proved again" in said
    assert run.row("model")[:3] == ["/srv/models/tiny-qwen3"] * 3  # of the last table, "gone back"
    assert deployment.proves(deployment.deploy()).changed == 0


def test_an_environment_from_elsewhere_is_named_and_nothing_is_restarted_in_vain(deployment):
    start = deployment.start()
    deployment.shell("systemctl set-environment SGLANG_X=1")
    for attempt in (deployment.deploy("-e", "window=2048"), deployment.verify()):
        assert attempt.status == 2
        assert "SGLANG_X: declared none, found 1 (unit hop, differs)" in attempt.output
        assert "systemctl unset-environment SGLANG_X" in attempt.output
    deployment.shell("systemctl unset-environment SGLANG_X")
    deployment.proves(deployment.verify())
    assert deployment.start() == start


def test_a_state_that_a_power_failure_cut_is_made_anew(deployment):
    start = deployment.start()
    deployment.shell("cd /var/lib/sglang-deploy; : > k26/resolver.json; echo [] > k26/verified.json")
    deployment.proves(deployment.deploy("-e", "window=2048"))
    assert deployment.start() == start
    assert '"evidence"' in deployment.shell("cat /var/lib/sglang-deploy/k26/verified.json")


def test_check_mode_does_not_excuse_a_verification(deployment):
    assert deployment.verify("--check", "-e", "window=1024").status == 2


def test_a_model_that_the_service_may_not_read_is_named_as_the_cause(deployment):
    weights = "/srv/models/tiny-dflash/model.safetensors"
    deployment.shell(f"chmod 000 {weights}; systemctl restart {deployment.unit}")
    run = deployment.verify()
    assert run.status == 2
    assert "sglang-k26.service ended during this start" in run.output or "has no main process" in run.output
    assert weights in run.output
    deployment.shell(f"chmod 644 {weights}")


def test_what_failed_is_healed_by_the_next_run(deployment):
    run = deployment.proves(deployment.deploy("-e", "window=2048"))
    assert run.row("window") == ["2048", "2048", "2048", "match"]


def test_a_generation_is_waived_only_with_a_reason_and_a_day_and_says_so(deployment):
    waiver = '"sglang_service_generation_waiver": {"reason": "maintenance", "until": "%s"}'
    waived = '{"sglang_service_generation": "waived", ' + waiver + "}"
    run = deployment.proves(deployment.verify("-e", waived % "2999-12-31"))
    assert "generation: not asked, waived until 2999-12-31: maintenance" in run.output
    run = deployment.verify("-e", waived % "2020-01-01")
    assert run.status == 2
    assert "declared until 2020-01-01 for k26 (maintenance), and that day is over" in run.said
    run = deployment.deploy("-e", "sglang_service_generation=waived")
    assert run.status == 2 and "declared waived for k26, and nobody says why" in run.said


def test_a_hand_written_service_on_the_port_is_named_and_adopted_only_when_asked(deployment):
    deployment.shell(
        f"systemctl stop {deployment.unit}\n"
        "printf '[Service]\\nExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 30000\\n"
        "[Install]\\nWantedBy=multi-user.target\\n' > /etc/systemd/system/sglang.service\n"
        "systemctl daemon-reload; systemctl enable --now sglang.service\n"
        "until ss -Hltn 'sport = :30000' | grep -q .; do :; done"
    )
    run = deployment.deploy("-e", "window=2048")
    assert run.status == 2
    said = run.said
    assert "port 30000 of sglang-k26.service is held by python3 (pid" in said
    assert "sglang_service_adopt=true" in said
    assert deployment.shell("systemctl is-active sglang.service").strip() == "active"

    deployment.proves(deployment.deploy("-e", "window=2048", "-e", "sglang_service_adopt=true"))
    assert deployment.shell("systemctl is-active sglang.service || systemctl is-enabled sglang.service || true").split() == [
        "inactive", "disabled",
    ]  # fmt: skip


def test_a_gpu_that_something_else_computes_on_is_named(deployment):
    """nvidia-smi is a stand-in: this machine has no GPU. It lists one process, as the real one does."""
    deployment.shell(
        "systemd-run --quiet --unit=old-engine sleep infinity\n"
        "pid=$(systemctl show -p MainPID --value old-engine)\n"
        "printf '#!/bin/sh\\ncase $1 in *gpu=*) echo 0, GPU-1;; *) echo GPU-1, %s;; esac\\n' $pid > /usr/bin/nvidia-smi\n"
        "chmod +x /usr/bin/nvidia-smi"
    )
    start = deployment.start()
    # Without the variables of the CPU build, which are refused on a GPU host.
    run = deployment.deploy("-e", '{"sglang_service_device": "cuda", "sglang_service_environment": {}}')
    assert run.status == 2
    assert "GPU 0 of sglang-k26.service is held by sleep (pid" in run.said
    assert deployment.start() == start
    deployment.shell("systemctl stop old-engine; rm /usr/bin/nvidia-smi")


def test_another_release_is_one_variable_away_and_so_is_the_way_back(deployment):
    run = deployment.proves(deployment.deploy("-e", "sglang_version=0.5.23"))
    assert run.row("window") == ["2048", "2048", "2048", "match"]
    assert "server_args={'model_path'" in deployment.journal()

    run = deployment.proves(deployment.deploy("-e", "sglang_version=0.5.11"))
    assert run.row("window") == ["2048", "2048", "2048", "match"]
    assert f"{WINDOW_OF_0_5_11} 2048" in deployment.shell(f"cat {UNIT_FILE}")

    run = deployment.proves(deployment.deploy())
    assert "SGLang 0.5.13" in run.output
    assert run.row("generation")[-1] != "missing"


RESOLVE = """
- hosts: sglang
  gather_facts: false
  become: true
  tasks:
    - name: Install what is not there
      ansible.builtin.include_role:
        name: sglang_engine
      vars: {sglang_version: "{{ item }}"}
      loop: &releases [0.5.11, 0.5.13, 0.5.19, 0.5.23]
    - name: Put the plan for a GPU host to each engine's own resolver
      sglang_plan:
        declaration:
          instance: k26
          settings: "{{ sglang_service_settings | combine({'device': 'cuda'}) }}"
          python: "/opt/sglang/{{ item }}/bin/python"
          user: sglang
      loop: *releases
      register: plans
    - name: Print what came of it
      ansible.builtin.debug:
        msg: "{{ item.plan.release }} {{ item.dry_hop }} {{ item.plan.argv | select('search', 'window') | first }}"
      loop: "{{ plans.results }}"
      loop_control: {label: "{{ item.plan.release }}"}
"""


def test_four_releases_resolve_their_plan_to_what_is_declared(deployment, tmp_path):
    """On this machine without a GPU; a resolver that made something else of one setting would fail its plan."""
    (tmp_path / "resolve.yml").write_text(RESOLVE)
    run = deployment.proves(deployment.playbook(tmp_path / "resolve.yml"))
    told = [line.split("msg: ")[1].strip() for line in run.output.splitlines() if "msg: " in line]
    assert told == [f"0.5.11 asked {WINDOW_OF_0_5_11}", *(f"{r} asked {WINDOW}" for r in ("0.5.13", "0.5.19", "0.5.23"))]


def test_a_key_is_in_no_output_and_in_no_file_that_is_kept(deployment):
    deployment.shell(
        "mkdir -p /etc/sglang; umask 027; printf 'api-key: \"%s\"\\n' " + KEY + " > /etc/sglang/k26.yaml\n"
        "chgrp sglang /etc/sglang/k26.yaml"
    )
    with_key = ("-e", "sglang_service_key_file=/etc/sglang/k26.yaml")
    run = deployment.proves(deployment.deploy("-vvv", "--diff", *with_key))
    assert run.row("api_key")[0] == "needed" and "answered 401" in run.output
    assert KEY in deployment.journal(), "the engine itself prints it"
    broken = deployment.verify("-vvv", "-e", "window=1024", *with_key)
    assert broken.status == 2
    assert KEY not in run.output + broken.output
    assert "server_args=" in run.output, "it was searched where the key stood"
    kept = deployment.shell(f"grep -rl {KEY} /etc /var/lib /var/cache /opt/sglang/*/.installed.json /run/systemd || true")
    assert kept.split() == ["/etc/sglang/k26.yaml"]
    deployment.proves(deployment.deploy())
    assert "/etc/sglang/k26.yaml" not in deployment.shell(f"cat {UNIT_FILE}")


def test_two_instances_stand_side_by_side(deployment, tmp_path):
    (tmp_path / "hosts.yml").write_text(
        "sglang:\n"
        "  hosts: {deploy1: {ansible_host: 10.213.77.31}}\n"
        "  vars: {sglang_service_instances: [{name: k26}, {name: k27, settings: {port: 30001}}]}\n"
    )
    (tmp_path / "group_vars").symlink_to(INVENTORY / "group_vars")
    start = deployment.start()
    run = deployment.deploy("-e", "window=1024", inventory=tmp_path)
    assert run.status == 2
    assert "Say which one: -e instance=k26" in run.said

    run = deployment.proves(deployment.deploy("-e", "window=1024", "-e", "instance=k27", inventory=tmp_path))
    assert run.row("window") == ["1024", "1024", "1024", "match"]
    assert run.row("port")[:1] == ["30001"]
    assert deployment.start() == start

    # Who asks is told of both, also where the first is wrong.
    declared = "{name: k26}, {name: k27, settings: {port: 30001}}"
    other = "{name: k26, settings: {window: 512}}, {name: k27, settings: {port: 30001, window: 256}}"
    together = (tmp_path / "hosts.yml").read_text()
    (tmp_path / "hosts.yml").write_text(together.replace(declared, other))
    run = deployment.verify(inventory=tmp_path)
    assert run.status == 2
    told = run.output.split("NOT PROVED")[1]
    assert "window: declared 512, found 2048" in told and "window: declared 256, found 1024" in told

    # What only the second cannot do is refused before the first is touched.
    both = "{name: k26, settings: {window: 512}}, {name: k27, settings: {port: 30001}"
    deployment.shell(
        "systemctl stop sglang-k27; systemd-run --unit holder python3 -m http.server 30001;"
        "timeout 60 sh -c 'until ss -ltn | grep -q :30001; do sleep 0.1; done'"
    )
    (tmp_path / "hosts.yml").write_text(together.replace(declared, both + "}"))
    run = deployment.deploy(inventory=tmp_path)
    deployment.shell("systemctl stop holder")
    assert run.status == 2
    assert "port 30001 of sglang-k27.service is held by python3 (pid" in run.said
    refused = both + ", extra_args: [--disable-cuda-graph, --sleep-on-idle, --schedule-policy, none-such]}"
    (tmp_path / "hosts.yml").write_text(together.replace(declared, refused))
    run = deployment.deploy(inventory=tmp_path)
    assert run.status == 2
    assert "SGLang 0.5.13 refuses it itself (its own argument resolver)" in run.said and "none-such" in run.said
    assert deployment.start() == start

    # One port for both is refused before a host is touched.
    (tmp_path / "hosts.yml").write_text(together.replace("30001", "30000"))
    run = deployment.deploy("-e", "instance=k27", inventory=tmp_path)
    assert run.status == 2
    assert "port: k27 and k26 of one host both take port 30000; each needs its own" in run.said
    assert run.changed == 0

    # Whose port a declared neighbour still holds: that is no unit that could be replaced.
    (tmp_path / "hosts.yml").write_text(together.replace(declared, "{name: k26, settings: {port: 30001}}, {name: k27}"))
    run = deployment.deploy("-e", "instance=k27", "-e", "sglang_service_adopt=true", inventory=tmp_path)
    assert run.status == 2
    assert "port 30000 of sglang-k27.service is held by python (pid" in run.said
    assert deployment.start() == start
    deployment.shell(
        "systemctl disable --now sglang-k27; rm /etc/systemd/system/sglang-k27.service; systemctl daemon-reload"
    )


def test_a_host_without_a_verdict_fails_the_run_and_is_named(deployment, tmp_path):
    hosts = "sglang: {hosts: {deploy1: {ansible_host: 10.213.77.31}, gone: {ansible_host: 10.213.77.99}}}\n"
    (tmp_path / "hosts.yml").write_text(hosts)
    (tmp_path / "group_vars").symlink_to(INVENTORY / "group_vars")
    run = deployment.playbook("playbooks/verify.yml", "-T", "2", inventory=tmp_path)
    assert run.status == 4
    assert "gone: unreachable, no verdict" in run.output
    assert run.row("window") == ["2048", "2048", "2048", "match"]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--skip-tags", "verify"], "deploy1: what verifies was left out by --skip-tags"),
        (["--tags", "nothing"], "deploy1: what verifies was left out by --tags"),
        (["--limit", "nobody"], "nobody"),
    ],
)
def test_a_run_that_proves_nothing_does_not_end_well(deployment, arguments, said):
    run = deployment.deploy(*arguments)
    assert run.status != 0
    assert said in run.output


def test_an_inventory_without_the_group_does_not_end_well(deployment, tmp_path):
    (tmp_path / "hosts.yml").write_text("engines: {hosts: {deploy1: {ansible_host: 10.213.77.31}}}\n")
    run = deployment.deploy(inventory=tmp_path)
    assert run.status == 2
    assert 'no host matches "sglang"' in run.output

    # Also where nobody is there to promise anything.
    assert deployment.deploy(inventory=tmp_path, callbacks="ansible.posix.timer").status == 2
