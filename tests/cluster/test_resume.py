"""A state saved with a service goes on anywhere: after a kill, with other ranks, with and without the service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.testing import assert_resumable, keys_of
from support.cluster import Cluster
from support.loading import load
from support.streams import assert_same_stream, batches_on, digests, local_stream, pictures
from support.trainer import Job, Trainer

EPOCH = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), 2) as running:
        yield running


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path)
    yield made
    made.close()


def test_a_killed_trainer_goes_on_from_its_last_state(cluster: Cluster, shards: str, trainer: Trainer) -> None:
    """Pain 20: what a killed trainer had received and not saved is given to its replacement."""
    pipeline = pictures(shards, seed=1).to_json()
    expected = local_stream(pipeline, EPOCH)
    trainer.begin(Job(pipeline, EPOCH, cluster.url, step_s=0.005))
    taken = [trainer.step() for _ in range(5)]
    trainer.kill()
    saved = taken[1]
    assert saved is not None
    trainer.begin(Job(pipeline, EPOCH - 2, cluster.url, state=saved.state))
    found = [step.digest for step in iter(trainer.step, None)]
    assert_same_stream([step.digest for step in taken if step], expected[:5])
    assert_same_stream(found, expected[2:])


def test_a_resume_at_every_position_equals_the_rest(cluster: Cluster, shards: str) -> None:
    """Pain 10: the law of resume holds of a service."""
    pipeline = pictures(shards, batch_size=16)
    assert_resumable(
        lambda rank, size: load(pipeline, rank, size, service=cluster.url), steps=(0, 1, 7, 14, 15), epoch=1
    )


def test_a_state_fits_with_and_without_a_service(cluster: Cluster, shards: str) -> None:
    """DESIGN §1: a state is a position, whoever made the batches before it."""
    pipeline = pictures(shards, seed=3)
    found: list[str] = []
    state: dict[str, Any] | None = None
    for service in (cluster.url, None, cluster.url):
        with load(pipeline, service=service) as loader:
            if state is not None:
                loader.load_state_dict(state)
            found += digests(batches_on(loader, 25))
            state = json.loads(json.dumps(loader.state_dict()))
    assert_same_stream(found, local_stream(pipeline.to_json(), 75))


@pytest.mark.parametrize("before, after", [((1, 4), (2, 4)), ((2, 4), (1, 8)), ((3, 2), (4, 5))])
def test_other_ranks_and_batches_get_the_rest(
    cluster: Cluster, shards: str, before: tuple[int, int], after: tuple[int, int]
) -> None:
    """Pain 11: after a change of ranks and batch size, exactly the samples that are left come, each once."""
    found: list[str] = []
    state: dict[str, Any] | None = None
    for (world_size, batch_size), num_steps in ((before, 7), (after, None)):
        pipeline = pictures(shards, batch_size=batch_size, tail="pad")
        states = []
        for rank in range(world_size):
            with load(pipeline, rank, world_size, service=cluster.url) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                found += keys_of(loader if num_steps is None else batches_on(loader, num_steps))
                states.append(json.dumps(loader.state_dict()))
        assert len(set(states)) == 1
        state = json.loads(states[0])
    assert len(found) == len(set(found)) == 240
