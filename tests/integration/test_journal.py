"""Live journald: what it does to the lines of a start, and that none of it is taken for proof."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest
from deployment import ROOT, hosts

# A line longer than journald keeps whole (LineMax=48K).
ECHO = "server_args={'speculative_algorithm': 'DFLASH', 'speculative_draft_window_size': %s, 'x': '" + "é" * 40_000 + "'}"
DRAFT = (
    "Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8, "
    "draft_window_size=%s, compact_cache=True"
)
READY = "The server is fired up and ready to roll!"

# What a start prints: each argument is a file to print, or a command. It lives on until it is stopped.
SERVICE = """#!/bin/sh
for step; do
  case $step in
    /*) cat "$step" ;;
    *) eval "$step" ;;
  esac
done
exec sleep infinity
"""


class Host:
    name = "journal1"

    def shell(self, script):
        return hosts("exec", self.name, "sh", "-euc", script)

    def start(self, *steps, **properties):
        """A start that prints these steps; when it returns, all is with journald that does not wait for something."""
        options = " ".join(f"--property={name}={value}" for name, value in properties.items())
        self.shell("systemctl stop sglang-j 2>/dev/null || true; systemctl reset-failed sglang-j 2>/dev/null || true")
        self.shell(f"systemd-run --quiet --unit=sglang-j {options} /opt/explain/service {shlex.join(steps)}")

    def spoken(self, words):
        """Wait until journald has a line with these words of the running start."""
        self.shell(f"""
            id=$(systemctl show --property=InvocationID --value sglang-j)
            for _ in $(seq 200); do
              journalctl --sync
              journalctl --output=cat --all _SYSTEMD_INVOCATION_ID=$id | grep --quiet --text {shlex.quote(words)} && exit 0
              sleep 0.1
            done
            exit 1""")

    def explained(self, *, user="root", since_start=False):
        """(exit status, newest start) of explain-log for the journal of the unit; the host's own Python reads it."""
        only = "_SYSTEMD_INVOCATION_ID=$(systemctl show --property=InvocationID --value sglang-j)"
        printed = self.shell(
            f"runuser -u {user} -- journalctl {only if since_start else '--unit=sglang-j'} --output=json --all 2>/dev/null"
            " | { /opt/explain/explain-log --json --declare window=2048 - 2>/dev/null && echo 0 || echo $?; }"
        )
        told, status = printed.rstrip().rsplit("\n", 1)
        starts = json.loads(told)["starts"]
        return int(status), starts[-1] if starts else None

    def evidence(self, user="root"):
        """What the verifier's own I/O gives of the running start: the number of lines, or its sentence."""
        return self.shell(f"""
            id=$(systemctl show --property=InvocationID --value sglang-j)
            cd /opt/explain
            runuser -u {user} -- python3 -c '
import sys
from module_utils.sglang_host import CannotRead, Host
try:
    print(len(list(Host().journal(sys.argv[1]))), "lines")
except CannotRead as error:
    print("cannot read:", error)
' $id""").strip()


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    layer = tmp_path_factory.mktemp("layer")
    place = layer / "opt/explain"
    place.mkdir(parents=True)
    shutil.copy(ROOT / "explain-log", place)
    shutil.copytree(ROOT / "module_utils", place / "module_utils", ignore=shutil.ignore_patterns("__pycache__"))
    for window in ("2048", "64"):
        (place / f"echo{window}").write_text(ECHO % window + "\n")
        (place / f"draft{window}").write_text(
            f"\r 50%|#   | 1/2 [00:01<00:01]\x1b[1m[2026-05-20 10:00:00] {DRAFT % window}\x1b[0m\n"
        )
    (place / "ready").write_text(READY + "\n")
    (place / "noise").write_text("noise\n" * 300)
    (place / "service").write_text(SERVICE)
    (place / "service").chmod(0o755)
    hosts("down", Host.name)
    hosts("up", "--layer", str(layer), f"{Host.name}=10.213.77.50")
    yield Host()
    hosts("down", Host.name)


GOOD = ["/opt/explain/echo2048", "/opt/explain/draft2048", "/opt/explain/ready"]


def test_a_split_line_and_a_blob_are_read(host):
    host.start(*GOOD)
    host.spoken(READY)
    assert host.explained()[0] == 0
    assert "_LINE_BREAK" in host.shell(
        "journalctl --unit=sglang-j --output=export | grep --text --only-matching _LINE_BREAK"
    )


def test_a_newer_start_counts_alone(host):
    host.start(*GOOD)
    host.spoken(READY)
    host.start("/opt/explain/echo64", "/opt/explain/draft64", "/opt/explain/ready")
    host.spoken(READY)
    status, start = host.explained()
    assert (status, start["effective"]["draft_window_size"]) == (2, 64)


def test_a_rate_limit_makes_what_is_missing_unreadable(host):
    """journald writes its note with the first message after the interval."""
    steps = ["/opt/explain/echo2048", "/opt/explain/noise", "/opt/explain/draft2048", "sleep 3", "/opt/explain/ready"]
    host.start(*steps, LogRateLimitIntervalSec="2s", LogRateLimitBurst=50)
    host.spoken(READY)
    status, start = host.explained()
    assert (status, start["outcome"]) == (3, "ready")
    assert "Suppressed" in start["dropped"][0]


def test_a_rotation_in_mid_start_loses_nothing_and_a_removed_file_is_no_proof(host):
    host.start("/opt/explain/echo2048", "mkfifo /run/go; cat /run/go; rm /run/go", *GOOD[1:])
    host.spoken("server_args=")
    host.shell("journalctl --rotate")
    host.shell("echo > /run/go")
    host.spoken(READY)
    assert host.explained(since_start=True)[0] == 0

    host.start("/opt/explain/echo2048", "mkfifo /run/go; cat /run/go; rm /run/go", *GOOD[1:])
    host.spoken("server_args=")
    host.shell("journalctl --rotate; journalctl --vacuum-size=1K 2>/dev/null; echo > /run/go")
    host.spoken(READY)
    status, start = host.explained(since_start=True)
    assert (status, start["echoed"]) == (2, {})


def test_a_volatile_journal_is_read(host):
    host.shell("""
        mkdir -p /etc/systemd/journald.conf.d
        printf '[Journal]\\nStorage=volatile\\n' > /etc/systemd/journald.conf.d/volatile.conf
        systemctl restart systemd-journald""")
    host.start(*GOOD)
    host.spoken(READY)
    assert host.shell("ls /run/log/journal/*/system.journal")
    assert host.explained(since_start=True)[0] == 0
    host.shell("rm /etc/systemd/journald.conf.d/volatile.conf; systemctl restart systemd-journald")


def test_a_journal_that_may_not_be_read_is_an_error_and_never_an_empty_answer(host):
    host.start(*GOOD)
    host.spoken(READY)
    assert host.explained(user="operator") == (3, None)
    assert host.evidence(user="operator").startswith("cannot read: `journalctl")
    assert int(host.evidence().split()[0]) >= 3
