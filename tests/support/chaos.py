"""Buckets behind a server that misbehaves: the chaos server in front of moto (s3://) and fake-gcs-server (gs://).

The fixtures ``s3_cloud`` and ``gcs_cloud`` give a fresh bucket each, and ``cloud`` runs a test on both. All is well
until the test says ``cloud.behave("gcs,seed=3")``. Objects are put past the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from support.servers import Bucket

if TYPE_CHECKING:
    from stoker_bench.chaos.counts import Counts
    from stoker_bench.chaos.running import ChaosServer


@dataclass(frozen=True, slots=True)
class CloudBucket:
    """A bucket as it is seen through the chaos server; ``url`` is ``s3://name`` or ``gs://name``."""

    url: str
    storage_options: Mapping[str, str]
    server: ChaosServer = field(repr=False)
    bucket: Bucket = field(repr=False)

    def put(self, name: str, payload: bytes) -> str:
        """Store an object and return its URL."""
        return self.bucket.put(name, payload)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        """Store objects over one connection."""
        self.bucket.put_many(objects)

    def behave(self, profile: str) -> None:
        """Behave like this from now on, counted anew."""
        self.server.counts().reset()
        self.server.behave(profile)

    def counts(self) -> Counts:
        """What the server was asked for, once nothing is in flight."""
        return self.server.counts()

    def options(self, **more: str) -> dict[str, str]:
        """``storage_options``, with more of them."""
        return {**self.storage_options, **more}


@contextlib.contextmanager
def in_front_of(bucket: Bucket) -> Iterator[CloudBucket]:
    """A chaos server before the server that a bucket lies on."""
    from stoker_bench.chaos.running import run_chaos  # aiohttp, for those tests that need it

    with run_chaos(bucket.server.endpoint) as server:
        name = "endpoint" if bucket.server.scheme == "s3" else "base_url"
        yield CloudBucket(bucket.url, {**bucket.storage_options, name: server.endpoint}, server, bucket)


@pytest.fixture
def s3_cloud(s3_bucket: Bucket) -> Iterator[CloudBucket]:
    with in_front_of(s3_bucket) as cloud:
        yield cloud


@pytest.fixture
def gcs_cloud(gcs_bucket: Bucket) -> Iterator[CloudBucket]:
    with in_front_of(gcs_bucket) as cloud:
        yield cloud


@pytest.fixture(params=["s3", "gcs"])
def cloud(request: pytest.FixtureRequest) -> CloudBucket:
    found: CloudBucket = request.getfixturevalue(f"{request.param}_cloud")
    return found
