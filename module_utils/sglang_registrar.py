"""An engine's place in the traffic while nobody watches: sglang-deploy watch, out and in, on its own host.

A start that nobody made (a reboot, a crash, Restart=) gets requests when it is proved, not when it answers /health. One
that serves is never taken out because a check fails: that is an alarm, a line of priority alert in the journal and a
metric. What stops, or is stopped by whom ever, leaves first and finishes its requests.

<state_dir>/traffic.json   {"address", "gateways", "gateway_key_file", "timeout", "drain_timeout", "metrics"}; the role
                           traffic writes it
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NamedTuple

from . import host_lease, sglang_traffic
from .sglang_host import CannotKeep, CannotRead, read_json, run
from .sglang_proof import hearing, startup
from .sglang_state import State, Unusable, Verified

CONFIG = "traffic.json"
TICK = 5  # seconds between two looks
SLICE = 20  # seconds that one look at a start that loads may take
CHECK = 300  # seconds between two proofs of what is proved, or is not
HOLD = 5  # seconds that a start must live after its ready line
BY_HAND = "taken out by hand, sglang-deploy out"

PROBLEMS = (sglang_traffic.Refused, sglang_traffic.Overdue, startup.NotProved, CannotRead, CannotKeep, Unusable, ValueError)


class Seen(NamedTuple):
    """What the last look found; `problem` is a sentence for people, or nothing."""

    proved: bool = False
    serving: bool = False
    held: bool = False
    problem: str = ""


class Registrar:
    """Keeps one instance where it belongs. `host`: sglang_host.Host; `gateways`: sglang_traffic.Gateway; `say`: prints."""

    def __init__(self, host, state, instance, config, gateways, say=print, lease=None):
        self.host, self.state, self.config, self.gateways, self.say = host, state, config, gateways, say
        self.engine = sglang_traffic.Engine(host, state, instance, config["address"])
        self.lease = lease or os.path.join(os.path.dirname(state.directory), "lease.json")
        self.seen = Seen()
        self.judged = None  # ((start, whether it was proved before), when, problem) of the last proof
        self.resume = None  # of a proof that waits for a load

    def look(self):
        """One look, and what follows from it. Nothing while a run changes the host: it knows more."""
        if host_lease.in_force(self.lease, self.host.now):
            return self.seen
        try:
            seen = self._look()
        except (*PROBLEMS, OSError) as error:
            seen = self.seen._replace(problem=str(error))
        self._tell(seen)
        return seen

    def _look(self):
        start, held = self._start(), self.engine.hold.read() is not None
        proved, serving, problems = self.engine.is_proved(), False, []
        if not proved:
            _, problems = self._leave()  # nothing runs, or a start of which nothing is known yet
        if not start:
            return Seen(held=held, problem="\n".join(problems))
        problem = self._judge(start, proved)
        proved = self.engine.is_proved()
        if proved:
            serving, problems = self._join()
        return Seen(proved, serving, held, "\n".join(filter(None, (problem, *problems))))

    def _start(self):
        """(boot, invocation, main process) of what runs, or None."""
        unit = self.host.unit(self.engine.unit)
        return (self.host.boot_id(), unit.invocation_id, unit.main_pid) if unit.main_pid else None

    def _judge(self, start, proved):
        """Prove what runs, from time to time, and keep that it is proved. The problem, or nothing; loading is none."""
        subject = (start, proved)
        if self.judged and self.judged[0] == subject and self.host.clock() - self.judged[1] < CHECK:
            return self.judged[2]
        kept = self.state.verified()
        if kept is None:
            return ""  # the first deployment will prove it
        problem, path = "", self.host.unit(self.engine.unit).fragment_path
        demands = startup.Demands(generate=not proved, key=self.engine.key(), hold=HOLD)
        until, evidence = self.host.clock() + SLICE, self.state.evidence()
        try:
            outcome = startup.prove(self.host, kept.plan, path, until, demands, kept=evidence, resume=self.resume)
        except (startup.NotProved, CannotRead) as error:
            problem = f"{error}\nIt {'goes on serving' if proved else 'gets no requests'}."
        else:
            if isinstance(outcome, startup.Pending):
                self.resume = outcome.resume
                return ""
            if not proved:
                self.state.keep(Verified(kept.plan, kept.unit, hearing.keep(kept.plan, outcome)))
                subject = (start, True)
        self.judged, self.resume = (subject, self.host.clock(), problem), None
        return problem

    def _join(self):
        """Make sure that the gateways give it requests, unless it is held out. Whether one does; the problems of others."""
        with self.engine.hold.alone():
            if self.engine.hold.read() is not None or not self.engine.is_proved():
                return False, []
            sglang_traffic.insist_on_reachable(self.engine.plan(), self.engine.address)
            joined, problems = sglang_traffic.join(
                self.gateways, self.engine.url(), self.host, self.config["timeout"], self.engine.key()
            )
        if joined:
            self.say(f"<5>{self.engine.unit} is proved, and takes traffic")
        return len(problems) < len(self.gateways), problems

    def _leave(self):
        """Whether a gateway gave it requests until now, and gives none any more; the problems of others."""
        left, problems = False, []
        with self.engine.hold.alone():
            url = self.engine.url()
            if url:
                left, problems = sglang_traffic.leave(self.gateways, url, self.host, self.config["timeout"])
        if left:
            self.say(f"<5>{self.engine.unit} takes no traffic any more")
        return left, problems

    def end(self, stopping):
        """The registrar ends. If that is because the engine stops: out first, and its requests to their end."""
        if not stopping:
            return
        left, problems = self._leave()
        if left or (problems and self.engine.is_proved()):  # a gateway that is away may have given it some
            requests, seconds = self.engine.drain(self.config["drain_timeout"])
            self.say(f"<5>{self.engine.unit} stops; {requests} requests ended within {seconds:.0f} s")
        self._tell(Seen(held=self.seen.held, problem="\n".join(problems)))

    def _tell(self, seen):
        if seen.problem and seen.problem != self.seen.problem:
            self.say("\n".join(f"<1>{line}" for line in f"{self.engine.unit}: {seen.problem}".splitlines()))
        elif self.seen.problem and not seen.problem:
            self.say(f"<5>{self.engine.unit}: all is well again")
        self.seen = seen
        if self.config.get("metrics"):
            write_metrics(self.config["metrics"], self.engine.instance, seen, self.host.now())


METRICS = {
    "proved": "Whether the running start is proved to do what is declared.",
    "serving": "Whether the gateways give it requests.",
    "held_out": "Whether it is kept out of traffic on purpose.",
    "alarm": "Whether the registrar has something to say; its journal has what.",
    "checked_timestamp_seconds": "When that was looked at.",
}


def metrics(instance, seen, now):
    """The text of a file for node_exporter's textfile collector (Prometheus text format 0.0.4)."""
    values = [seen.proved, seen.serving, seen.held, bool(seen.problem), now]
    return "".join(
        f"# HELP sglang_traffic_{name} {text}\n# TYPE sglang_traffic_{name} gauge\n"
        f'sglang_traffic_{name}{{instance="{instance}"}} {float(value):.0f}\n'
        for (name, text), value in zip(METRICS.items(), values)
    )


def write_metrics(directory, instance, seen, now):
    """As a whole or not at all, for a collector that runs as somebody else. A full disk is no reason to stop."""
    path = os.path.join(directory, f"sglang_traffic_{instance}.prom")
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(metrics(instance, seen, now))
        os.chmod(f"{path}.new", 0o644)
        os.replace(f"{path}.new", path)
    except OSError as error:
        print(f"<4>{path} cannot be written: {error.strerror}", flush=True)


# ---- commands of sglang-deploy ----


def add_commands(commands):
    for name, run_, text in (
        ("out", out, "take it out of traffic, and wait for its requests; it stays out until `in`"),
        ("in", in_, "take it into traffic, if what runs is proved"),
        ("watch", watch, "what sglang-traffic@INSTANCE.service runs: in when it is proved, out when it stops"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("instance")
        command.set_defaults(run=run_)


def _of(host, options):
    """(engine, gateways, config) of an instance. Raises CannotRead, ValueError."""
    state = State(os.path.join(options.state_dir, options.instance))
    path = os.path.join(state.directory, CONFIG)
    config = read_json(path)
    if not isinstance(config, dict):
        raise CannotRead(f"{path} is not there: this host's traffic is nobody's here. Next: ansible-playbook deploy.yml")
    gateways = sglang_traffic.gateways(config["gateways"], config["gateway_key_file"])
    return sglang_traffic.Engine(host, state, options.instance, config["address"]), gateways, config


def out(host, options):
    engine, gateways, config = _of(host, options)
    engine.take_out(gateways, config["timeout"], 0, BY_HAND, by_hand=True)
    print(f"{engine.unit} gets no new requests", flush=True)
    requests, seconds = engine.drain(config["drain_timeout"])
    print(f"{requests} requests ended within {seconds:.0f} s; back with: sglang-deploy in {options.instance}")
    return 0


def in_(host, options):
    engine, gateways, config = _of(host, options)
    engine.take_in(gateways, config["timeout"], by_hand=True)
    print(f"{engine.unit} takes traffic")
    return 0


class Stopped(BaseException):
    """SIGTERM."""


def watch(host, options):
    def stop(*_):
        raise Stopped

    engine, gateways, config = _of(host, options)
    registrar = Registrar(host, engine.state, options.instance, config, gateways, say=lambda text: print(text, flush=True))
    signal.signal(signal.SIGTERM, stop)
    begun = _files(engine)
    try:
        while _files(engine) == begun:
            registrar.look()
            host.sleep(TICK)
    except Stopped:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        registrar.end(stopping=_stops(host, engine.unit))
    return 0


def _files(engine):
    """What this program was started from: when that changes it ends, and systemd starts it anew."""
    paths = (sys.argv[0], os.path.join(engine.state.directory, CONFIG))
    return [(status.st_ino, status.st_mtime_ns) for status in map(os.stat, paths)]


def _stops(host, unit):
    """Whether the engine ends too: it does not run, or systemd is about to stop it."""
    now = host.unit(unit)
    job = run(["systemctl", "show", "--property=Job", "--value", unit]).strip()
    return not now.main_pid or now.active_state != "active" or job not in (b"", b"0")
