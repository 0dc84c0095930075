# SPDX-License-Identifier: Apache-2.0
"""A browser driven by the DevTools protocol: keys, media, sizes, and the accessibility tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Events of requests and of messages on the console.
_TOLD = {"Network.requestWillBeSent", "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}


class Page:
    """One page; *events* are its requests and console messages so far."""

    def __init__(self, reading: int, writing: int) -> None:
        self._in = os.fdopen(reading, "rb", buffering=0)
        self._received = bytearray()
        self._out = os.fdopen(writing, "wb")
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a method; raises AssertionError with its message if it fails."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        return self._until(lambda reply: reply.get("id") == self._number)["result"]

    def _until(self, wanted: Any) -> dict[str, Any]:
        while True:
            reply = self._message()
            assert "error" not in reply, reply
            if reply.get("method") in _TOLD:
                self.events.append(reply)
            if wanted(reply):
                return reply

    def _message(self) -> dict[str, Any]:
        while (end := self._received.find(b"\0")) < 0:
            chunk = self._in.read(1 << 20)
            assert chunk, "the browser ended"
            self._received += chunk
        message = bytes(self._received[:end])
        del self._received[: end + 1]
        return json.loads(message)

    def load(self, address: str) -> None:
        """Load a page and wait until it is loaded; *events* are this page's from now on."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        self._until(lambda reply: reply.get("method") == "Page.loadEventFired")

    def reload(self) -> None:
        """Load the page again and wait until it is loaded."""
        self.call("Page.reload")
        self._until(lambda reply: reply.get("method") == "Page.loadEventFired")

    def requests(self) -> list[str]:
        """Return the URLs that were requested; data that the page itself contains do not count."""
        urls = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith("data:")]

    def messages(self) -> list[dict[str, Any]]:
        """Return the events of the console."""
        return [e for e in self.events if e["method"] != "Network.requestWillBeSent"]

    def ask(self, script: str) -> Any:
        """Return the value of an expression of JavaScript in the page, or of what it promises."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release a key, given by its name and its virtual code."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            extra = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **extra)

    def media(self, kind: str = "screen", **features: str) -> None:
        """Show the page on a *kind* of medium, and with features such as prefers_color_scheme."""
        values = [{"name": n.replace("_", "-"), "value": v} for n, v in features.items()]
        self.call("Emulation.setEmulatedMedia", media=kind, features=values)

    def width(self, pixels: int, *, phone: bool = False) -> None:
        """Show the page in a window of that width."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=pixels, height=800, deviceScaleFactor=1, mobile=phone
        )

    def tree(self) -> list[dict[str, Any]]:
        """Return the nodes of the accessibility tree that a screen reader does not ignore."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [node for node in nodes if not node["ignored"]]


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Yield a page of a browser with an empty profile, for which no host but this one has an address.

    The browser ends with the block.
    """
    to_browser, from_test = os.pipe()
    to_test, from_browser = os.pipe()
    argv = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    argv += ["--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"]
    argv += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    # The protocol's pipes are 3 and 4.
    move = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
    process = subprocess.Popen(
        ["bash", "-c", move, "bash", *argv, f"--user-data-dir={profile}"],
        pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(to_test, from_test)
    finally:
        process.terminate()
        process.wait(timeout=120)
