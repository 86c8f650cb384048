"""What a deployed host looks like to somebody who logs in."""

import json

UNIT = "sglang-k26.service"


def test_the_service_runs_and_starts_at_boot(host):
    service = host.service(UNIT)
    assert service.is_running
    assert service.is_enabled
    assert service.is_valid


def test_the_unit_carries_the_settings(host):
    properties = host.service(UNIT).systemd_properties
    assert "--speculative-draft-window-size 2048" in properties["ExecStart"]
    assert "--speculative-num-draft-tokens 8" in properties["ExecStart"]
    assert properties["KillMode"] == "mixed"
    assert properties["LogRateLimitIntervalUSec"] == "0"


def test_the_engine_runs_as_a_user_of_its_own(host):
    pid = host.service(UNIT).systemd_properties["MainPID"]
    assert host.process.get(pid=int(pid)).user == "sglang"


def test_the_port_is_the_engines(host):
    assert host.socket("tcp://127.0.0.1:30000").is_listening


def test_the_journal_of_this_start_holds_the_proof(host):
    invocation = host.service(UNIT).systemd_properties["InvocationID"]
    journal = host.check_output(f"journalctl -o cat --no-pager _SYSTEMD_INVOCATION_ID={invocation}")
    assert "draft_window_size=2048, compact_cache=True" in journal


def test_the_verified_state_is_kept_and_only_root_may_read_it(host):
    file = host.file("/var/lib/sglang-deploy/k26/verified.json")
    assert (file.user, file.mode) == ("root", 0o600)
    state = json.loads(file.content_string)
    assert state["plan"]["release"] == "0.5.13"
    assert state["evidence"]["start"]["invocation"] == host.service(UNIT).systemd_properties["InvocationID"]
