"""The load of the integration tests sees what it is there to see: requests that fail, and answers that break off."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from load import TOKENS, Load, unchunked

EVENT, END = b"data: {}\n\n", b"data: [DONE]\n\n"
WHOLE = EVENT * TOKENS + END


@pytest.fixture
def outcome():
    """What a second of load makes of a server that answers with this status and this body."""
    servers = []

    def run(status, body):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.send_header("Transfer-Encoding", "chunked")
                self.send_header("x-smg-routed-worker-id", "engine")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                time.sleep(0.01)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        with Load(f"http://127.0.0.1:{server.server_port}", "tiny", rate=50) as load:
            while len(load.outcome.sent) < 10:
                time.sleep(0.01)
        return load.outcome

    yield run
    for server in servers:
        server.shutdown()
        server.server_close()


def chunk(content):
    return b"%x\r\n%s\r\n" % (len(content), content)


def test_whole_answers_are_done(outcome):
    seen = outcome(200, chunk(WHOLE[:7]) + chunk(WHOLE[7:]) + b"0\r\n\r\n")
    assert set(seen.done) == set(seen.sent) and len(seen.sent) >= 10
    assert set(seen.by_engine()) == {"engine"} and not seen.failed and not seen.dropped


@pytest.mark.parametrize("content", [EVENT * TOKENS, EVENT * (TOKENS - 1) + END, EVENT * (TOKENS + 1) + END, EVENT])
def test_answers_that_break_off_or_have_other_tokens_are_dropped(outcome, content):
    seen = outcome(200, chunk(content))
    assert set(seen.dropped) == set(seen.sent) and not seen.done


def test_another_status_is_a_failure(outcome):
    seen = outcome(503, chunk(b'{"error": "no worker"}') + b"0\r\n\r\n")
    assert set(seen.failed) == set(seen.sent) and "503" in next(iter(seen.failed.values()))


def test_no_server_is_a_failure():
    with Load("http://127.0.0.1:9", "tiny", rate=50) as load:
        while len(load.outcome.sent) < 3:
            time.sleep(0.01)
    assert set(load.outcome.failed) == set(load.outcome.sent)


def test_a_chunk_that_was_cut_counts_as_far_as_it_came():
    assert unchunked(b"5\r\nhello\r\n5\r\nwo") == b"hellowo"
