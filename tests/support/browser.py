"""Headless Chromium through chromedriver's WebDriver protocol (W3C WebDriver), with nothing but the standard
library."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ARGUMENTS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1200,900",
]  # fmt: skip
MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]


class Browser:
    """One session. `run` executes JavaScript in the page and returns its value."""

    def __init__(self, address: str, profile: Path) -> None:
        self._address = address
        options = {"args": [*_ARGUMENTS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        self._session = self._send("POST", "/session", wanted)["sessionId"]

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._address + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def _command(self, path: str, body: Any) -> Any:
        return self._send("POST", f"/session/{self._session}{path}", body)

    def open(self, url: str) -> None:
        self._command("/url", {"url": url})

    def run(self, script: str) -> Any:
        return self._command("/execute/sync", {"script": script, "args": []})

    def tool(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._command("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def click(self, selector: str) -> None:
        element = self._command("/element", {"using": "css selector", "value": selector})
        self._command(f"/element/{next(iter(element.values()))}/click", {})

    def close(self) -> None:
        self._send("DELETE", f"/session/{self._session}")


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile below `folder`; driver and browser end with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        opened = Browser(f"http://127.0.0.1:{port}", folder / "profile")
        try:
            yield opened
        finally:
            opened.close()
    finally:
        driver.terminate()
        driver.wait(timeout=30)
