"""Verifying two real hosts with the stand-in engine (testhosts/lying_engine): what neighbours do not have in common."""

from __future__ import annotations

import json

import pytest
from deployment import INVENTORY, ROOT, Deployment, hosts, python

RELEASE = ("-e", "sglang_version=0.5.15")
PATCH = "echo '# patched' | tee -a /opt/sglang/0.5.15/lib/python3*/site-packages/sglang/srt/scheduler.py"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """report1 and report2, deployed and proved."""
    inventory = tmp_path_factory.mktemp("fleet")
    addresses = {"report1": "10.213.77.171", "report2": "10.213.77.172"}
    data = {name: {"ansible_host": address} for name, address in addresses.items()}
    (inventory / "hosts.json").write_text(json.dumps({"sglang": {"hosts": data}}))
    (inventory / "group_vars").symlink_to(INVENTORY / "group_vars")
    hosts("down", *addresses)
    hosts("up", "--layer", python("testhosts.lying_engine", "build").strip(), *(f"{n}={a}" for n, a in addresses.items()))
    deployment = Deployment("report2")
    deployment.options = {"inventory": inventory}
    deployment.proves(deployment.deploy(*RELEASE, **deployment.options))
    yield deployment
    hosts("down", *addresses)


def report():
    return json.loads((ROOT / "reports/verify.json").read_text())


def test_hosts_that_are_alike_share_a_table_and_are_all_proved_in_the_report(fleet):
    run = fleet.proves(fleet.verify(*RELEASE, **fleet.options))
    assert run.changed == 0
    assert "\nreport2  sglang-k26.service  SGLang 0.5.15" in run.output
    assert run.output.count("  setting ") == 1
    assert [(host["name"], host["proved"]) for host in report()["hosts"]] == [("report1", True), ("report2", True)]
    assert report()["neighbours"] == []


def test_an_engine_patched_on_one_host_is_found_though_each_matches_its_own_declaration(fleet):
    fleet.shell(PATCH)
    fleet.proves(fleet.deploy(*RELEASE, **fleet.options))  # the engine is another: it is started anew and proved
    run = fleet.verify(*RELEASE, **fleet.options)
    assert run.status == 2
    assert "SGLang 0.5.15 in /opt/sglang/0.5.15: own files" in run.output
    assert "neighbours do not run the same, see above" in run.output
    assert all(host["proved"] for host in report()["hosts"])
    (drift,) = report()["neighbours"]
    assert (drift["name"], sorted(drift["values"].values())) == ("own files", [["report1"], ["report2"]])


def test_a_host_that_is_not_what_is_declared_is_named_with_its_hop(fleet):
    run = fleet.verify(*RELEASE, "-e", "window=1024", **fleet.options)
    assert run.status == 2
    assert "window: declared 1024, found 2048 (unit hop, differs)" in run.output.split("NOT PROVED")[1]
    assert [host["proved"] for host in report()["hosts"]] == [False, False]
    assert "window: declared 1024, found 2048" in report()["hosts"][0]["cause"]
