"""S3 servers for tests, and a client whose calls fail where a test injects an error."""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError

from aotforge.publish.stores.s3 import S3Store

SECRET = "aSecretThatMustNeverBePrinted/0123456789"
FAULTS = ("403", "404", "409", "412", "500", "503", "dropped", "lost")
"""What can befall a call: an answer with this status; a connection that breaks before the server has the
request, or after."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running S3 server."""

    url: str
    access: str = "tests"
    secret: str = SECRET

    def client(self, *, attempts: int = 2, **settings: Any) -> Any:
        """A client of its own, without pauses between attempts where the test patches them away."""
        config = Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
            **settings,
        )
        return boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id=self.access, aws_secret_access_key=self.secret,
            region_name="us-east-1", config=config,
        )  # fmt: skip

    def bucket(self) -> str:
        """A new bucket."""
        name = f"b-{uuid.uuid4().hex[:20]}"
        self.client().create_bucket(Bucket=name)
        return name

    def store(self, bucket: str, *, attempts: int = 2, prefix: str = "aot") -> S3Store:
        """A store with a client of its own; never waits."""
        return S3Store(self.client(attempts=attempts), bucket, prefix, sleep=lambda seconds: None)

    def environment(self) -> dict[str, str]:
        """What a user would set."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": self.access,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_server(scratch: Path) -> Iterator[Server]:
    """ministack, from the package index; forgets everything when it ends."""
    program = Path(sys.executable).with_name("ministack")
    port = free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    environment |= {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "SERVICES": "s3",
        "LOG_LEVEL": "WARNING",
        "TMPDIR": str(scratch),
    }
    with (scratch / "ministack.log").open("wb") as log:
        process = subprocess.Popen([program], env=environment, cwd=scratch, stdout=log, stderr=log)
    try:
        _wait(port, process)
        yield Server(url=f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"the S3 server ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the S3 server did not start")


def have_ministack() -> bool:
    """Whether the environment has it."""
    return Path(sys.executable).with_name("ministack").exists() or shutil.which("ministack") is not None


class Trouble:
    """Counts a store's requests, attempts included, and lets `strike` act on each: it may answer, raise, or
    return None to let it pass."""

    def __init__(self, store: S3Store, strike: Callable[[int, Any], Any]) -> None:
        self.calls = 0
        self.names: list[str] = []
        self.starts: list[int] = []
        self._strike = strike
        self._lock = threading.Lock()
        store._client.meta.events.register("before-send.s3", self._before)

    def _before(self, request: Any, event_name: str, **_: Any) -> Any:
        with self._lock:
            self.calls += 1
            number = self.calls
            self.names.append(event_name.rpartition(".")[2])
            self.starts.append(start_of(request))
        return self._strike(number, request)


def strike(store: S3Store, kind: str, first: int, last: int) -> Trouble:
    """Requests number `first` to `last` meet with a fault."""

    def act(number: int, request: Any) -> Any:
        if not first <= number <= last:
            return None
        if kind == "lost":
            store._client._endpoint.http_session.send(request)
        if kind in {"dropped", "lost"}:
            raise ConnectionClosedError(endpoint_url=request.url)
        return failure(int(kind), _CODES[kind])

    return Trouble(store, act)


def start_of(request: Any) -> int:
    """The first byte that a request is for."""
    header = request.headers.get("range", b"bytes=0-")
    return int(bytes(header).removeprefix(b"bytes=").rstrip(b"-"))


def answer(status: int, body: bytes, **headers: str) -> AWSResponse:
    """An answer of no server."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return AWSResponse("http://127.0.0.1", status, named, _Raw(body))


def failure(status: int, code: str) -> AWSResponse:
    """An error of S3."""
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    return answer(status, body, content_type="application/xml")


_CODES = {
    "403": "AccessDenied",
    "404": "NoSuchKey",
    "409": "ConditionalRequestConflict",
    "412": "PreconditionFailed",
    "500": "InternalError",
    "503": "SlowDown",
}


class _Raw(io.BytesIO):
    """A body, as urllib3 has it."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self.read()
