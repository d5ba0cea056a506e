"""Object stores on loopback, as processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker_bench.service_processes import Process

BUCKET = "s3://bench"


@dataclass(frozen=True, slots=True)
class Served:
    """A folder as a bucket; ``options`` are the storage options that find it."""

    endpoint: str
    name: str

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "skip_signature": "true",
            "virtual_hosted_style_request": "false",
        }


@dataclass(frozen=True, slots=True)
class Chaos(Served):
    """The server of :mod:`stoker_bench.chaos`, which counts."""

    def behave(self, profile: str) -> None:
        """From now on as this profile."""
        self._call("PUT", "profile", profile.encode())

    def counts(self) -> dict[str, Any]:
        """What was asked for since the start or the last :meth:`reset`."""
        found: dict[str, Any] = json.loads(self._call("GET", "counts"))
        return found

    def reset(self) -> None:
        """Count from zero."""
        self._call("DELETE", "counts")

    def _call(self, method: str, name: str, body: bytes | None = None) -> bytes:
        asked = urllib.request.Request(f"{self.endpoint}/-/{name}", data=body, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            found: bytes = answer.read()
        return found


@contextmanager
def chaos(folder: Path, profile: str) -> Iterator[Chaos]:
    """Serve a folder with the faults of a profile, until the end of the block."""
    process = Process("stoker_bench.chaos", [str(folder), "--profile", profile])
    try:
        yield Chaos(process.first_line().split()[-1], f"chaos server, {profile}")
    finally:
        process.close()


@contextmanager
def fastest(folder: Path) -> Iterator[Served]:
    """Serve a folder by nginx where it is installed (or ``STOKER_NGINX`` names it), else by the chaos server."""
    nginx = os.environ.get("STOKER_NGINX") or shutil.which("nginx")
    if nginx is None:
        with chaos(folder, "none") as served:
            yield served
        return
    from stoker_bench.storage.nginx import run_nginx

    with tempfile.TemporaryDirectory() as scratch, run_nginx(nginx, folder, Path(scratch)) as endpoint:
        yield Served(endpoint, "nginx")
