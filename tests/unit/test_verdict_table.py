"""The closing table, seen as a user sees it: real runs of ansible-playbook on this machine."""

from __future__ import annotations

import json

import pytest

PASSED = """
    - name: Verify
      report:
        verdict_table:
          title: engine  ready after 27 s
          columns: [setting, declared, verdict]
          rows: [[window, 2048, match], [budget, null, match]]
          notes: ["read in the journal"]
          passed: true
      tags: verify
"""


@pytest.fixture
def play(tmp_path, ansible_playbook):
    """Run a playbook whose promising play has these tasks; returns status and output."""
    (tmp_path / "hosts.json").write_text(
        json.dumps({"engines": {"hosts": {"a": {}, "b": {}}}, "others": {"hosts": {"c": {}}}})
    )

    def run(tasks, *options, pattern="engines", promise="true", keywords="", before="", **how):
        (tmp_path / "play.yml").write_text(
            f"{before}\n- name: Roll out\n  hosts: '{pattern}'\n  gather_facts: false\n"
            f"  vars: {{verdict_required: {promise}}}\n  {keywords}\n  tasks:\n{tasks}"
        )
        return ansible_playbook(tmp_path / "play.yml", "-i", tmp_path / "hosts.json", *options, **how)

    return run


def test_hosts_that_are_alike_share_one_aligned_table_and_the_run_ends_well(play):
    run = play(PASSED)
    assert run.returncode == 0
    table = (
        "a  engine  ready after 27 s\n"
        "b  engine  ready after 27 s\n"
        "  setting  declared  verdict\n"
        "  window   2048      match\n"
        "  budget   -         match\n"
        "  read in the journal\n"
    )
    assert table in run.stdout
    assert "NOT PROVED" not in run.stdout


def test_hosts_that_differ_have_a_table_each(play):
    run = play(PASSED.replace("2048", "\"{{ {'a': 1024, 'b': 2048}[inventory_hostname] }}\""))
    assert run.returncode == 0
    for host, window in (("a", 1024), ("b", 2048)):
        assert f"{host}  engine  ready after 27 s\n  setting  declared  verdict\n  window   {window} " in run.stdout


def test_what_is_a_hosts_own_does_not_part_it_from_the_others(play):
    own = PASSED.replace("null, match]]", '"{{ inventory_hostname }}", match]]').replace(
        "rows:", "own: [budget]\n          rows:"
    )
    run = play(own)
    assert "a  engine  ready after 27 s\nb  engine  ready after 27 s\n  setting" in run.stdout
    run = play(own.replace('}}", match', "}}\", \"{{ {'a': 'match', 'b': 'missing'}[inventory_hostname] }}\""))
    assert "b  engine  ready after 27 s\n  setting" in run.stdout
    assert "a  engine  ready after 27 s\n  setting" in run.stdout


def test_of_two_tables_with_one_key_the_last_counts(play):
    run = play(PASSED + PASSED.replace("passed: true", "passed: false").replace("27 s", "31 s"))
    assert run.returncode == 2
    assert "27 s" not in run.stdout
    assert 'a, b: its table did not pass (play "Roll out")' in run.stdout


def test_tables_of_a_loop_and_of_a_failed_task_are_printed(play):
    run = play("""
    - name: Verify
      report:
        failed: "{{ item == 'second' }}"
        verdict_table:
          key: "{{ item }}"
          title: "{{ item }}"
          columns: [c]
          rows: []
          passed: true
      loop: [first, second]
""")
    assert run.returncode == 2
    assert "\na  first\nb  first\n  c\n\na  second\nb  second\n  c\n" in run.stdout


def test_a_host_that_failed_before_its_verdict_is_named_with_the_task(play):
    run = play("    - name: Render the unit\n      report: {failed: \"{{ inventory_hostname == 'a' }}\"}\n" + PASSED)
    assert run.returncode == 2
    assert 'a: failed in task "Render the unit", no verdict' in run.stdout
    assert "b: " not in run.stdout.split("NOT PROVED")[1]


def test_a_rescued_failure_without_a_verdict_still_fails(play):
    run = play("""
    - name: Change
      block: [{name: Restart, report: {failed: true}}]
      rescue: [{name: Go back, report: {}}]
""")
    assert run.returncode == 2
    assert 'a, b: failed in task "Restart", no verdict' in run.stdout


FAILS = """
    - name: Go back with k27
      report: {failed: true, msg: nothing of k27 is verified}
      when: inventory_hostname == 'b'
"""


def test_a_table_that_passed_does_not_hide_what_fails_later(play):
    run = play(PASSED + FAILS)
    assert run.returncode == 2
    assert run.stdout.endswith(
        'NOT PROVED\n  b: failed in task "Go back with k27" (play "Roll out")\n    nothing of k27 is verified\n'
    )


def test_a_table_that_passed_does_not_hide_a_host_that_is_lost_later(play):
    lost = "    - name: Speak\n      ansible.builtin.raw: 'true'\n      when: inventory_hostname == 'a'\n"
    run = play(PASSED + lost, "-e", "ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1")
    assert run.returncode == 4
    assert '\n  a: unreachable (play "Roll out")' in run.stdout


def test_what_failed_and_was_rescued_or_ignored_before_the_proof_is_no_failure(play):
    run = play(
        """
    - name: Try
      block: [{name: Restart, report: {failed: true}}]
      rescue: [{name: Try again, report: {failed: true}, ignore_errors: true}]
"""
        + PASSED
    )
    assert run.returncode == 0
    assert "NOT PROVED" not in run.stdout


def outcome(word, cause=""):
    return (
        f"    - report: {{rollout_outcome: {{host: '{{{{ inventory_hostname }}}}', outcome: {word}, cause: '{cause}'}}}}\n"
    )


def test_a_host_that_went_back_is_not_proved_by_what_it_went_back_to(play):
    run = play(f"""
    - block: [{{name: Restart, report: {{failed: true, msg: the port is held}}}}]
      rescue: [report: {{verdict_table: {{title: gone back, columns: [setting], rows: [], passed: true}}}}]
{outcome("gone back", "the port is held")}
    - {{name: End, report: {{failed: true, msg: "the port is held, went back"}}}}
""")
    assert run.returncode == 2
    assert run.stdout.endswith('a, b: failed in task "Restart" (play "Roll out")\n    the port is held, went back\n')


def test_what_ends_the_run_when_a_host_is_done_says_nothing_of_the_host(play):
    run = play(PASSED + outcome("proved") + "    - {name: Ask, report: {failed: true, msg: not approved}, run_once: true}\n")
    assert run.returncode == 2
    assert run.stdout.endswith(
        'NOT PROVED\n  the run ended at a, failed in task "Ask" (play "Roll out")\n    not approved\n'
    )


def test_where_it_failed_first_is_named_with_what_was_said_there_and_last(play):
    run = play("""
    - block: [{name: Load, report: {failed: true, msg: out of memory}}]
      rescue: [{name: Fail with both causes, report: {failed: true, msg: "out of memory, and no way back"}}]
      always: [{name: Give the host back, report: {failed: true, msg: no space left}}]
""")
    assert run.stdout.endswith('"Load", no verdict (play "Roll out")\n    out of memory\n    no space left\n')


def test_ctrl_c_says_what_stands(play):
    run = play(
        PASSED + "    - {name: Load k27, report: {tells: true, takes: 60}, when: inventory_hostname == 'b'}\n",
        keywords="serial: 1",
        pattern="engines,c",
        ctrl_c_after=1,
    )
    assert run.returncode == 99
    assert run.stdout.endswith(
        "\nNOT PROVED\n  interrupted. The same command again goes on from there\n"
        "    proved      a\n    interrupted b\n    not reached c\n"
    )


def test_an_inventory_that_cannot_be_read_is_not_called_an_interruption(play, tmp_path):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/engines.yml").write_text("a: 1\n  b: 2\n")
    run = play(PASSED, before="- {name: Check, hosts: engines, gather_facts: false, tasks: [{ansible.builtin.ping: }]}")
    assert run.returncode not in (0, 2)
    assert "interrupted" not in run.stdout
    assert "ended before any host's turn, by Ctrl-C or by the error above\n" in run.stdout


def test_an_error_of_ansible_itself_stays_the_only_one(play):
    run = play(PASSED, before="- {name: Check, hosts: '{{ nobody }}', tasks: []}", pattern="{{ nobody }}")
    assert run.returncode not in (0, 2)
    assert "Traceback" not in run.stdout + run.stderr


def test_verification_left_out_by_tags_is_no_success(play):
    run = play(PASSED, "--skip-tags", "verify")
    assert run.returncode == 2
    assert "a, b: what verifies was left out by --skip-tags, no verdict" in run.stdout


def test_a_play_without_any_verdict_is_no_success(play):
    run = play("    - name: Nothing\n      report: {}\n")
    assert run.returncode == 2
    assert "a, b: no task gave a verdict" in run.stdout


def test_an_unreachable_host_is_named_and_keeps_its_exit_status(play):
    unreachable = "    - name: Speak\n      ansible.builtin.raw: 'true'\n      when: inventory_hostname == 'a'\n"
    run = play(unreachable + PASSED, "-e", "ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1")
    assert run.returncode == 4
    assert "a: unreachable, no verdict" in run.stdout


PROVE = """
    - name: Prove
      sglang_startup: {declaration: {instance: "{{ item }}", settings: {}, python: /p}, unit_path: /u}
      loop: [k26, k27]
"""


def test_a_host_that_never_answered_is_not_waited_for_and_the_cause_is_told_of_a_loop_too(play):
    run = play(PROVE, "-e", "ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1")
    assert run.returncode == 4
    assert "connection lost" not in run.stdout
    told = run.stdout.split("NOT PROVED")[1]
    assert "a, b: unreachable, no verdict" in told and "Connection refused" in told


def test_instances_that_the_run_is_not_for_are_named(play):
    run = play("    - report: {left_out: [k27, k28]}\n" + PASSED)
    assert run.returncode == 0
    assert "\nnot in this run (instance): k27, k28 on a, b\n" in run.stdout


def test_hosts_of_a_batch_that_was_not_reached_are_named(play):
    run = play("    - {name: Gate, report: {failed: true}}\n", keywords="serial: 1")
    assert run.returncode == 2
    assert "b: the run ended before its turn, no verdict" in run.stdout


def test_a_promising_play_behind_a_failed_one_is_not_forgotten(play):
    run = play(PASSED, before="- {name: Check, hosts: engines, gather_facts: false, tasks: [report: {failed: true}]}")
    assert run.returncode == 2
    assert 'a, b: failed in task "report", no verdict (play "Check")' in run.stdout


def test_an_unknown_group_is_named_and_fails(play):
    run = play(PASSED, pattern="engnes")
    assert run.returncode == 2
    assert 'no host matches "engnes" (play "Roll out"). Next: ansible-inventory --graph' in run.stdout


def test_a_templated_pattern_is_read_with_the_extra_variables(play):
    run = play(PASSED, "-e", "target=b", pattern="{{ target }}")
    assert run.returncode == 0
    assert "b  engine" in run.stdout
    assert "a  engine" not in run.stdout


def test_hosts_outside_the_limit_are_named_without_failing(play):
    run = play(PASSED, "--limit", "b")
    assert run.returncode == 0
    assert "not in this run (--limit): a" in run.stdout


def test_a_limit_that_leaves_no_promised_host_fails(play):
    run = play(PASSED, "--limit", "c")
    assert run.returncode == 2
    assert "no host that must be proved is within --limit" in run.stdout


def test_a_limit_that_matches_nothing_fails_and_says_so(play):
    run = play(PASSED, "--limit", "nowhere")
    assert run.returncode != 0
    assert "--limit" in run.stderr


def test_a_table_that_claims_nothing_is_accepted_in_check_mode_alone(play):
    nothing = PASSED.replace("passed: true", "passed: null")
    assert play(nothing, "--check").returncode == 0
    run = play(nothing)
    assert run.returncode == 2
    assert "a, b: its table claims nothing, and this was no check mode" in run.stdout


def test_a_broken_table_never_ends_well(play):
    run = play(PASSED.replace("rows:", "no_rows:"))
    assert run.returncode == 2
    assert "verdict_table itself failed" in run.stdout


def test_a_play_that_promises_nothing_only_prints(play):
    run = play(PASSED, "--skip-tags", "verify", promise="false")
    assert run.returncode == 0
    assert "NOT PROVED" not in run.stdout
    run = play(PASSED.replace("passed: true", "passed: false"), promise="false")
    assert run.returncode == 0
    assert "a  engine  ready after 27 s" in run.stdout


RUNS = PASSED.replace("rows:", "runs: {engine 0.5.13: {torch: \"{{ torch | default('2.9.0') }}\"}}\n          rows:")


@pytest.fixture
def fleet(play, tmp_path):
    """Nine hosts; `odd` is the variables of the last."""

    def run(tasks, *options, odd, alike=False):
        hosts = {f"n{number}": {} for number in range(8)} | {"odd": odd}
        (tmp_path / "hosts.json").write_text(json.dumps({"engines": {"hosts": hosts}}))
        return play(tasks, *options, promise=f"true, verdict_alike: {alike}")

    return run


def test_a_host_that_runs_something_else_than_its_neighbours_is_named(fleet):
    run = fleet(RUNS, odd={"torch": "2.9.1"})
    assert "engine 0.5.13: torch 2.9.1 on odd, 2.9.0 on n0, n1, n2 and 5 others" in run.stdout
    assert run.returncode == 0


def test_neighbours_that_differ_fail_a_play_that_promises_them_alike(fleet):
    run = fleet(RUNS, odd={"torch": "2.9.1"}, alike=True)
    assert run.returncode == 2
    assert "neighbours do not run the same" in run.stdout
    assert fleet(RUNS, odd={"torch": "2.9.0"}, alike=True).returncode == 0


def test_what_runs_another_subject_is_no_neighbour(fleet):
    runs = "{{ {release | default('0.5.13'): {'torch': torch | default('2.9.0')}} }}"
    tasks = PASSED.replace("rows:", f'runs: "{runs}"\n          rows:')
    run = fleet(tasks, odd={"release": "0.5.14", "torch": "2.9.1"})
    assert "NEIGHBOURS" not in run.stdout


def test_a_host_that_declares_otherwise_than_most_is_named_and_does_not_fail(fleet):
    tasks = RUNS.replace("2048", '"{{ window | default(2048) }}"')
    run = fleet(tasks, odd={"window": 1024}, alike=True)
    assert "window is declared 1024 on odd, 2048 on n0, n1, n2 and 5 others" in run.stdout
    assert run.returncode == 0


def test_the_cause_of_a_failure_is_on_the_last_screen(play):
    run = play('    - {name: Load, report: {failed: true, msg: "out of memory\\n  next  read the journal"}}\n' + PASSED)
    assert 'a, b: failed in task "Load", no verdict (play "Roll out")\n    out of memory\n      next  read' in run.stdout


def test_of_a_loop_the_failed_items_are_the_cause(play):
    run = play('    - {report: {failed: "{{ item == 2 }}", msg: "no {{ item }}"}, loop: [1, 2]}\n')
    assert run.stdout.endswith('no verdict (play "Roll out")\n    no 2\n')


def test_of_a_command_the_end_of_what_it_printed_is_the_cause(play):
    run = play('    - {report: {failed: true, msg: non-zero return code, stderr: "downloading\\nhash differs"}}\n')
    assert run.stdout.endswith("\n    non-zero return code\n    downloading\n    hash differs\n")
