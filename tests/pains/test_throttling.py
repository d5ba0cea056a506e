"""A store that serves so many requests a second and no more: nobody fails, and nearly all of it is used (pain 51)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import stoker
from stoker import ops
from stoker.storage.meter import Meter
from stoker.storage.open import open_store
from stoker.storage.rate import RateLimits
from stoker.storage.retry import Retry
from stoker.testing import keys_of
from stoker_proto.v1 import control_pb2
from stoker_service.dispatcher.budgets import Budgets
from stoker_service.dispatcher.model import Settings, WorkerId
from support.cluster import Cluster
from support.crowd import Crowd, Store
from support.gated_s3 import Throttle, gated
from support.loading import load
from support.servers import Bucket
from support.shards import samples, tar_bytes

LIMIT = 50.0
CROWDS = {
    "two workers": [8, 8],
    "three workers": [6, 5, 5],
    "uneven": [14, 1, 1],
    "sixteen workers": [1] * 16,
    "many readers": [64, 64, 64],
}


@pytest.mark.parametrize("has_dispatcher", [True, False], ids=["dispatcher", "alone"])
@pytest.mark.parametrize("name", CROWDS)
def test_at_least_four_fifths_of_the_limit_is_used_and_nobody_fails(name: str, has_dispatcher: bool) -> None:
    """Pain 51, on a clock of its own: real limits and budgets, a simulated store of 50 requests a second."""
    for seed in range(3):
        crowd = Crowd(Store(LIMIT, burst=LIMIT), CROWDS[name], seed=seed, has_dispatcher=has_dispatcher)
        crowd.run(30)
        crowd.run(60)
        assert crowd.goodput(60) >= 0.8 * LIMIT, seed
        assert crowd.refused(60) <= (0.06 if has_dispatcher else 0.2), seed
        assert crowd.num_failed == 0, seed


def test_the_fleet_keeps_its_rate_over_a_restart_of_the_dispatcher() -> None:
    """Pain 51: the state of the dispatcher is soft; workers tell what they keep to, and no storm follows."""
    crowd = Crowd(Store(LIMIT, burst=LIMIT), CROWDS["three workers"], seed=1)
    crowd.run(60)
    crowd.start_dispatcher()
    crowd.run(20)
    assert crowd.goodput(20) >= 0.8 * LIMIT
    assert crowd.refused(20) <= 0.1
    assert crowd.num_failed == 0


def test_without_dispatcher_for_long_each_worker_goes_on_by_itself() -> None:
    """Pain 51: what a dispatcher told that is gone is forgotten, and each process finds its rate."""
    crowd = Crowd(Store(LIMIT, burst=LIMIT), CROWDS["three workers"], seed=2)
    crowd.run(40)
    crowd.has_dispatcher = False
    crowd.run(60)
    assert crowd.goodput(40) >= 0.8 * LIMIT
    assert crowd.num_failed == 0


def test_a_store_that_serves_enough_is_not_limited() -> None:
    crowd = Crowd(Store(500.0, burst=500.0), CROWDS["three workers"])
    crowd.run(60)
    assert not crowd.is_limited()
    assert crowd.refused(60) == 0


def test_sixteen_readers_at_a_real_server_that_throttles(s3_bucket: Bucket) -> None:
    """Pain 51: on S3 (moto behind a gate) every read arrives, refusals are counted, few come once it has settled."""
    url = s3_bucket.put("train/x.tar", bytes(range(200)))
    throttle = Throttle(per_s=60.0, burst=20.0)
    workers = [WorkerId(name) for name in ("a", "b")]
    limits = [RateLimits() for _ in workers]
    meters = [Meter() for _ in workers]
    retries: list[Retry] = []
    with gated(s3_bucket.server.endpoint, throttle.refusal) as endpoint, _beating(workers, limits):
        options = {**s3_bucket.storage_options, "endpoint": endpoint}
        stores = [
            open_store(url, options, limits=limit, meter=meter, on_retry=retries.append)
            for limit, meter in zip(limits, meters, strict=True)
        ]
        num_early = 0
        with ThreadPoolExecutor(16) as readers:
            reads = [readers.submit(stores[number % 2].read, url, number % 100, 200) for number in range(500)]
            for number, read in enumerate(reads):
                num_early = throttle.num_refused if number <= 300 else num_early
                assert bytes(read.result(60)) == bytes(range(number % 100, 200))
    assert throttle.num_refused > 0
    assert sum(retry.is_throttled for retry in retries) > 0
    assert sum(meter.stats().throttled for meter in meters) > 0
    assert throttle.num_refused - num_early <= 60, "of the last 200 reads"


def test_a_service_keeps_to_what_the_store_serves(s3_bucket: Bucket, tmp_path: Path) -> None:
    """Pain 51, with real processes: every sample arrives, and the dispatcher's limits reach the workers."""
    s3_bucket.put("train/a.tar", tar_bytes(samples([300], images=False)[0]))
    throttle = Throttle(per_s=60.0, burst=5.0)
    with (
        gated(s3_bucket.server.endpoint, throttle.refusal) as endpoint,
        Cluster(tmp_path / "cluster", 2, worker_options=("--num-threads", "1")) as cluster,
    ):
        options = {"endpoint": endpoint, "region": "us-east-1", "skip_signature": "true"}
        source = stoker.tar(
            f"{s3_bucket.url}/train/a.tar",
            chunk_bytes=4096,
            manifest=str(tmp_path / "index.parquet"),
            storage_options=options,
        )
        pipeline = stoker.Pipeline(source, [ops.Label("cls")], batch_size=10, shuffle=True, lanes=4)
        with load(pipeline, service=cluster.url) as loader:
            assert sorted(keys_of(loader)) == [f"s00-{row:04d}" for row in range(300)]
        folder = f"{s3_bucket.url}/train"

        def are_told(status: control_pb2.StatusResponse) -> bool:
            uses = [use for worker in status.workers for use in worker.beat.prefixes if use.prefix == folder]
            return len(uses) == 2 and all(0 < use.limit <= 200 for use in uses)

        cluster.wait_for("both workers keep to a limit", are_told)
    assert throttle.num_refused > 0


class _beating:  # noqa: N801  # used as a block
    """A dispatcher between the workers, in this process: beats ten times a second."""

    def __init__(self, workers: list[WorkerId], limits: list[RateLimits]) -> None:
        self._workers, self._limits = workers, limits
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        budgets = Budgets(Settings("first", beat_s=0.1), time.monotonic())
        while not self._ended.wait(0.1):
            for worker, limits in zip(self._workers, self._limits, strict=True):
                budgets.beat(worker, limits.report(), time.monotonic())
                budgets.decide(self._workers, time.monotonic())
                limits.set(budgets.limits_for(worker))
