"""A stand-in for smg as `sglang_traffic.Gateway` speaks to it: what it is asked for it does some looks later."""

from __future__ import annotations

from ansible.module_utils.sglang_host import CannotRead
from ansible.module_utils.sglang_traffic import Worker


class FakeGateway:
    """`looks`: how many until an addition or removal is done; None is never. `gives_up`: additions come to nothing."""

    def __init__(self, *urls, model="tiny", looks=2, url="http://gateway:8000"):
        self.url = url
        self.model, self.looks, self.gives_up, self.away = model, looks, False, False
        self.listed = {url: self._worker(url) for url in urls}
        self.pending = {}  # url → looks left, of what comes
        self.leaving = {}  # url → looks left, of what goes
        self.asked = []  # "add url" and "remove url"
        self.keys = {}

    def _worker(self, url, ready=True, draining=False):
        return Worker(f"id of {url}", url, self.model, ready, draining)

    def workers(self):
        if self.away:
            raise CannotRead(f"the gateway {self.url} does not answer: refused")
        for url in self._due(self.pending):
            if not self.gives_up:
                self.listed[url] = self._worker(url)
        for url in self._due(self.leaving):
            del self.listed[url]
        return list(self.listed.values())

    @staticmethod
    def _due(waiting):
        for url, left in list(waiting.items()):
            if left is not None:
                waiting[url] = left - 1
        due = [url for url, left in waiting.items() if left == 0]
        for url in due:
            del waiting[url]
        return due

    def add(self, url, engine_key=None):
        if url in self.listed or url in self.pending:
            return None
        self.asked.append(f"add {url}")
        self.keys[url] = engine_key
        self.pending[url] = self.looks
        return f"id of {url}"

    def knows(self, worker):
        return any(worker == f"id of {url}" for url in (*self.listed, *self.pending))

    def remove(self, worker):
        url = worker[len("id of ") :]
        self.asked.append(f"remove {url}")
        if self.looks is not None:
            self.listed[url] = self._worker(url, ready=False, draining=True)
            self.leaving[url] = self.looks
