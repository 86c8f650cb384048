"""Journal files as journald writes them, read with the very call that the hosts make."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.sglang_proof import explain
from ansible.module_utils.sglang_proof.journal import journalctl_argv

REMOTE = Path("/lib/systemd/systemd-journal-remote")
LINE_MAX = 49152  # bytes, where journald splits a line (journald.conf(5))
OLD, NEW = "1" * 32, "2" * 32

ECHO = "server_args={'speculative_algorithm': 'DFLASH', 'speculative_draft_window_size': 2048, 'x': '%s'}" % ("é" * 60_000)
DRAFT = (
    "Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8, "
    "draft_window_size=2048, compact_cache=True"
)
READY = "The server is fired up and ready to roll!"


@pytest.fixture(scope="module", autouse=True)
def programs():
    if not REMOTE.exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        argv = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "systemd-journal-remote"]
        subprocess.run(argv, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, capture_output=True)
    if not REMOTE.exists():
        pytest.skip(f"{REMOTE} is missing; type: sudo apt-get install systemd-journal-remote")


class Journal:
    """A journal of one or more files, to which a service and journald write."""

    def __init__(self, directory):
        self.directory, self.entries, self.files, self.time = directory, [], [], 1_779_271_200_000_000

    def says(self, line, invocation=NEW, **fields):
        """The service prints a line; journald splits it as it does."""
        raw = line if isinstance(line, bytes) else line.encode()
        while len(raw) > LINE_MAX:
            self.write(MESSAGE=raw[:LINE_MAX], _LINE_BREAK="line-max", **self.of(invocation))
            raw = raw[LINE_MAX:]
        self.write(MESSAGE=raw, **self.of(invocation))

    @staticmethod
    def of(invocation):
        unit = {"_SYSTEMD_INVOCATION_ID": invocation, "_SYSTEMD_UNIT": "sglang-k.service", "_PID": "7"}
        return {**unit, "_TRANSPORT": "stdout", "_STREAM_ID": "a", "_HOSTNAME": "node3", "SYSLOG_IDENTIFIER": "python"}

    def write(self, **fields):
        self.time += 1000
        stamps = {"__REALTIME_TIMESTAMP": str(self.time), "__MONOTONIC_TIMESTAMP": str(self.time), "_BOOT_ID": "b" * 32}
        self.entries.append(b"".join(exported(name, value) for name, value in {**stamps, **fields}.items()) + b"\n")

    def rotate(self):
        """What was written so far goes to a file of its own."""
        path = self.directory / f"{len(self.files)}.journal"
        subprocess.run([REMOTE, f"--output={path}", "-"], input=b"".join(self.entries), check=True, capture_output=True)
        self.files.append(path)
        self.entries = []

    def read(self, argv=None, files=None):
        """What journalctl prints, of the newest start as the hosts ask for it unless `argv` says otherwise."""
        if self.entries:
            self.rotate()
        argv = [*(argv or journalctl_argv(NEW)), *(f"--file={path}" for path in files or self.files)]
        return subprocess.run(argv, check=True, capture_output=True).stdout


def exported(name, value):
    """A field in the journal's export format: with its length where it holds more than a line of text."""
    raw = value if isinstance(value, bytes) else value.encode()
    if any(byte < 32 for byte in raw):
        return name.encode() + b"\n" + len(raw).to_bytes(8, "little") + raw + b"\n"
    return name.encode() + b"=" + raw + b"\n"


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path)


def status(printed):
    """The exit status of `explain-log --declare window=2048` for what journalctl printed."""
    start = explain.starts(printed)[-1]
    return explain.exit_status(start, explain.verdicts(start, explain.expectations(start, {"window": "2048"})))


def test_a_line_of_120_kilobytes_is_whole_again(journal):
    for line in (ECHO, DRAFT, READY):
        journal.says(line)
    printed = journal.read()
    assert printed.count(b'"_LINE_BREAK":"line-max"') == 2
    assert explain.starts(printed)[0].echo.values["x"] == "é" * 60_000
    assert status(printed) == 0


@pytest.mark.parametrize("lost", [0, 2])
def test_a_split_line_without_its_beginning_or_end_proves_nothing(journal, lost):
    journal.says(ECHO)
    del journal.entries[lost]
    journal.says("[2026-05-20 10:00:00] " + DRAFT)
    journal.says("[2026-05-20 10:00:00] " + READY)
    assert status(journal.read()) in (2, 3)


def test_a_line_with_colour_and_carriage_returns_is_a_list_of_bytes_and_is_read(journal):
    journal.says(ECHO)
    journal.says(b"\r 50%|#    | 1/2 [00:01<00:01, 1.02s/it]\x1b[1m[2026-05-20 10:00:00 TP0] " + DRAFT.encode() + b"\x1b[0m")
    printed = journal.read()
    assert b'"MESSAGE":[13,' in printed
    assert status(printed) == 0


def test_what_journalctl_shows_as_a_blob_is_no_evidence(journal):
    journal.says("[2026-05-20 10:00:00] server_args={'speculative_draft_window_size': 2048}")
    journal.says("[2026-05-20 10:00:00] " + DRAFT + "\x1b\r")
    short = journal.read(["journalctl", "--output=short"])
    assert b"blob data]" in short
    assert status(short) == 3


def test_a_long_line_that_was_saved_without_all_is_unreadable(journal):
    journal.says(ECHO)
    journal.says(DRAFT)
    printed = journal.read(["journalctl", "--output=json"])
    assert b'"MESSAGE":null' in printed
    assert status(printed) == 3


def test_journalds_note_of_dropped_messages_makes_what_is_missing_unreadable(journal):
    journal.says(ECHO)
    about = {"OBJECT_SYSTEMD_INVOCATION_ID": NEW, "OBJECT_SYSTEMD_UNIT": "sglang-k.service"}
    journal.write(
        MESSAGE="Suppressed 812 messages from sglang-k.service", N_DROPPED="812", _TRANSPORT="driver",
        _SYSTEMD_UNIT="systemd-journald.service", _SYSTEMD_INVOCATION_ID="9" * 32, **about,
    )  # fmt: skip
    journal.says(READY)
    assert status(journal.read()) == 3


def test_the_start_before_is_not_read(journal):
    for line in (ECHO, DRAFT, READY):
        journal.says(line, OLD)
    journal.says(ECHO.replace("2048", "64"))
    journal.says(DRAFT.replace("2048", "64"))
    printed = journal.read()
    assert status(printed) == 2
    assert len(explain.starts(printed)) == 1


def test_a_start_that_was_rotated_into_two_files_is_whole_and_without_the_first_it_is_not(journal):
    journal.says(ECHO)
    journal.rotate()
    journal.says(DRAFT)
    journal.says(READY)
    assert status(journal.read()) == 0
    assert status(journal.read(files=journal.files[1:])) == 2


def test_a_file_that_is_no_journal_is_an_error_of_journalctl(tmp_path):
    (tmp_path / "x.journal").write_bytes(b"\0" * 4096)
    argv = [*journalctl_argv(NEW), f"--file={tmp_path}/x.journal"]
    assert subprocess.run(argv, capture_output=True).returncode != 0
