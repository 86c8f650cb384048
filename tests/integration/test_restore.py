"""A start that fails, on a real host: what is kept, what runs again, who may change the host.

The engine is the stand-in, testhosts/lying_engine: it starts in a second, and on port 30001 it dies as a scenario says.
"""

from __future__ import annotations

import json

import pytest
from deployment import INVENTORY, Going, python

STATE = "/var/lib/sglang-deploy/k26"
UNIT_FILE = "/etc/systemd/system/sglang-k26.service"
DIES = ("-e", "sglang_service_port=30001")
CAUSE = "RuntimeError: Cannot find any model weights"
# A load that goes on until the test wants it to.
LOADS = {"at": [{"line": "Load weight end", "do": "wait", "value": "/run/go"}]}


@pytest.fixture(scope="module")
def engine_layer():
    return python("testhosts.lying_engine", "build").strip()


@pytest.fixture(scope="module", autouse=True)
def an_engine_that_dies_on_another_port(deployment):
    says(deployment, 30001, {"at": [{"line": "Load weight begin", "do": "raise", "value": CAUSE}]})


def says(deployment, port, scenario):
    deployment.shell(f"mkdir -p /etc/lying-engine; echo '{json.dumps(scenario)}' > /etc/lying-engine/{port}.json")


def begin(*arguments):
    return Going("-i", INVENTORY, "deploy.yml", *arguments)


def test_a_first_deployment_that_fails_is_stopped_and_does_not_come_back_at_boot(deployment):
    run = deployment.deploy(*DIES)
    assert run.status == 2
    assert CAUSE in run.said
    assert "is stopped and disabled: no start of it was ever verified" in run.said
    assert deployment.shell(f"systemctl is-active {deployment.unit} || true").strip() == "inactive"
    assert deployment.shell(f"systemctl is-enabled {deployment.unit} || true").strip() == "disabled"


def test_the_failed_start_was_saved_before_it_was_stopped(deployment):
    files = deployment.shell(f"cd {STATE}/failed/*; ls; cat cause.txt").split("\n", 1)
    assert CAUSE in files[1]
    assert CAUSE in deployment.shell(f"cat {STATE}/failed/*/journal.txt")
    assert deployment.shell(f"stat -c %a {STATE}/failed").strip() == "700"


def test_a_bad_change_goes_back_and_is_proved_again(deployment):
    deployment.proves(deployment.deploy("-e", "window=1024"))
    unit = deployment.shell(f"cat {UNIT_FILE}")
    run = deployment.deploy("-e", "window=2048", *DIES)
    assert run.status == 2
    assert CAUSE in run.said
    assert f"back {deployment.unit} runs again what was verified" in run.said
    assert "and it is proved again" in run.said
    assert "gone back: sglang-k26.service" in run.output
    assert run.row("window") == ["1024", "1024", "1024", "match"]  # of the last table
    assert deployment.shell(f"cat {UNIT_FILE}") == unit
    assert "draft_window_size=1024, compact_cache=True" in deployment.journal()

    start = deployment.start()
    assert deployment.proves(deployment.deploy("-e", "window=1024")).changed == 0
    assert deployment.start() == start


def test_the_host_itself_knows_what_runs(deployment):
    told = json.loads(deployment.shell("sglang-deploy status --json"))[0]
    assert told["proved"] and told["verified"]["settings"]["window"] == "1024"
    assert len(told["failed"]) == 2 and CAUSE in told["failed"][0][1]


def test_a_second_run_is_refused_and_a_run_whose_controller_died_is_replaced(deployment):
    says(deployment, 30000, LOADS)
    first = begin("-e", "window=2048")
    first.until("weights loaded")
    refused = deployment.deploy("-e", "window=512")
    assert refused.status == 2
    assert "is being changed by" in refused.said and f"process {first.process.pid} (deploys k26) since" in refused.said
    assert refused.changed == 0

    # The controller dies in the middle of the load: the same command again goes on with the very start that it made.
    first.kill()
    start = deployment.start()
    again = begin("-e", "window=2048")
    again.until("weights loaded")
    deployment.shell("touch /run/go")
    assert again.end() == 0, again.output
    assert deployment.start() == start
    assert "window 2048" in deployment.shell("sglang-deploy status")


def test_rollback_goes_to_what_was_verified_before_and_back(deployment):
    run = deployment.playbook("playbooks/rollback.yml")
    deployment.proves(run)
    assert run.row("window") == ["1024", "1024", "1024", "match"]
    assert "draft_window_size=1024" in deployment.journal()

    assert "is proved: invocation" in deployment.shell("sglang-deploy rollback k26")
    assert "draft_window_size=2048" in deployment.journal()
    assert deployment.proves(deployment.deploy("-e", "window=2048")).changed == 0


def test_a_state_of_a_later_form_is_named_and_nothing_is_touched(deployment):
    start = deployment.start()
    deployment.shell(f'cp {STATE}/verified.json /root/; sed -i \'s/^ "version": 1/ "version": 9/\' {STATE}/verified.json')
    run = deployment.playbook("playbooks/rollback.yml")
    assert run.status == 2
    assert "verified.json has form 9, and this project reads form 1" in run.said
    assert deployment.start() == start
    deployment.shell(f"mv /root/verified.json {STATE}/")


def test_what_holds_the_port_after_the_stop_is_named_and_the_first_cause_stays(deployment):
    """A rank that was left over, in no unit of ours: it answers on the port from the moment it is free."""
    deployment.shell(
        "systemd-run --quiet --unit=orphan sh -c 'until python3 -m http.server --bind 127.0.0.1 30000; do :; done'"
    )
    run = deployment.deploy("-e", "window=1024", "-e", "sglang_service_release_timeout=3")
    assert run.status == 2
    assert "port 30000 of sglang-k26.service is still held by python3 (pid" in run.said
    assert "back failed too, and nothing else was touched: port 30000" in run.said
    deployment.shell("systemctl stop orphan")
    deployment.proves(deployment.deploy("-e", "window=2048"))
