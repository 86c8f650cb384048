"""A page in a real browser: Debian's Chromium without a window, told what to do by the Chrome DevTools Protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile

PACKAGE = PROGRAM = "chromium-headless-shell"


class Browser:
    """`with Browser() as browser`: one tab. Installs Debian's package if this machine has no such browser."""

    def __enter__(self):
        if not shutil.which(PROGRAM):
            install = ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", PACKAGE]
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["apt-get", "update", "--quiet"], install):
                subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        self._profile = tempfile.TemporaryDirectory()
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # It reads from descriptor 3 and writes to 4. As root it needs --no-sandbox; the pages are ours.
        command = f'exec {PROGRAM} --no-sandbox --remote-debugging-pipe --user-data-dir="$0" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, self._profile.name], pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        self._numbers, self._session = itertools.count(1), None
        self._heard, self._events = b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        return self

    def __exit__(self, *_):
        self._out.close()  # it ends when nobody can tell it anything any more
        self._process.wait()
        self._in.close()
        self._profile.cleanup()

    def call(self, method, **parameters):
        """The answer to one command of the protocol."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while (said := self._hear()).get("id") != number:
            self._events.append(said["method"])
        assert "result" in said, said
        return said["result"]

    def _hear(self):
        """The next message, an answer or an event."""
        while b"\0" not in self._heard:
            read = self._in.read1()
            assert read, "the browser ended"
            self._heard += read
        message, _, self._heard = self._heard.partition(b"\0")
        return json.loads(message)

    def open(self, path, width, height=844, dark=False):
        """Show a file as a phone (or a wider screen) of that many CSS pixels does."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._events.append(self._hear()["method"])

    def value(self, script):
        """The value of a JavaScript expression in the page."""
        said = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def picture(self, path):
        """The whole page as a PNG."""
        said = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(said["data"]))
