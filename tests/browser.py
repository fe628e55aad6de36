"""A headless Chromium for tests of pages and for their pictures, spoken to over its DevTools; skipped where it is not installed.

What it talks with is tornado's websocket, which comes with distributed (of the extra `dev`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--remote-debugging-port=0",
)  # fmt: skip


class Page:
    """A page under the hands of a test. errors: what it said on its console or threw · requests: addresses that it asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: Any) -> None:
        self._loop, self._socket, self._number = loop, socket, 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **arguments: Any) -> Any:
        """A command of the DevTools, and its answer."""
        return self._loop.run_until_complete(self._call(method, arguments))

    async def _call(self, method: str, arguments: dict[str, Any]) -> Any:
        self._number += 1
        await self._socket.write_message(json.dumps({"id": self._number, "method": method, "params": arguments}))
        while True:
            said = json.loads(await asyncio.wait_for(self._socket.read_message(), 60))
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]
            self._heard(said.get("method", ""), said.get("params", {}))

    def _heard(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(said["exceptionDetails"].get("exception", {}).get("description", said)))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value") for one in said["args"]]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not said["request"]["url"].startswith("data:"):
            self.requests.append(said["request"]["url"])

    def open(self, address: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of so many CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url=address)
        for _ in range(200):
            if self.value("document.readyState") == "complete" and self.value("location.href") != "about:blank":
                return
            time.sleep(0.05)
        raise AssertionError(f"{address} does not load")

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def wait(self, expression: str, seconds: float = 20.0) -> Any:
        """What an expression is as soon as it is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = self.value(expression)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}")

    def key(self, name: str) -> None:
        """Press a key: 'Tab', 'Enter'."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}[name]
        text = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **more)

    def picture(self, path: Path, height: int | None = None) -> None:
        """A PNG of the window, `height` CSS pixels of the page where that is given."""
        clip: dict[str, Any] = {}
        if height is not None:
            width = self.value("innerWidth")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}, "captureBeyondViewport": True}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """A page in a Chromium of its own. Skips the test where there is none."""
    websocket = pytest.importorskip("tornado.websocket")
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([CHROMIUM, *OPTIONS, f"--user-data-dir={folder}", "about:blank"], stdout=quiet, stderr=quiet)
        loop = asyncio.new_event_loop()
        try:
            address = _address(Path(folder) / "DevToolsActivePort", loop)
            socket = loop.run_until_complete(_connected(websocket, address))
            yield Page(loop, socket)
            socket.close()
        finally:
            process.terminate()
            process.wait(20)
            loop.close()


def _address(file: Path, loop: asyncio.AbstractEventLoop) -> str:
    """Where the DevTools of its first page listen."""
    for _ in range(600):
        if file.exists() and len(file.read_text().split()) == 2:
            for one in json.loads(loop.run_until_complete(_fetched(f"http://127.0.0.1:{file.read_text().split()[0]}/json/list"))):
                if one["type"] == "page":
                    return str(one["webSocketDebuggerUrl"])
        time.sleep(0.1)
    pytest.skip("Chromium does not start here")


async def _connected(websocket: Any, address: str) -> Any:
    return await websocket.websocket_connect(address, max_message_size=1 << 28)


async def _fetched(address: str) -> bytes:
    from tornado.httpclient import AsyncHTTPClient

    return bytes((await AsyncHTTPClient().fetch(address)).body)
