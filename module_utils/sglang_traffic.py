"""An engine's place in the traffic: taken out of its gateways and in again, and whether it has anything left to do.

Gateways are those of smg (1.13.0; model_gateway/src/server.rs): GET and POST /workers, DELETE /workers/<id>. Adding and
removing are accepted at once and done later, so both are polled. All I/O is handed in: `host` as of sglang_host, `gateways`
as of `Gateway` below.

<state_dir>/held_out.json   while the instance is kept out of traffic on purpose: {"since": Unix seconds, "by_hand", "why"};
                            what a person took out no run takes in again
<state_dir>/traffic.lock    one of Ansible and the registrar changes the place of the instance at a time
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import math
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from .sglang_host import CannotRead, read_json, write_json
from .sglang_proof import key_file
from .sglang_proof.verdict import option_value

TICK = 0.2  # seconds between two looks at a gateway
LOADS_TICK = 0.5  # seconds between two looks at an engine
# A prompt that is read in chunks stands in neither of the engine's counts, but its tokens grow with each chunk, seconds
# apart (sglang 0.5.23 load_inquirer.py:110): an engine is drained when nothing has moved for longer than a chunk takes.
QUIET = 5


class Refused(Exception):
    """The place in the traffic was not changed. `str()` says why, and what to do."""


class Overdue(Exception):
    """Requests are still in flight, or cannot be counted, at the end of the drain. `str()` says how many."""


class Worker(NamedTuple):
    """A worker as a gateway lists it."""

    id: str
    url: str
    model: str
    ready: bool  # gets new requests
    draining: bool  # gets none, and finishes those it has


class Gateway:
    """One gateway's API. Raises CannotRead where it does not answer as it should."""

    def __init__(self, url, key=None, timeout=10):
        self.url, self.key, self.timeout = url.rstrip("/"), key, timeout

    def workers(self):
        status, answer = self._call("GET", "/workers")
        if status != 200 or not isinstance(answer.get("workers"), list):
            raise self._unexpected("GET /workers", status, answer)
        return [_worker(worker) for worker in answer["workers"]]

    def add(self, url, engine_key=None):
        """The id of the worker that is being added; None where it is already there, or on its way."""
        body = {"url": url, "runtime": "sglang", **({"api_key": engine_key} if engine_key else {})}
        status, answer = self._call("POST", "/workers", body)
        if status == 409:
            return None
        if status not in (200, 201, 202):
            raise self._unexpected("POST /workers", status, answer)
        return answer.get("worker_id")

    def knows(self, worker):
        """Whether a worker that is not listed yet is still on its way."""
        return self._call("GET", f"/workers/{worker}")[0] != 404

    def remove(self, worker):
        status, answer = self._call("DELETE", f"/workers/{worker}")
        if status not in (200, 202, 404):
            raise self._unexpected(f"DELETE /workers/{worker}", status, answer)

    def _call(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, method=method, data=body and json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        if self.key:
            request.add_header("Authorization", f"Bearer {self.key}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=self.timeout) as answer:
                return answer.status, _json(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _json(error.read())
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise CannotRead(
                f"the gateway {self.url} does not answer: {getattr(reason, 'strerror', None) or reason}\n"
                "  next     on its host: systemctl status model-gateway; what is proved registers there again by itself"
            ) from None

    def _unexpected(self, what, status, answer):
        said = answer.get("error") or answer.get("text") or ""
        hint = "; it wants an admin key: traffic_gateway_key_file" if status in (401, 403) else ""
        return CannotRead(f"the gateway {self.url} answered {what} with {status} {said}{hint}")


def _json(data):
    try:
        answer = json.loads(data or b"{}")
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"text": data.decode(errors="replace")[:200]}


def _worker(data):
    status = data.get("status") or ("ready" if data.get("is_healthy") else "not_ready")  # sglang-router has no status
    return Worker(
        id=str(data.get("id")),
        url=str(data.get("url", "")),
        model=str(data.get("model_id", "")),
        ready=status == "ready" and bool(data.get("is_healthy")),
        draining=status == "draining",
    )


def of(url, workers):
    """The workers of an engine; a gateway that knows data-parallel ranks has one for each, url@rank."""
    return [worker for worker in workers if worker.url.rstrip("/") == url or worker.url.startswith(f"{url}@")]


def _serves(gateways, url):
    """Whether a gateway that answers gives it requests."""
    for gateway in gateways if url else ():
        with contextlib.suppress(CannotRead):
            if any(worker.ready for worker in of(url, gateway.workers())):
                return True
    return False


def required(minimum, fleet):
    """Hosts that must go on serving: a number, or a percentage of the fleet's hosts, rounded up. Raises Refused."""
    text = str(minimum).strip()
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[0-9]{1,2}%|100%", text):
        return math.ceil(fleet * int(text[:-1]) / 100)
    raise Refused(
        f"traffic_minimum_serving: declared {minimum!r}, but it must be a number of hosts or a percentage like 75%. "
        "Nothing was changed"
    )


def insist_on_capacity(gateways, url, minimum):
    """Raises Refused where taking this engine out would leave fewer than `minimum` hosts that serve its model."""
    for gateway in gateways:
        workers = gateway.workers()
        serving = [worker for worker in of(url, workers) if worker.ready]
        if not serving:
            continue  # it gets no requests there, so nothing is lost
        models = {worker.model for worker in serving}
        others = {
            urlsplit(worker.url).hostname
            for worker in workers
            if worker.ready and worker.model in models and worker not in serving
        }
        if len(others) < minimum:
            names = f" ({', '.join(sorted(map(str, others)))})" if others else ""
            raise Refused(
                f"traffic_minimum_serving: declared {minimum}, but without {url} the gateway {gateway.url} would have "
                f"{len(others)} serving{names}. It goes on serving, nothing was changed.\n"
                "  next     bring others back into traffic, or, if that outage is meant: "
                f"-e traffic_minimum_serving={len(others)}"
            )


def leave(gateways, url, host, timeout, dry=False):
    """Take an engine out of all gateways, until none of them gives it new requests.

    Returns whether anything was done, and the problems of the gateways where it could not be: one that does not answer, or
    does not let go within `timeout` seconds, keeps the engine at no other.
    """
    asked = {}  # URL of the gateway: ids of the workers

    def step(gateway):
        left = [worker for worker in of(url, gateway.workers()) if not worker.draining]
        for worker in left:
            ids = asked.setdefault(gateway.url, set())
            if worker.id not in ids and not dry:
                gateway.remove(worker.id)
            ids.add(worker.id)
        return dry or not left

    problems = _at_each(gateways, step, host, timeout, lambda gateway: _not_left(gateway, url, timeout))
    return bool(asked.keys() - problems.keys()), list(problems.values())


def join(gateways, url, host, timeout, engine_key=None, dry=False):
    """Put an engine into all gateways, until each of them gives it requests. Returns what `leave` does."""
    added = {}  # URL of the gateway: id of the worker on its way

    def step(gateway):
        mine = of(url, gateway.workers())
        if mine and all(worker.ready for worker in mine):
            return True
        if dry:
            added[gateway.url] = None
        elif mine:
            pass  # on its way, or still leaving
        elif gateway.url not in added:
            added[gateway.url] = gateway.add(url, engine_key)
        elif added[gateway.url] and not gateway.knows(added[gateway.url]):
            raise Refused(_not_taken(gateway, url, "gave it up"))
        return dry

    late = f"does not list it as ready after {timeout} s"
    problems = _at_each(gateways, step, host, timeout, lambda gateway: _not_taken(gateway, url, late))
    return bool(added.keys() - problems.keys()), list(problems.values())


def _at_each(gateways, step, host, timeout, late):
    """Repeat step(gateway) until it is true of each. Returns {URL: problem} of those where it fails, which are not asked
    again, and of those where it is not true after `timeout` seconds: late(gateway)."""
    waiting, problems = list(gateways), {}
    until = host.clock() + timeout
    while True:
        for gateway in list(waiting):
            try:
                done = step(gateway)
            except (CannotRead, Refused) as error:
                done, problems[gateway.url] = True, str(error)
            if done:
                waiting.remove(gateway)
        if not waiting or host.clock() >= until:
            return {**problems, **{gateway.url: late(gateway) for gateway in waiting}}
        host.sleep(TICK)


def _not_left(gateway, url, timeout):
    return (
        f"{url} was taken out of the gateway {gateway.url}, which still lists it {timeout} s later.\n"
        "  next     look at the gateway's journal, and run again"
    )


def _not_taken(gateway, url, what):
    return (
        f"the gateway {gateway.url} was told of {url} and {what}.\n"
        f"  next     on the gateway: curl {url}/health; if it answers, look at the gateway's journal"
    )


def drain(host, url, key, timeout, quiet=QUIET):
    """Wait until an engine that gets no new requests has none in flight. [requests at first, seconds waited].

    Read from the engine's scheduler, `/v1/loads`, as SGLang has it since 0.5.11. Raises Overdue.
    """
    begun = host.clock()
    first, last, since, problem = None, None, begun, ""
    while True:
        try:
            reading, problem = load(host.get(f"{url}/v1/loads", key)), ""
            first = reading.requests if first is None else first
            if reading.requests or reading != last:
                since = host.clock()
            last = reading
        except CannotRead as error:
            last, problem = None, str(error)
        now = host.clock()
        if last and last.requests == 0 and now - since >= quiet:
            return first, now - begun
        if now - begun >= timeout + quiet:
            count = f"its requests cannot be counted: {problem}" if problem else f"{last.requests} requests in flight"
            raise Overdue(f"{url} is out of traffic for {now - begun:.0f} s (traffic_drain_timeout {timeout} s), {count}")
        host.sleep(LOADS_TICK)


class Load(NamedTuple):
    requests: int  # running and waiting
    tokens: int  # that hold a place in the pool


def load(answer):
    """What /v1/loads says of all replicas together. Raises CannotRead where it says nothing."""
    replicas = answer.get("loads") if isinstance(answer, dict) else None
    if not replicas:
        raise CannotRead("/v1/loads lists no replica")
    try:
        requests = sum(replica["num_running_reqs"] + replica["num_waiting_reqs"] for replica in replicas)
        return Load(requests, sum(replica.get("num_used_tokens", 0) for replica in replicas))
    except (KeyError, TypeError):
        raise CannotRead(f"/v1/loads has another form: {str(replicas)[:200]}") from None


class Engine:
    """One instance of a host: where gateways and its own host find it, and the way out of traffic and in again.

    `address` is how others reach the host. Methods raise Refused, CannotRead, CannotKeep, sglang_state.Unusable, ValueError.
    """

    def __init__(self, host, state, instance, address=None):
        self.host, self.state, self.instance, self.address = host, state, instance, address
        self.unit = f"sglang-{instance}.service"
        self.hold = Hold(state.directory)
        self.outer = None  # its URL for gateways, once it is known
        self.served = False  # whether it got requests when it was about to be taken out
        self.left = False  # whether it was allowed to leave, and so has to be taken in again

    def take_out(self, gateways, timeout, minimum, why, by_hand=False, port=None, dry=False):
        """Out of all gateways, noted as meant. Whether anything was done. An engine that nobody knows needs no more."""
        self.outer = self.url(port)
        with self.hold.alone():
            held = self.hold.read()
            changed = held is None or (by_hand and not held["by_hand"])
            self.served = _serves(gateways, self.outer) if gateways else held is None
            if self.outer:
                insist_on_capacity(gateways, self.outer, minimum)
            self.left = True
            if changed and not dry:
                self.hold.set(self.host.now(), why, by_hand)
            return bool(self.outer and _whole(leave(gateways, self.outer, self.host, timeout, dry))) or changed

    def take_in(self, gateways, timeout, by_hand=False, port=None, untouched=False, dry=False):
        """Into all gateways, if the start that runs is proved. Whether anything was done; None if a person holds it out.

        Nothing holds it out any more then, also where a gateway is away: its registrar tells that one when it is back.

        `untouched`: it was taken out a moment ago and nothing became of it, so it goes back without a proof.
        """
        self.outer = self.url(port)
        if not untouched:
            self._insist_on_proof()
        if gateways and not untouched:
            insist_on_reachable(self.plan(), self.address)
        with self.hold.alone():
            held = self.hold.read()
            if held and held["by_hand"] and not by_hand:
                return None
            done = join(gateways, self.outer, self.host, timeout, self.key(), dry)
            if held and not dry:
                self.hold.clear()
            return _whole(done) or bool(held)

    def drain(self, timeout, port=None):
        """[requests at first or None, seconds]. An engine that does not run has none. Raises Overdue."""
        plan = self.plan()
        if not plan and not port:
            return None, 0
        if plan and not self.host.unit(self.unit).main_pid:
            return 0, 0
        where = f"{self.host.reachable(plan.host)}:{plan.port}" if plan else f"127.0.0.1:{port}"
        return drain(self.host, f"http://{where}", self.key(), timeout)

    def is_proved(self):
        """Whether the start that runs now, and not another, is the one that was proved."""
        kept, now = self.state.evidence(), self.host.unit(self.unit)
        start = kept and kept["start"]
        running = (self.host.boot_id(), now.invocation_id, now.main_pid)
        return bool(start and now.main_pid and (start["boot_id"], start["invocation"], start["pid"]) == running)

    def _insist_on_proof(self):
        if not self.is_proved():
            raise Refused(
                f"{self.unit} was not taken into traffic: the start that runs now was not proved to do what is declared.\n"
                "  next     sglang-deploy status on the host says what is not so; ansible-playbook deploy.yml proves it"
            )

    def url(self, port=None):
        """Where gateways find it; None where no start was ever verified, and no port is given."""
        plan = self.plan()
        port = plan.port if plan else port
        return f"http://{_bracketed(self.address)}:{port}" if port else None

    def plan(self):
        """The verified plan, or None."""
        kept = self.state.verified()
        return kept and kept.plan

    def key(self):
        """The API key of the engine, or None."""
        plan = self.plan()
        path = option_value(plan.argv, "--config") if plan else None
        return key_file.read(path) if path else None


def _whole(done):
    """Whether anything was done. Raises Refused where a gateway is left."""
    changed, problems = done
    if problems:
        raise Refused("\n".join(problems))
    return changed


def gateways(urls, key_path=None):
    """The gateways of these URLs. Raises ValueError, CannotRead."""
    for url in urls:
        if not re.fullmatch(r"https?://[^/\s]+/?", url):
            raise ValueError(
                f"traffic_gateways: declared {url}, but a gateway is like http://gateway:8000. Nothing was changed"
            )
    return [Gateway(url, _gateway_key(key_path)) for url in urls]


def _gateway_key(path):
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise CannotRead(f"traffic_gateway_key_file: {path} cannot be read: {reason}. Nothing was changed") from None


def insist_on_reachable(plan, address):
    """Raises Refused where an engine listens on its own host alone, and gateways look for it elsewhere."""
    if _loopback(plan.host) and not _loopback(address):
        raise Refused(
            f"host: declared {plan.host} for {plan.unit}, which no gateway can reach under {address}. Nothing was changed.\n"
            "  next     ansible-playbook deploy.yml -e sglang_service_host=0.0.0.0"
        )


def _bracketed(address):
    return f"[{address}]" if ":" in address else address


def _loopback(address):
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class Hold:
    """The note that an instance is kept out of traffic on purpose, so that its registrar leaves it out."""

    def __init__(self, state_dir):
        self.path = os.path.join(state_dir, "held_out.json")
        self._lock = os.path.join(state_dir, "traffic.lock")

    def read(self):
        """{"since", "by_hand", "why"}, or None. A note that cannot be read keeps it out: it may be a person's."""
        if not os.path.exists(self.path):
            return None
        return read_json(self.path) or {"since": 0, "by_hand": True, "why": f"{self.path} cannot be read"}

    def set(self, now, why, by_hand=False):
        """Raises CannotKeep."""
        write_json(self.path, {"since": now, "by_hand": by_hand, "why": why})

    def clear(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    @contextlib.contextmanager
    def alone(self):
        """While this is held, nobody else of this project moves the instance. A missing directory is made."""
        Path(self._lock).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._lock, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
