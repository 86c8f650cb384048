"""What an operator sees of a rollout, and what it leaves: real runs of ansible-playbook, modules that pretend."""

from __future__ import annotations

import json
import re

import pytest
import rollout_play


@pytest.fixture
def rollout(tmp_path, ansible_playbook):
    """Run the rollout in miniature; returns the run and its report as read from JSON."""

    def run(*options, ctrl_c_after=0, **choices):
        reports = tmp_path / "reports"
        arguments = rollout_play.write(tmp_path, **choices)
        environment = {"ROLLOUT_REPORT_DIRECTORY": str(reports)}
        done = ansible_playbook(*arguments, *options, ctrl_c_after=ctrl_c_after, **environment)
        (path,) = reports.glob("rollout-*-3f2a91bc.json")
        assert not list(reports.glob("*.new"))
        return done, json.loads(path.read_text()), path.with_suffix(".html").read_text()

    return run


@pytest.fixture
def failed(rollout):
    return rollout(fails="n3")


def host(report, name):
    return next(host for host in report["hosts"] if host["name"] == name)


def phases(host):
    return [phase["phase"] for phase in host["phases"]]


def test_a_timed_line_says_that_a_host_begins_a_phase_and_how_long_the_one_before_took(failed):
    lines = re.findall(r"^\[n3\] \d\d:\d\d:\d\d  (.+)$", failed[0].stdout, re.MULTILINE)
    assert [re.sub(r"\d+\.\d", "N", line) for line in lines] == [
        "drain",
        "load  (after drain, N s)",
        "prove  (after load, N s)",
        "back  (after prove, N s)",
    ]


def test_what_is_skipped_is_no_phase(failed):
    _, report, _ = failed
    assert phases(host(report, "n1")) == ["plan", "prove"]
    assert phases(host(report, "n5")) == []


def test_an_include_begins_its_phase_before_its_tasks_whatever_the_condition(tmp_path, ansible_playbook):
    (tmp_path / "load.yml").write_text("- {name: Wait, report: {takes: 0.1}}\n")
    (tmp_path / "deploy.yml").write_text("""
- hosts: all
  gather_facts: false
  tasks:
    - when: inventory_hostname == 'a'
      block: [{name: Load, ansible.builtin.include_tasks: load.yml, vars: {rollout_phase: load}}]
""")
    run = ansible_playbook(tmp_path / "deploy.yml", "-i", "a,b,")
    begun, _, waited = run.stdout.partition("TASK [Wait]")
    assert re.search(r"^\[a\] \S+  load$", begun, re.MULTILINE)
    assert "load" not in waited
    assert not re.search(r"^\[b\]", run.stdout, re.MULTILINE)


def test_a_phase_takes_as_long_as_its_tasks_and_not_the_wait_for_others(failed):
    _, report, _ = failed
    load = {h["name"]: p["seconds"] for h in report["hosts"] for p in h["phases"] if p["phase"] == "load"}
    assert load["n3"] >= 0.3
    assert list(load) == ["n2", "n3", "n4"]


def test_the_last_table_tells_what_became_of_each_host(failed):
    rows = [line.split() for line in failed[0].stdout.splitlines() if re.match(r"n\d +\d ", line)]
    assert [row[:3] for row in rows[1:3]] == [["n2", "2", "proved"], ["n3", "2", "gone"]]
    assert [row[2:4] for row in rows[4:]] == [["not", "reached"]] * 4


def test_the_report_has_plan_outcomes_causes_and_tables(failed):
    run, report, _ = failed
    assert run.returncode == 2
    assert report["proved"] is False
    assert report["plan"] == rollout_play.PLAN
    assert [h["outcome"] for h in report["hosts"]] == ["unchanged", "proved", "gone back", "proved", *["not reached"] * 4]
    broken = host(report, "n3")
    assert broken["cause"] == rollout_play.CAUSE
    assert (broken["batch"], broken["restart"], broken["proved"]) == (2, True, False)
    assert [table["passed"] for table in broken["tables"]] == [False, True]
    assert {p["host"] for p in report["problems"]} == {"n3", "n5", "n6", "n7", "n8"}


def test_a_rollout_that_went_well_says_so(rollout):
    run, report, page = rollout()
    assert run.returncode == 0
    assert report["proved"] is True
    assert report["problems"] == []
    assert "8 of 8 hosts proved." in page
    assert 'id="causes"' not in page


def test_a_check_claims_nothing_and_says_that_it_was_one(rollout):
    would = rollout_play.table("sglang-k26.service  SGLang 0.5.13", "none", "differs", None)
    run, report, page = rollout("--check", "-e", json.dumps({"table_proved": would}))
    assert run.returncode == 0
    assert (report["state"], report["proved"], report["problems"]) == ("checked", None, [])
    assert {(h["outcome"], h["proved"]) for h in report["hosts"]} == {("would change", None)}
    assert not any(h["phases"] for h in report["hosts"])
    table = "host  batch  outcome\nn1    1      would change"
    assert f"checked, nothing was changed and nothing is claimed\n{table}" in run.stdout
    assert "report  " in run.stdout and not re.search(r"^\[n1\]", run.stdout, re.MULTILINE)
    assert "<title>Rollout 3f2a91bc: checked</title>" in page
    assert "nothing is claimed. n1, n2, n3 and 5 others: would change." in page
    assert "hosts proved" not in page and "What was proved" not in page


def test_a_check_of_what_is_as_declared_says_unchanged(rollout):
    _, report, _ = rollout("--check")
    assert {(h["outcome"], h["proved"]) for h in report["hosts"]} == {("unchanged", None)}


def test_a_check_that_finds_what_cannot_be_is_no_rollout_that_failed(rollout):
    run, report, page = rollout("--check", fails="n3")
    assert run.returncode == 2
    assert (report["state"], report["proved"]) == ("check failed", False)
    assert "<title>Rollout 3f2a91bc: check failed</title>" in page and "A check: nothing was changed" in page


def test_a_rollout_that_is_interrupted_says_so_and_what_stands(rollout):
    run, report, page = rollout("-e", "load=60", ctrl_c_after=3)
    assert run.returncode == 99
    assert "proved      n1\n    interrupted n2, n3, n4\n    not reached n5, n6, n7, n8\n" in run.stdout
    assert "\nreport  " in run.stdout
    assert (report["state"], report["proved"]) == ("interrupted", False)
    assert [h["outcome"] for h in report["hosts"]] == ["unchanged", *["interrupted"] * 3, *["not reached"] * 4]
    assert [h["proved"] for h in report["hosts"]] == [True, *[None] * 7]
    assert "Interrupted. 1 of 8 hosts proved." in page
    assert "<title>Rollout 3f2a91bc: interrupted</title>" in page and 'http-equiv="refresh"' not in page


def test_the_page_is_there_before_the_first_host_changes(tmp_path, ansible_playbook):
    (tmp_path / "deploy.yml").write_text("""
- hosts: all
  gather_facts: false
  tasks:
    - report: {rollout_plan: {id: 3f2a91bc, hosts: [{name: a}], batches: [[a]]}}
    - {name: Restart, report: {pages: "{{ lookup('ansible.builtin.fileglob', reports ~ '/*') }}"}}
""")
    reports = str(tmp_path / "reports")
    arguments = (tmp_path / "deploy.yml", "-v", "-i", "a,", "-e", f"reports={reports}")
    run = ansible_playbook(*arguments, ROLLOUT_REPORT_DIRECTORY=reports)
    assert re.search(r"pages: .*-3f2a91bc\.html", run.stdout)


def test_a_host_that_fails_beside_its_proof_is_not_proved(tmp_path, ansible_playbook):
    (tmp_path / "rollback.yml").write_text("""
- name: Go back
  hosts: all
  gather_facts: false
  vars: {verdict_required: true}
  tasks:
    - report: {verdict_table: {title: sglang-k26.service, columns: [setting], rows: [], passed: true}}
    - {name: Go back with k27, report: {failed: true, msg: nothing of k27 is verified}}
""")
    reports = tmp_path / "reports"
    ansible_playbook(tmp_path / "rollback.yml", "-i", "a,", ROLLOUT_REPORT_DIRECTORY=str(reports))
    report, page = json.loads((reports / "rollback.json").read_text()), (reports / "rollback.html").read_text()
    assert (report["state"], report["proved"]) == ("not proved", False)
    assert [(h["outcome"], h["proved"], h["cause"]) for h in report["hosts"]] == [
        ("not proved", False, "nothing of k27 is verified")
    ]
    assert "<title>rollback: not proved</title>" in page and "0 of 1 hosts proved; not: a." in page
    assert "<pre>nothing of k27 is verified</pre>" in page


def test_what_ended_the_run_is_on_the_page_also_where_each_host_is_proved(rollout):
    _, report, page = rollout("-e", '{"asks": true}')
    assert report["proved"] is False
    assert host(report, "n1")["proved"] is True
    assert re.search(r"<pre>the run ended at n1, failed in task &#34;Ask&#34; [^<]*\nnot approved</pre>", page)


def test_what_others_wrote_is_text_on_the_page_and_no_markup(rollout):
    _, _, page = rollout("-e", '{"cause": "<script>alert(1)</script>"}', fails="n3")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_page_needs_nothing_beside_it(failed):
    page = failed[2]
    assert not re.search(r"(?:src|href)=|url\(|@import", page)


def test_a_run_without_a_plan_replaces_the_report_of_its_playbook(tmp_path, ansible_playbook):
    (tmp_path / "verify.yml").write_text("""
- hosts: all
  gather_facts: false
  vars: {verdict_required: true}
  tasks:
    - report: {verdict_table: {title: "{{ said }}", columns: [setting], rows: [], passed: true}}
""")
    for said in ("first", "second"):
        run = ansible_playbook(
            tmp_path / "verify.yml", "-i", "a,b,", "-e", f"said={said}", ROLLOUT_REPORT_DIRECTORY=str(tmp_path / "reports")
        )
        assert f"report  {tmp_path}/reports/verify.html" in run.stdout
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == ["verify.html", "verify.json"]
    report = json.loads((tmp_path / "reports/verify.json").read_text())
    assert [h["tables"][0]["title"] for h in report["hosts"]] == ["second", "second"]
    assert [h["outcome"] for h in report["hosts"]] == ["proved", "proved"]


def test_a_directory_that_cannot_be_written_is_a_warning(tmp_path, ansible_playbook):
    (tmp_path / "file").write_text("")
    run = ansible_playbook(*rollout_play.write(tmp_path), ROLLOUT_REPORT_DIRECTORY=str(tmp_path / "file"))
    assert run.returncode == 0
    assert "the report is not written" in run.stderr


def test_no_directory_is_no_report(tmp_path, ansible_playbook):
    run = ansible_playbook(*rollout_play.write(tmp_path))
    assert run.returncode == 0
    assert "report  " not in run.stdout
