"""A steady load of streaming chat requests, each with an id of its own, and what became of every one.

Written on asyncio's streams: thousands of requests on one core, and nothing between the test and the bytes. A client that
retries would hide what is to be seen, so there are no retries.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

TOKENS = 8  # of an answer, where nothing else is said


@dataclass
class Outcome:
    """Requests by id. `done` → the engine that answered; `failed` and `dropped` → what was seen instead."""

    sent: list = field(default_factory=list)
    done: dict = field(default_factory=dict)
    failed: dict = field(default_factory=dict)  # no answer, or another status than 200
    dropped: dict = field(default_factory=dict)  # an answer that broke off, or had another number of tokens

    def by_engine(self):
        return Counter(self.done.values())


class Load:
    """`with Load(url, model, rate) as load: …` sends `rate` requests a second until the end, and waits for the last.

    `load.outcome` grows meanwhile. How long a token takes is the engine's choice.
    """

    def __init__(self, url, model, rate, prefix="load", tokens=TOKENS):
        parts = urlsplit(url)
        self.host, self.port, self.model, self.rate = parts.hostname, parts.port, model, rate
        self.prefix, self.tokens = prefix, tokens
        self.outcome = Outcome()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self._thread.join()

    def stop(self):
        """No new requests; those that are on their way go on."""
        self._stop.set()

    async def _run(self):
        clock = asyncio.get_running_loop().time
        begun, running = clock(), set()
        for number in itertools.count():
            await asyncio.sleep(max(0, begun + number / self.rate - clock()))
            if self._stop.is_set():
                break
            name = f"{self.prefix}-{number:06}"
            self.outcome.sent.append(name)
            task = asyncio.create_task(self._one(name))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    async def _one(self, name):
        try:
            status, headers, events = await self._ask(name)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            self.outcome.failed[name] = repr(error)
            return
        if status != 200:
            self.outcome.failed[name] = f"{status} {events[:1]}"
        elif events[-1:] != ["[DONE]"] or len(events) != self.tokens + 1:
            self.outcome.dropped[name] = f"{len(events)} events, the last {events[-1:]}"
        else:
            self.outcome.done[name] = headers.get("x-smg-routed-worker-id", "")

    async def _ask(self, name):
        """(status, headers, events) of one request, on a connection of its own."""
        body = json.dumps(
            {
                "model": self.model,
                "rid": name,
                "stream": True,
                "max_tokens": self.tokens,
                "messages": [{"role": "user", "content": f"request {name}"}],
            }
        )
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nX-Request-Id: {name}\r\nConnection: close\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write((head + body).encode())
            await writer.drain()
            answer = await reader.read()
        finally:
            writer.close()
        return parse(answer)


def parse(answer):
    """(status, headers, the data of each server-sent event, or the whole body of what is no stream) of an HTTP answer.

    Raises ValueError where it is none. A stream that broke off lacks its end.
    """
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        raise ValueError(f"no answer, {len(answer)} bytes")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = unchunked(body)
    text = body.decode(errors="replace")
    events = [line[len("data: ") :] for line in text.split("\n") if line.startswith("data: ")]
    return int(first.split()[1]), headers, events or [text]


def unchunked(body):
    """The content of a chunked body as far as it came (RFC 9112, 7.1)."""
    content = b""
    while True:
        size, found, body = body.partition(b"\r\n")
        if not found or not size or int(size, 16) == 0:
            return content
        content, body = content + body[: int(size, 16)], body[int(size, 16) + 2 :]
