"""Out of the gateways and in again, and when an engine is drained: decided without a host and without a gateway."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from ansible.module_utils import sglang_traffic as traffic
from ansible.module_utils.sglang_host import CannotRead
from ansible.module_utils.sglang_state import State, Verified
from fake_gateway import FakeGateway
from hypothesis import given
from hypothesis import strategies as st
from stage import FakeHost, make_plan

PLAN = make_plan(window=2048, host="0.0.0.0")
ME, OTHER, THIRD = (f"http://10.0.0.{n}:30000" for n in (1, 2, 3))
START = {"boot_id": "boot", "invocation": "i1", "pid": 7, "since": 990.0}


@pytest.fixture
def host():
    return FakeHost(PLAN)


@pytest.fixture
def engine(host, tmp_path):
    """Runs PLAN, proved, and is reached as 10.0.0.1."""
    state = State(str(tmp_path / "k26"))
    engine = traffic.Engine(host, state, "k26", "10.0.0.1")
    with engine.hold.alone():
        prove(state)
    return engine


def prove(state, **start):
    evidence = {"start": {**START, **start}, "digest": PLAN.digest, "seconds": 9.0, "echo": None, "lines": {}}
    state.keep(Verified(PLAN, "unit", evidence))


# ---- out ----


def test_it_leaves_every_gateway_and_it_is_noted_that_this_is_meant(engine):
    gateways = [FakeGateway(ME, OTHER, url=url) for url in ("http://a:8000", "http://b:8000")]
    assert engine.take_out(gateways, 60, 1, "a rollout")
    assert [gateway.asked for gateway in gateways] == [[f"remove {ME}"]] * 2
    assert engine.hold.read() == {"since": 1000.0, "by_hand": False, "why": "a rollout"}


def test_a_worker_that_drains_gets_no_requests_and_is_out(engine):
    gateway = FakeGateway(ME, OTHER, looks=1000)
    assert engine.take_out([gateway], 60, 1, "a rollout")
    assert gateway.listed[ME].draining


def test_taking_out_what_is_out_changes_nothing(engine):
    gateway = FakeGateway(ME, OTHER)
    engine.take_out([gateway], 60, 1, "a rollout")
    assert not engine.take_out([gateway], 60, 1, "a rollout")
    assert gateway.asked == [f"remove {ME}"]


def test_a_gateway_that_does_not_let_go_is_named(engine):
    with pytest.raises(traffic.Refused, match="still lists it 60 s later"):
        engine.take_out([FakeGateway(ME, OTHER, looks=None)], 60, 1, "a rollout")
    assert engine.left  # so that it is put back


def test_every_rank_of_an_engine_leaves(engine):
    gateway = FakeGateway(f"{ME}@0", f"{ME}@1", OTHER, f"{ME}1")
    engine.take_out([gateway], 60, 1, "a rollout")
    assert gateway.asked == [f"remove {ME}@0", f"remove {ME}@1"]


def test_check_mode_tells_and_does_nothing(engine):
    gateway = FakeGateway(ME, OTHER)
    assert engine.take_out([gateway], 60, 1, "a rollout", dry=True)
    assert gateway.asked == [] and engine.hold.read() is None


def test_an_engine_of_which_no_start_was_proved_is_found_by_the_declared_port(host, tmp_path):
    gateway = FakeGateway(ME, OTHER)
    engine = traffic.Engine(host, State(str(tmp_path / "k26")), "k26", "10.0.0.1")
    assert engine.take_out([gateway], 60, 1, "a rollout", port=30000)
    assert gateway.asked == [f"remove {ME}"]


def test_where_nothing_was_ever_started_there_is_nothing_to_take_out(host, tmp_path):
    gateway = FakeGateway(OTHER)
    engine = traffic.Engine(host, State(str(tmp_path / "k26")), "k26", "10.0.0.1")
    engine.take_out([gateway], 60, 1, "a rollout")
    assert gateway.asked == [] and engine.drain(300) == (None, 0)


def test_a_gateway_that_is_away_keeps_it_at_no_other_one(host):
    gateways = [FakeGateway(ME, OTHER, url=url) for url in ("http://a:8000", "http://b:8000")]
    gateways[0].away = True
    changed, problems = traffic.leave(gateways, ME, host, 60)
    assert changed and problems == ["the gateway http://a:8000 does not answer: refused"]
    assert gateways[1].asked == [f"remove {ME}"]


def test_with_a_gateway_away_a_run_takes_nobody_out(engine):
    gateways = [FakeGateway(ME, OTHER, url=url) for url in ("http://a:8000", "http://b:8000")]
    gateways[1].away = True
    with pytest.raises(CannotRead, match="http://b:8000 does not answer"):
        engine.take_out(gateways, 60, 1, "a rollout")
    assert gateways[0].asked == [] and engine.hold.read() is None and engine.served and not engine.left


# ---- who must go on serving ----


@pytest.mark.parametrize(
    "minimum, fleet, hosts",
    [("0", 8, 0), (1, 8, 1), ("75%", 8, 6), ("75%", 3, 3), ("100%", 8, 8), ("0%", 8, 0), (" 2 ", 8, 2)],
)
def test_the_minimum_is_a_number_or_a_share_rounded_up(minimum, fleet, hosts):
    assert traffic.required(minimum, fleet) == hosts


@pytest.mark.parametrize("minimum", ["-1", "101%", "half", "", "1.5", "75 %"])
def test_another_minimum_is_refused(minimum):
    with pytest.raises(traffic.Refused, match=r"traffic_minimum_serving: declared .* like 75%"):
        traffic.required(minimum, 8)


def test_below_the_minimum_nothing_is_touched(engine):
    gateways = [FakeGateway(ME, OTHER, THIRD), FakeGateway(ME, OTHER)]
    with pytest.raises(traffic.Refused, match=r"declared 2, but .* would have 1 serving \(10.0.0.2\)") as error:
        engine.take_out(gateways, 60, 2, "a rollout")
    assert "-e traffic_minimum_serving=1" in str(error.value)
    assert [gateway.asked for gateway in gateways] == [[], []]
    assert engine.hold.read() is None


def test_what_serves_another_model_does_not_count(engine):
    gateway = FakeGateway(ME)
    gateway.listed[OTHER] = gateway._worker(OTHER)._replace(model="another")
    with pytest.raises(traffic.Refused, match="would have 0 serving"):
        engine.take_out([gateway], 60, 1, "a rollout")


def test_what_is_not_ready_does_not_count(engine):
    gateway = FakeGateway(ME)
    gateway.listed[OTHER] = gateway._worker(OTHER, ready=False)
    with pytest.raises(traffic.Refused, match="would have 0 serving"):
        engine.take_out([gateway], 60, 1, "a rollout")


def test_two_engines_on_one_host_are_one_host(engine):
    gateway = FakeGateway(ME, OTHER, f"{OTHER[:-1]}1")
    with pytest.raises(traffic.Refused, match="would have 1 serving"):
        engine.take_out([gateway], 60, 2, "a rollout")


def test_an_engine_that_gets_no_requests_can_always_be_taken_out(engine):
    gateway = FakeGateway(ME)
    gateway.listed[ME] = gateway._worker(ME, ready=False)
    assert engine.take_out([gateway], 60, 8, "a rollout")


@given(st.integers(1, 8), st.integers(0, 8))
def test_one_after_the_other_there_are_never_fewer_than_the_minimum(size, minimum):
    gateway = FakeGateway(*(f"http://10.0.0.{n}:30000" for n in range(size)), looks=1)
    for n in range(size):
        try:
            traffic.insist_on_capacity([gateway], f"http://10.0.0.{n}:30000", minimum)
        except traffic.Refused:
            continue
        traffic.leave([gateway], f"http://10.0.0.{n}:30000", FakeHost(PLAN), 60)
    assert sum(worker.ready for worker in gateway.workers()) >= min(minimum, size)


# ---- in ----


def test_a_proved_start_joins_every_gateway_and_the_note_goes(engine):
    engine.hold.set(1.0, "a rollout")
    gateways = [FakeGateway(OTHER, url=url) for url in ("http://a:8000", "http://b:8000")]
    assert engine.take_in(gateways, 60)
    assert all(gateway.listed[ME].ready for gateway in gateways)
    assert engine.hold.read() is None


def test_what_a_person_took_out_only_a_person_takes_in(engine):
    gateway = FakeGateway(ME, OTHER)
    engine.take_out([gateway], 60, 1, "repairs", by_hand=True)
    engine.take_out([gateway], 60, 1, "a rollout")
    assert engine.take_in([gateway], 60) is None
    assert ME not in gateway.listed and engine.hold.read()["why"] == "repairs"
    assert engine.take_in([gateway], 60, by_hand=True)
    assert gateway.listed[ME].ready and engine.hold.read() is None


def test_taking_in_what_is_in_changes_nothing(engine):
    gateway = FakeGateway(ME)
    assert not engine.take_in([gateway], 60)
    assert gateway.asked == []


@pytest.mark.parametrize("start", [{"invocation": "i0"}, {"boot_id": "another"}, {"pid": 8}])
def test_another_start_than_the_proved_one_stays_out(engine, start):
    prove(engine.state, **start)
    gateway = FakeGateway(OTHER)
    with pytest.raises(traffic.Refused, match="the start that runs now was not proved"):
        engine.take_in([gateway], 60)
    assert gateway.asked == []


def test_what_does_not_run_stays_out(engine):
    engine.host.dies()
    with pytest.raises(traffic.Refused, match="was not proved"):
        engine.take_in([FakeGateway()], 60)


def test_an_engine_that_only_its_own_host_reaches_is_refused_for_gateways_alone(host, tmp_path):
    plan = make_plan(window=2048, host="127.0.0.1")
    engine = traffic.Engine(host, State(str(tmp_path)), "k26", "10.0.0.1")
    engine.state.keep(Verified(plan, "unit", {"start": START, "digest": "d", "seconds": 9.0, "echo": None, "lines": {}}))
    with pytest.raises(traffic.Refused, match=r"(?s)host: declared 127.0.0.1 .* sglang_service_host=0.0.0.0"):
        engine.take_in([FakeGateway()], 60)
    engine.take_in([], 60)


def test_a_gateway_that_is_away_keeps_it_from_no_other_one(engine):
    gateways = [FakeGateway(OTHER, url=url) for url in ("http://a:8000", "http://b:8000")]
    gateways[0].away = True
    with pytest.raises(traffic.Refused, match="http://a:8000 does not answer"):
        engine.take_in(gateways, 60)
    assert gateways[1].listed[ME].ready


def test_what_was_not_touched_goes_back_without_a_proof(host, tmp_path):
    gateway = FakeGateway(ME, OTHER)
    engine = traffic.Engine(host, State(str(tmp_path / "k26")), "k26", "10.0.0.1")
    engine.take_out([gateway], 60, 1, "a rollout", port=30000)
    assert engine.served
    with pytest.raises(traffic.Refused, match="was not proved"):
        engine.take_in([gateway], 60, port=30000)
    assert engine.take_in([gateway], 60, port=30000, untouched=True)
    assert gateway.listed[ME].ready and engine.hold.read() is None


def test_what_another_balancer_serves_is_what_is_not_held_out(engine):
    engine.take_out([], 60, 1, "a rollout")
    assert engine.served
    engine.take_out([], 60, 1, "a rollout")
    assert not engine.served


def test_a_worker_that_still_leaves_is_waited_for_and_added_again(engine):
    gateway = FakeGateway(ME, OTHER)
    gateway.remove(f"id of {ME}")
    assert engine.take_in([gateway], 60)
    assert gateway.asked == [f"remove {ME}", f"add {ME}"]


def test_a_gateway_that_gives_up_is_named_at_once(engine, host):
    gateway = FakeGateway(OTHER)
    gateway.gives_up = True
    with pytest.raises(traffic.Refused, match=rf"the gateway http://gateway:8000 was told of {ME} and gave it up"):
        engine.take_in([gateway], 600)
    assert host.time < 1010


def test_a_gateway_that_never_lists_it_is_named_in_time(engine):
    with pytest.raises(traffic.Refused, match="does not list it as ready after 60 s"):
        engine.take_in([FakeGateway(OTHER, looks=None)], 60)


def test_where_a_gateway_is_away_nothing_holds_it_out_any_more_and_its_registrar_goes_on(engine):
    engine.hold.set(1.0, "a rollout")
    with pytest.raises(traffic.Refused):
        engine.take_in([FakeGateway(looks=None)], 60)
    assert engine.hold.read() is None


# ---- drained ----


def says(host, *readings):
    """`/v1/loads` says these (requests, tokens), and the last of them for ever; None is no answer."""
    left = list(readings)

    def get(_url, _key=None):
        reading = left.pop(0) if len(left) > 1 else left[0]
        if reading is None:
            raise CannotRead("refused")
        requests, tokens = reading
        return {"loads": [{"num_running_reqs": requests, "num_waiting_reqs": 0, "num_used_tokens": tokens}]}

    host.get = get


def test_it_is_drained_when_nothing_was_in_flight_for_a_while(host):
    says(host, (3, 300), (1, 100), (0, 0))
    assert traffic.drain(host, ME, None, 300) == (3, pytest.approx(1 + traffic.QUIET, abs=0.6))


def test_a_prompt_that_is_read_in_chunks_is_in_neither_count_and_is_waited_for(host):
    says(host, *((0, 8192 * n // 4) for n in range(40)), (0, 0))
    assert traffic.drain(host, ME, None, 300)[1] >= 20


def test_tokens_that_are_kept_while_nothing_moves_are_no_request(host):
    says(host, (0, 512))
    assert traffic.drain(host, ME, None, 300) == (0, traffic.QUIET)


def test_requests_that_do_not_end_are_counted_and_overdue(host):
    says(host, (2, 300))
    with pytest.raises(traffic.Overdue, match=r"\(traffic_drain_timeout 300 s\), 2 requests in flight"):
        traffic.drain(host, ME, None, 300)


def test_an_engine_that_does_not_say_is_no_drained_engine(host):
    says(host, None)
    with pytest.raises(traffic.Overdue, match="cannot be counted: refused"):
        traffic.drain(host, ME, None, 300)


def test_an_answer_that_failed_starts_the_while_anew(host):
    says(host, (0, 0), (0, 0), (0, 0), None, (0, 0))
    assert traffic.drain(host, ME, None, 300)[1] >= 2 + traffic.QUIET


def test_what_does_not_run_has_nothing_in_flight(engine):
    engine.host.dies()
    assert engine.drain(300) == (0, 0)


def test_it_is_asked_where_it_listens(engine):
    asked = []
    says(engine.host, (0, 0))
    get = engine.host.get
    engine.host.get = lambda url, key=None: asked.append((url, key)) or get(url)
    engine.drain(300)
    assert set(asked) == {("http://0.0.0.0:30000/v1/loads", None)}  # FakeHost.reachable leaves the address as it is


@pytest.mark.parametrize("answer", [{}, {"loads": []}, {"loads": [{}]}, {"loads": [{"num_running_reqs": None}]}, []])
def test_another_answer_is_none(answer):
    with pytest.raises(CannotRead):
        traffic.load(answer)


def test_the_replicas_of_an_engine_are_counted_together():
    answer = {"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 1}, {"num_running_reqs": 1, "num_waiting_reqs": 0}]}
    assert traffic.load(answer) == (4, 0)


# ---- the gateway's own API ----


@pytest.fixture
def answering():
    """A gateway's address, and what it says to each call: {"GET /workers": (status, body)}; its requests are kept."""
    answers, requests = {}, []

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            requests.append((f"{self.command} {self.path}", self.headers.get("Authorization"), json.loads(body or b"null")))
            status, content = answers[requests[-1][0]]
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.answers, server.requests, server.url = answers, requests, f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


# As smg 1.13.0 lists it, shortened.
LISTED = {"id": "01a2", "model_id": "tiny", "url": ME, "is_healthy": True, "status": "ready", "load": 0}


def test_the_workers_of_a_gateway(answering):
    answering.answers["GET /workers"] = (200, {"workers": [LISTED, {**LISTED, "status": "draining", "is_healthy": False}]})
    assert traffic.Gateway(answering.url, "k").workers() == [
        traffic.Worker("01a2", ME, "tiny", True, False),
        traffic.Worker("01a2", ME, "tiny", False, True),
    ]
    assert answering.requests == [("GET /workers", "Bearer k", None)]


def test_an_older_router_says_only_whether_a_worker_is_healthy(answering):
    router = {name: value for name, value in LISTED.items() if name != "status"}
    answering.answers["GET /workers"] = (200, {"workers": [router, {**router, "is_healthy": False}]})
    assert [worker.ready for worker in traffic.Gateway(answering.url).workers()] == [True, False]


def test_adding_tells_the_engines_key_and_a_worker_on_its_way_is_no_error(answering):
    answering.answers["POST /workers"] = (202, {"status": "accepted", "worker_id": "01a2"})
    assert traffic.Gateway(answering.url).add(ME, "engine key") == "01a2"
    assert answering.requests[0][2] == {"url": ME, "runtime": "sglang", "api_key": "engine key"}
    answering.answers["POST /workers"] = (409, {"code": "WORKER_CREATE_IN_PROGRESS", "error": "…"})
    assert traffic.Gateway(answering.url).add(ME) is None


def test_a_worker_that_is_gone_is_removed(answering):
    answering.answers["DELETE /workers/01a2"] = (404, {"code": "WORKER_NOT_FOUND"})
    traffic.Gateway(answering.url).remove("01a2")
    answering.answers["GET /workers/01a2"] = (404, {"code": "WORKER_NOT_FOUND"})
    assert not traffic.Gateway(answering.url).knows("01a2")


def test_a_missing_admin_key_is_named(answering):
    answering.answers["GET /workers"] = (401, "Missing or invalid Authorization header")
    with pytest.raises(CannotRead, match=r"with 401 Missing or invalid .* traffic_gateway_key_file"):
        traffic.Gateway(answering.url).workers()


def test_a_gateway_that_is_away_is_named():
    with pytest.raises(CannotRead, match=r"http://127.0.0.1:9 does not answer: Connection refused\n  next "):
        traffic.Gateway("http://127.0.0.1:9").workers()


@pytest.mark.parametrize("url", ["gateway:8000", "http://gateway:8000/v1", "ftp://gateway", ""])
def test_what_is_no_gateway_is_refused(url):
    with pytest.raises(ValueError, match="traffic_gateways: declared"):
        traffic.gateways([url])


def test_a_key_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(CannotRead, match=r"traffic_gateway_key_file: .*/none cannot be read: No such file"):
        traffic.gateways(["http://gateway:8000"], str(tmp_path / "none"))


def test_a_note_that_cannot_be_read_keeps_the_engine_out(tmp_path):
    hold = traffic.Hold(str(tmp_path))
    assert hold.read() is None
    (tmp_path / "held_out.json").write_text("{")
    assert hold.read()["by_hand"] and "cannot be read" in hold.read()["why"]
