"""Watches one start of a unit until it is proved or broken. All I/O is in the `host` that is handed in.

A start is an invocation of systemd; nothing is selected by time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from . import redact
from . import verdict as v
from .errors import CannotRead
from .hearing import Log, at, hear, remember
from .progress import Watch

PROMPT = "The quick brown fox"
LAST_WORDS = 3  # seconds from a dropped connection to the end of the process
EXITED = 1  # CLD_EXITED of waitpid(2), systemd's ExecMainCode
PORT_GRACE = 60  # seconds from the ready line to a listening port: up to 0.5.17 the line can come first


class NotProved(Exception):
    """The start does not prove the plan. `str()` is the sentence; `verdicts` is what was judged until then."""

    def __init__(self, sentence, verdicts=()):
        super().__init__(sentence)
        self.verdicts = list(verdicts)


@dataclass(frozen=True)
class Start:
    """Which start is spoken of: one boot, one invocation, one main process."""

    boot_id: str
    invocation: str
    pid: int
    since: float  # Unix seconds

    def to_dict(self):
        return asdict(self)


@dataclass(frozen=True)
class Demands:
    """What a proof asks for beside the plan. Seconds; `acceptance`: {"floor": tokens per step, "tokens": of the probe}."""

    generate: bool = True
    key: str | None = None
    acceptance: dict | None = None
    hold: float = 0  # that the start must live after its ready line
    stall: float = 0  # without a movement that make a hang; 0 waits to the deadline
    spin: float = 0  # of computing that reads nothing, takes no memory and says nothing; 0 as before


@dataclass(frozen=True)
class Pending:
    """Nothing decisive until the end of this slice of the wait."""

    phase: str
    seconds: float  # since the process started
    moves: str = ""  # what moves, or that nothing does
    resume: dict | None = None  # for the next slice: `prove(resume=…)`


@dataclass(frozen=True)
class Proved:
    evidence: v.Evidence
    verdicts: list
    start: Start
    seconds: float  # from the start of the process to its ready line


def check_unit(host, plan, unit_path):
    """The unit hop alone, as it can be asked before a restart. Returns the verdicts, or raises NotProved."""
    host.insist_on_journal()  # a start that nobody could prove is not worth a restart
    return _insist(plan, v.judge_unit(plan, _unit_evidence(host, plan, unit_path)))


def _unit_evidence(host, plan, unit_path):
    return v.Evidence(unit=host.unit(plan.unit), unit_path=unit_path, manager_environ=host.manager_environment())


def prove(host, plan, unit_path, until, demands=Demands(), kept=None, resume=None):
    """Proved, or Pending when `until` (host.clock) comes first. Raises NotProved, CannotRead.

    kept: what an earlier Proved of this plan left behind, `keep()`; it counts for the same start only.
    """
    evidence = _unit_evidence(host, plan, unit_path)
    unit = evidence.unit
    verdicts = _insist(plan, v.judge_unit(plan, evidence))
    process = host.process(unit.main_pid) if unit.main_pid else None
    if process is None:
        raise NotProved(_death(plan, unit, _read(host, plan, unit.invocation_id, unit.exec_main_start)), verdicts)
    start = Start(host.boot_id(), unit.invocation_id, unit.main_pid, unit.exec_main_start)
    evidence = replace(evidence, argv=process[0], environ=process[1])
    verdicts += _insist(plan, v.judge_process(plan, evidence))

    if not (kept and kept["start"] == start.to_dict() and kept["digest"] == plan.digest):
        kept = None
    watched = _Watched(host, plan, start, evidence, kept, demands, resume)
    if not kept and not watched.wait(lambda: watched.log.ready, until):
        return watched.pending(watched.log.phase)
    log = watched.log
    seconds = log.ready.time - start.since if log.ready else kept["seconds"]
    ready_at = start.since + seconds
    owner = _listener(host, plan, ready_at + PORT_GRACE, until)
    if owner is None and host.now() < ready_at + PORT_GRACE:
        return watched.pending("ready, but nobody listens on its port yet")
    if not watched.wait(lambda: host.now() >= ready_at + demands.hold, until):
        return watched.pending("ready, held for a while")
    evidence = _ask(host, plan, watched.evidence(), owner, demands)
    if owner is None or not owner.ours:  # nobody was asked, so that what would have been answered is missing is no cause
        _insist(plan, [*verdicts, *v.judge_echoed(plan, evidence), *v.judge_served(plan, evidence)])
    _insist_on_life(host, plan, start, evidence.generation)
    evidence = replace(evidence, environs=host.environments(unit.control_group))
    watched.catch_up()  # with what it said while it answered
    evidence = replace(evidence, alarms=watched.evidence().alarms)
    verdicts = _insist(plan, v.judge(plan, evidence))
    _still(host, plan, start)  # ready is not healthy: it must have survived its first request
    return Proved(evidence, verdicts, start, seconds)


def _insist(plan, verdicts):
    broken = v.first_broken(verdicts)
    if broken:
        raise NotProved(v.sentence(plan, broken, verdicts), verdicts)
    return verdicts


def _read(host, plan, invocation, kernel_since=None):
    """What the journal holds of a start; of one that ended also the kernel's kills, so that they are told apart."""
    log = Log(plan)
    for line in host.journal(invocation) if invocation else ():
        log.feed(line)
    for line in host.kernel_journal(kernel_since) if kernel_since else ():
        log.feed(line)
    return log


class _Watched:
    """One start, heard and watched while it lives. `read`: the evidence of its unit and process."""

    def __init__(self, host, plan, start, read, kept, demands, resume):
        self.host, self.plan, self.start = host, plan, start
        self.log = _read(host, plan, start.invocation)
        self._read, self._kept, self._demands = read, kept, demands
        self._watch = Watch(start.invocation, host.now(), resume)

    def evidence(self):
        heard = hear(self._read, self.plan, self.log)
        return remember(heard, self._kept) if self._kept else heard

    def catch_up(self):
        for line in self.host.journal(self.start.invocation, self.log.cursor):
            self.log.feed(line)

    def wait(self, reached, until):
        """Whether `reached()` comes to hold before `until` (host.clock). NotProved: a contradiction, its end, a hang."""
        self._contradictions()
        if reached():
            return True
        for line in self.host.follow(self.start.invocation, self.log.cursor, until):
            if line is not None:
                self.log.feed(line)
                continue
            # A pause between lines: all that was said so far has been heard.
            self._contradictions()
            if reached():
                return True
            _still(self.host, self.plan, self.start)
            self._insist_on_movement()
        return False

    def pending(self, phase):
        now = self.host.now()
        moves = "" if self.log.ready else self._watch.describe(now)
        return Pending(phase, now - self.start.since, moves, self._watch.to_dict())

    def _contradictions(self):
        plan, heard = self.plan, self.evidence()
        broken = v.contradicted(plan, heard)
        if broken:
            known = [*v.judge_unit(plan, heard), *v.judge_process(plan, heard), *v.judge_echoed(plan, heard)]
            raise NotProved(v.sentence(plan, broken[0], known), [*known, *v.judge_effective(plan, heard)])

    def _insist_on_movement(self):
        now, watch = self.host.now(), self._watch
        if watch.is_due(now):
            watch.look(now, self.host.usage(self._read.unit.control_group))
        if self.log.last:
            watch.heard(self.log.last.time)
        quiet, fruitless, demands = watch.quiet_for(now), watch.fruitless_for(now), self._demands
        if self.log.ready:
            return
        if demands.stall and quiet >= demands.stall:
            what, limit = f"nothing has moved for {quiet:.0f} s (limit {demands.stall:.0f} s): no CPU used", "stall"
        elif demands.spin and fruitless >= demands.spin:
            what, limit = f"it computes and does not get on for {fruitless:.0f} s (limit {demands.spin:.0f} s)", "spin"
        else:
            return
        pids = sorted(map(int, watch.usage))[:8]
        last = f'"{redact.text(self.log.last.text)[:160]}" {at(self.log.last)}' if self.log.last else "none"
        raise NotProved(
            f"{self.plan.unit} hangs: {what}, no byte read, no memory taken, no line logged. Phase: {self.log.phase}\n"
            f"  read in  /proc/PID/io and stat of its {len(watch.usage)} processes; last line of the start: {last}\n"
            f"  next     head /proc/{{{','.join(map(str, pids))}}}/stack on the host shows what it waits for; then "
            f"ansible-playbook deploy.yml, or declare a larger sglang_service_{limit}_timeout"
        )


def _listener(host, plan, give_up, until):
    """Who owns the listening socket; None if nobody listens at `give_up` (Unix seconds) or `until` (host.clock)."""
    while True:
        owner = host.listener(plan.port, host.unit(plan.unit).control_group, plan.host)
        if owner or host.now() >= give_up or host.clock() >= until:
            return owner
        host.sleep(0.25)


def _ask(host, plan, evidence, owner, demands):
    """The evidence with what the running server answers."""
    if owner is None:
        return evidence
    listener = v.Said({"ours": owner.ours, "owner": owner.name}, f"listening socket of port {plan.port}")
    evidence = replace(evidence, listener=listener)
    if not owner.ours:
        return evidence  # whoever answers there is not asked
    address = f"http://{host.reachable(plan.host)}:{plan.port}"
    evidence = replace(
        evidence,
        server_info=_said(host, f"{address}/server_info", demands.key),
        model_info=_said(host, f"{address}/model_info", demands.key),
    )
    if demands.key:
        evidence = replace(evidence, keyless=_said(host, f"{address}/model_info", None))
    if evidence.server_info.problem:
        silent = v.Said(
            demands.acceptance or {}, f"{address}/generate", problem=f"not asked: {evidence.server_info.problem}"
        )
        return replace(
            evidence,
            generation=silent if demands.generate else None,
            acceptance=silent if demands.acceptance else None,
        )
    if demands.generate:
        said = _generate(host, address, demands.key, 8)
        if not said.problem and not said.fields.get("text"):
            said = replace(said, problem="it answered without a text")
        evidence = replace(evidence, generation=said)
    if demands.acceptance:
        probe = _generate(host, address, demands.key, demands.acceptance["tokens"], ignore_eos=True)
        floor = {"floor": demands.acceptance["floor"]}
        evidence = replace(evidence, acceptance=replace(probe, fields={**probe.fields, **floor}))
    return evidence


def _generate(host, address, key, tokens, **sampling):
    request = {"text": PROMPT, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, **sampling}}
    return _said(host, f"{address}/generate", key, request, timeout=300)


def _said(host, url, key, body=None, timeout=30):
    try:
        answer = host.get(url, key, body, timeout)
    except CannotRead as error:
        return v.Said({}, url, problem=str(error))
    return v.Said(answer, url) if isinstance(answer, dict) else v.Said({}, url, problem="it is no JSON object")


def _still(host, plan, start):
    """Raises NotProved unless this very start still runs."""
    unit = host.unit(plan.unit)
    if unit.invocation_id == start.invocation and unit.main_pid == start.pid:
        return
    ended = _read(host, plan, start.invocation, kernel_since=start.since)
    raise NotProved(_death(plan, unit, ended, start))


def _insist_on_life(host, plan, start, asked):
    """An engine that dies of a request drops the connection first: its own reason is the one to name."""
    give_up = host.clock() + LAST_WORDS
    while asked and asked.problem and host.clock() < give_up:
        _still(host, plan, start)
        host.sleep(0.25)


def _death(plan, unit, log, start=None):
    """Why there is no process, with the engine's own reason before systemd's."""
    cause = log.failure()
    if cause:
        reason, where = (
            cause.sentence,
            f"journal of {plan.unit}, {at(cause.record)}" if cause.record else "the journal",
        )
    elif not unit.invocation_id:
        reason, where = "it was never started in this boot", f"systemctl status {plan.unit}"
    else:
        status = f" (exit status {unit.exec_main_status})" if unit.exec_main_code == EXITED else ""
        reason, where = f"the engine gave no reason; systemd says {unit.result or unit.sub_state}{status}", "systemctl"
    if cause and unit.result in ("signal", "oom-kill"):  # the same word for two deaths
        killed = cause.kind == "killed_by_kernel"
        told = "say the same" if killed else "name none of its processes: SGLang kills itself after such an error"
        where += f"\n  systemd  says {unit.result}; the kernel's records {told}"
    again = f", systemd has started it {unit.n_restarts} more times" if unit.n_restarts else ""
    what = "ended during this start" if start else f"has no main process ({unit.active_state}/{unit.sub_state})"
    invocation = start.invocation if start else unit.invocation_id
    more = f"journalctl _SYSTEMD_INVOCATION_ID={invocation} on the host" if invocation else f"systemctl start {plan.unit}"
    return f"{plan.unit} {what}{again}: {reason}\n  read in  {where}\n  next     {more}; then ansible-playbook deploy.yml"
