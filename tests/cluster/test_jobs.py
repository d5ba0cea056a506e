"""Several jobs at once share the workers, their work where it is the same, and none disturbs another."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import stoker
from support.cluster import Cluster
from support.loading import load
from support.streams import assert_same_stream, batches_on, digest, digests, local_stream, pictures

EPOCH = 60
ROWS = 240


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), 2) as running:
        yield running


@pytest.mark.parametrize("names", [("one", "other"), ("one", "one")])
def test_two_jobs_with_one_pipeline_share_its_batches(cluster: Cluster, shards: str, names: tuple[str, str]) -> None:
    """Issue 3, pain 34 (CPU): what two jobs on one pipeline consume side by side is made about once."""
    pipeline = pictures(shards, seed=100 + (names[0] == names[1]))
    expected = local_stream(pipeline.to_json(), EPOCH)
    with (
        load(pipeline, service=cluster.url, job=names[0], prefetch_bytes=64 << 10) as one,
        load(pipeline, service=cluster.url, job=names[1], prefetch_bytes=64 << 10) as other,
    ):
        pairs = [(digest(left), digest(right)) for left, right in zip(one, other, strict=True)]
        cluster.wait_for("all rows are told", lambda _: cluster.rows_made(pipeline) >= ROWS)
        made = cluster.rows_made(pipeline)
    assert_same_stream([left for left, _ in pairs], expected)
    assert_same_stream([right for _, right in pairs], expected)
    # Both prefetch from the next epoch as well; twice the work would be twice all of it.
    assert made < 2 * ROWS


def test_jobs_with_other_pipelines_get_their_own(cluster: Cluster, shards: str) -> None:
    """Issue 3: several jobs at once, each with its own batches, seeds, ops and ends."""
    jobs = [pictures(shards, seed=seed, batch_size=size) for seed, size in ((1, 3), (2, 4), (1, 5), (3, 8))]

    def consume(pipeline: stoker.Pipeline) -> list[str]:
        with load(pipeline, service=cluster.url, job=f"job-{pipeline.batch_size}") as loader:
            return digests(batches_on(loader, 90))

    with ThreadPoolExecutor(len(jobs)) as pool:
        for pipeline, found in zip(jobs, pool.map(consume, jobs), strict=True):
            assert_same_stream(found, local_stream(pipeline.to_json(), 90))


def test_an_evaluation_beside_the_training(cluster: Cluster, shards: str) -> None:
    """Pain 9: evaluating every 20 steps, and going into the next epoch, starts nothing cold."""
    training, evaluation = pictures(shards, seed=7), pictures(shards, seed=8, shuffle=False, batch_size=24)
    first: list[float] = []
    switches: list[float] = []
    trained: list[str] = []
    evaluated: list[str] = []
    with (
        load(training, service=cluster.url) as trainer,
        load(evaluation, service=cluster.url, job="evaluation") as evaluator,
    ):
        steps = batches_on(trainer, 180)
        for round_index in range(9):
            for stream, found, count in ((steps, trained, 20), (iter(evaluator), evaluated, 10)):
                waits = []
                for _ in range(count):
                    begun_s = time.monotonic()
                    found.append(digest(next(stream)))
                    waits.append(time.monotonic() - begun_s)
                (switches if round_index else first).append(waits[0])
    assert_same_stream(trained, local_stream(training.to_json(), 180))
    assert_same_stream(evaluated, local_stream(evaluation.to_json(), 90))
    # The trainer comes back to what was prefetched: no wait is like the first, when everything was cold.
    assert statistics.median(switches) < min(first) / 2, (first, switches)


def test_the_next_epoch_is_made_while_this_one_ends(cluster: Cluster, shards: str) -> None:
    """Pains 9 and 29: before the last batch of an epoch is taken, batches of the next one are made."""
    pipeline = pictures(shards, seed=21)
    with load(pipeline, service=cluster.url) as loader:
        batches = iter(loader)
        for _ in range(EPOCH - 1):
            next(batches)
        cluster.wait_for("more than an epoch is made", lambda _: cluster.rows_made(pipeline) > ROWS)
        next(batches)


def test_a_client_that_is_gone_is_forgotten(cluster: Cluster, shards: str) -> None:
    """Issue 3: a job ends with its client."""
    pipeline = pictures(shards, seed=31)
    with load(pipeline, service=cluster.url) as loader:
        next(iter(loader))
        cluster.wait_for(
            "the job is there", lambda status: any(job.job.pipeline == pipeline.fingerprint for job in status.jobs)
        )
    cluster.wait_for(
        "it has no client",
        lambda status: not any(job.clients for job in status.jobs if job.job.pipeline == pipeline.fingerprint),
    )
