"""How much reading the evidence costs beside journalctl itself. Prints ratios; nothing of it is a test.

    python3 bench/journal.py [RECORDS]

Makes a real journal of one start with RECORDS records (1,000,000) with systemd-journal-remote, its evidence once at the
beginning and once at the end, and compares the reading of `sglang_startup` (journalctl, decoding, parsing, all records) with
`journalctl` filtering the same invocation to /dev/null. Then the cost of one `server_args=` line of 20 kB.
"""

from __future__ import annotations

import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "module_utils"))

from sglang_proof import contract, journal, startup_log

ROOT = Path(__file__).resolve().parents[1]
INVOCATION = "0123456789abcdef0123456789abcdef"
EVIDENCE = (ROOT / "tests/unit/corpus/0.5.23-window.log").read_text().splitlines()
NOISE = (
    "[2026-11-29 14:{0:02d}:{1:02d} TP0] Decode batch, #running-req: 7, #token: {2}, token usage: 0.31, accept len: 3.4, "
    "cuda graph: True, gen throughput (token/s): 512.7, #queue-req: 0"
)
REMOTE = ("systemd-journal-remote", "/lib/systemd/systemd-journal-remote", "/usr/lib/systemd/systemd-journal-remote")


def messages(count, at_the_end):
    """One by one: the reader is started from this process, and begins with its peak memory."""
    noise = (NOISE.format(n // 60 % 60, n % 60, n) for n in range(count - len(EVIDENCE)))
    yield from chain(noise, EVIDENCE) if at_the_end else chain(EVIDENCE, noise)


def make_journal(path, count, at_the_end):
    """A journal file, by way of the export format (systemd.io/JOURNAL_EXPORT_FORMATS)."""
    program = next(p for p in REMOTE if subprocess.run(["which", p], capture_output=True).returncode == 0)
    with subprocess.Popen([program, f"--output={path}", "-"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as remote:
        for number, text in enumerate(messages(count, at_the_end)):
            fields = {
                "__REALTIME_TIMESTAMP": 1_764_400_000_000_000 + number * 1000,
                "__MONOTONIC_TIMESTAMP": number * 1000,
                "_BOOT_ID": INVOCATION,
                "_TRANSPORT": "stdout",
                "_PID": 7,
                "_SYSTEMD_UNIT": "sglang-k26.service",
                "_SYSTEMD_INVOCATION_ID": INVOCATION,
                "PRIORITY": 6,
                "MESSAGE": text or " ",
            }
            remote.stdin.write(("".join(f"{k}={v}\n" for k, v in fields.items()) + "\n").encode())


def argv(path):
    program, *rest = journal.journalctl_argv(INVOCATION)
    return [program, f"--file={path.with_suffix('')}*.journal", *rest]  # a large journal is several files


def read(path, peak):
    """What sglang_startup does with a journal; its peak memory in MB comes back through the queue."""
    log, decoder = startup_log.StartupLog({contract.DRAFT_RUNNER, contract.POOL}), journal.Decoder()
    with subprocess.Popen(argv(path), stdout=subprocess.PIPE) as process:
        for line in process.stdout:
            for record in decoder.feed(line):
                log.add(record)
    assert log.echo and log.ready and log.statements[contract.DRAFT_RUNNER], "the evidence was not found"
    peak.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def seconds(call):
    start = time.monotonic()
    call()
    return time.monotonic() - start


def measure(path):
    filtering = seconds(lambda: subprocess.run(argv(path), stdout=subprocess.DEVNULL, check=True))
    spawn = multiprocessing.get_context("spawn")  # a fork would begin with this process's memory
    peak = spawn.Queue()
    reader = spawn.Process(target=read, args=(path, peak))
    reading = seconds(lambda: (reader.start(), reader.join()))
    if reader.exitcode:
        sys.exit("the reading failed, see above")
    return reading, filtering, peak.get()


def main(count):
    with tempfile.TemporaryDirectory() as directory:
        for place in ("start", "end"):
            path = Path(directory) / f"{place}.journal"
            make_journal(path, count, at_the_end=place == "end")
            reading, filtering, peak = measure(path)
            print(
                f"{count:,} records, evidence at the {place}: {reading / filtering:.2f} times journalctl to /dev/null "
                f"({reading:.1f} s, {filtering:.1f} s), peak {peak:.0f} MB"
            )
            for file in Path(directory).iterdir():
                file.unlink()
    echo = max(EVIDENCE, key=len)
    text = echo.split("server_args=", 1)[1]
    runs = 100
    cost = seconds(lambda: [startup_log.parse_echo(text) for _ in range(runs)]) / runs
    print(f"a server_args= line of {len(echo) / 1000:.0f} kB: {cost * 1000:.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
