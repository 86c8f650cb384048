"""What an operator sees of a rollout, and what it leaves: real runs of ansible-playbook, modules that pretend."""

from __future__ import annotations

import json
import re

import pytest
import rollout_play


@pytest.fixture
def rollout(tmp_path, ansible_playbook):
    """Run the rollout in miniature; returns the run and its report as read from JSON."""

    def run(*options, **choices):
        reports = tmp_path / "reports"
        arguments = rollout_play.write(tmp_path, **choices)
        done = ansible_playbook(*arguments, *options, ROLLOUT_REPORT_DIRECTORY=str(reports))
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
        "load  (drain took N s)",
        "prove  (load took N s)",
        "back  (prove took N s)",
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
