"""Part of a stand-in for SGLang: prints the lines of a start, as the scenario wants them.

A scenario is /etc/lying-engine/<port>.json, none of it is needed:

    load_seconds  how long the workers load weights; they read and take memory meanwhile
    token_seconds how long a generated token takes
    echo          {field: value} that `server_args=` says, and the workers run with, whatever the arguments are
    run           {field: value} that the workers run with, whatever `server_args=` says
    listen        false: say so, but do not listen (and do not warm up)
    answers       {path: …}: once it is ready, `patch` (merged into the answer), `status`, `body`, or a deed as below
    at            [{"line": how it begins, "rank": whose, "do": …, "value": …, "after": seconds}]; `do` is one of
        drop               it is not printed
        instead            `value` is printed
        cut, break         it ends, or goes on in another line, after `value` characters
        blob               it begins with a carriage return and colour, and no line feed was in front
        also               it is printed, and then `value`, a line or several
        bare               the same without a time stamp
        exit, kill         the process that says it ends with status `value`, or by this signal
        raise              it meets an exception with this text, and dies of it as the real one does
        hang               it does nothing more
        sleep              for `value` seconds
        clock              the process's clock jumps by `value` seconds
        wait               until the file `value` is there
        eat                it takes `value` megabytes of memory
"""

import json
import os
import signal
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

SCENARIOS = Path("/etc/lying-engine")
LINES_APART = 0.002  # seconds; a journal keeps an order that people can see
TRACEBACK = """Traceback (most recent call last):
  File "{package}/srt/managers/scheduler.py", line 6368, in run_scheduler_process
    scheduler.run_event_loop()
  File "{package}/srt/managers/scheduler.py", line 2039, in event_loop_normal
    plan = self.get_next_batch_to_run(
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
{text}
"""


def scenario(port):
    path = SCENARIOS / f"{port}.json"
    return json.loads(path.read_text()) if path.exists() else {}


class Mouth:
    """What one process of the engine says. `ranks`: its tag, ` DP0 TP1`; `launcher`: the process that a child ends."""

    def __init__(self, scenario, ranks="", rank=0, launcher=None):
        self.deeds = scenario.get("at", [])
        self.ranks, self.rank, self.launcher = ranks, rank, launcher
        self.memory, self.jumped = [], 0

    def say(self, body, stamped=True):
        """Print a line and do what the scenario has for it."""
        deeds = [d for d in self.deeds if body.startswith(d["line"]) and d.get("rank", self.rank) == self.rank]
        printed = [(body, stamped)]
        for deed in deeds:
            printed = self._print_otherwise(deed, printed)
        for text, has_stamp in printed:
            self._print(text, has_stamp)
        for deed in deeds:
            self.do(deed)

    def _print_otherwise(self, deed, printed):
        (body, stamped), at = printed[0], deed.get("value")
        if deed["do"] == "drop":
            return []
        if deed["do"] == "instead":
            return [(at, stamped)]
        if deed["do"] == "cut":
            return [(body[:at], stamped)]
        if deed["do"] == "break":
            return [(body[:at], stamped), (body[at:], False)]
        if deed["do"] == "blob":
            return [(f"\r 50%|#   | 1/2 [00:01<00:01]\x1b[1m{self._stamp()}{body}\x1b[0m", False)]
        if deed["do"] in ("also", "bare"):
            more = at if isinstance(at, list) else [at]
            return [*printed, *((line, deed["do"] == "also") for line in more)]
        return printed

    def _print(self, text, stamped):
        os.write(2, ((self._stamp() if stamped else "") + text + "\n").encode())
        time.sleep(LINES_APART)

    def _stamp(self):
        now = datetime.now() + timedelta(seconds=self.jumped)
        milliseconds = f".{now.microsecond // 1000:03}" if os.environ.get("SGLANG_LOG_MS") else ""
        return f"[{now:%Y-%m-%d %H:%M:%S}{milliseconds}{self.ranks}] "

    def do(self, deed):
        """The deed itself, now or after some seconds."""
        if "after" in deed:
            timer = threading.Timer(deed["after"], self.do, [{k: v for k, v in deed.items() if k != "after"}])
            timer.daemon = True
            timer.start()
            return
        what, value = deed["do"], deed.get("value")
        if what == "exit":
            os._exit(value)
        elif what == "kill":
            os.kill(os.getpid(), value)
        elif what == "raise":
            self.fail(value)
        elif what == "hang":
            while True:
                signal.pause()
        elif what == "sleep":
            time.sleep(value)
        elif what == "clock":
            self.jumped += value
        elif what == "wait":
            while not Path(value).exists():
                time.sleep(0.05)
        elif what == "eat":
            self.memory.append(bytearray(os.urandom(1 << 20) * value))

    def fail(self, text):
        """What a scheduler says of an exception; its launcher gets SIGQUIT and ends all, itself too."""
        package = Path(__file__).resolve().parents[1]
        lines = TRACEBACK.format(package=package, text=text).splitlines()
        os.write(2, (self._stamp() + "Scheduler hit an exception: " + "\n".join(lines) + "\n\n").encode())
        os.kill(self.launcher or os.getpid(), signal.SIGQUIT)
        while True:
            signal.pause()
