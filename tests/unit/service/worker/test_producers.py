"""Producers: shared, bounded together, kept a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.batch.pool import BufferPool
from stoker.engine.decoders import DecodePool
from stoker.engine.killers import Killer
from stoker.errors import ClosedError, StokerError
from stoker.plan.lanes import Lanes
from stoker.plan.ranges import Ranges
from stoker_proto.v1 import stream_pb2
from stoker_service.transport import code
from stoker_service.worker.datasets import Datasets
from stoker_service.worker.producer import Plan, Producer, Tools
from stoker_service.worker.producers import MAX_IDLE, Producers
from support.crashes import dying_of, numbers
from support.loading import numbered
from support.streams import pictures

WAIT_S = 20.0
MEMORY = 8 << 20


@pytest.fixture
def allow_code() -> bool:
    return False


@pytest.fixture
def producers(allow_code: bool) -> Iterator[Producers]:
    decode = DecodePool(2)
    datasets = Datasets()
    made = Producers(
        Tools(BufferPool(), decode, None),
        datasets,
        memory_bytes=MEMORY,
        read_bytes=None,
        allow_code=allow_code,
        linger_s=0.05,
    )
    yield made
    deadline_s = time.monotonic() + WAIT_S
    datasets.close()
    made.close(deadline_s)
    decode.close(deadline_s)


def acquired(producers: Producers, pipeline: stoker.Pipeline) -> Producer:
    message = code.pack(pipeline)
    found = producers.pipeline(message)
    return producers.acquire(message, found, producers.opened(found, "", WAIT_S, lambda _: True))


def eventually(is_so: Any) -> None:
    deadline_s = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < deadline_s, "it is not so within the deadline"
        pause.wait(0.005)


def all_of(producer: Producer, pipeline: stoker.Pipeline, num_samples: int) -> list[int]:
    num_batches = -(-num_samples // pipeline.batch_size)
    plan = Plan(0, Lanes(Ranges(((0, num_samples),)), pipeline.batch_size, 1), "short")
    number = producer.attach(plan, range(num_batches), 0)
    producer.ask(number, num_batches)
    found = []
    for _ in range(num_batches):
        taken = producer.take(number, WAIT_S)
        assert taken is not None
        found.append(taken[1].batch_index)
        producer.let_go(taken[0])
    producer.detach(number)
    return found


def test_one_pipeline_has_one_producer(producers: Producers, pipeline: stoker.Pipeline) -> None:
    one, other = acquired(producers, pipeline), acquired(producers, pipeline)
    assert one is other


def times(factor: int) -> Any:
    """A function that differs from others of its kind by a global of its module only."""
    variables: dict[str, Any] = {"FACTOR": factor, "__name__": "__main__"}
    exec("def apply(sample):\n    sample['index'] *= FACTOR\n    return sample", variables)
    return variables["apply"]


@pytest.mark.parametrize("allow_code", [True])
def test_pipelines_that_differ_in_their_code_only_are_two(producers: Producers, tmp_path: Path) -> None:
    source = stoker.tar(numbered(tmp_path / "a.tar", 50))
    twice, thrice = (
        stoker.Pipeline(source, [stoker.ops.Map(times(factor))], batch_size=8, lanes=1) for factor in (2, 3)
    )
    assert twice.fingerprint == thrice.fingerprint
    assert acquired(producers, twice) is acquired(producers, twice)
    assert acquired(producers, twice) is not acquired(producers, thrice)


def test_a_batch_whose_stream_is_gone_is_not_made(
    producers: Producers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chunks come when nobody wants it any more: they go as they came."""
    pipeline = stoker.Pipeline(stoker.tar(numbered(tmp_path / "a.tar", 50)), [], batch_size=8, lanes=1)
    producer = acquired(producers, pipeline)
    plan = Plan(0, Lanes(Ranges(((0, 50),)), 8, 1), "short")
    may_come, on_ready = threading.Event(), producer.on_ready

    def late(ticket: Any) -> None:
        assert may_come.wait(WAIT_S)
        on_ready(ticket)

    monkeypatch.setattr(producer, "on_ready", late)
    number = producer.attach(plan, range(7), 0)
    producer.ask(number, 7)
    eventually(lambda: producer._tickets)
    producer.detach(number)
    may_come.set()
    eventually(lambda: not producer._tickets)
    assert (producer.stats().batches, producer._keys) == (0, {})
    eventually(lambda: producer._maker.held_bytes == 0)
    assert all_of(producer, pipeline, 50) == list(range(7))


def test_memory_is_shared_by_those_in_use(producers: Producers, shards: str) -> None:
    one = acquired(producers, pictures(shards, seed=1))
    assert one._window.memory_bytes == MEMORY
    two = acquired(producers, pictures(shards, seed=2))
    assert (one._window.memory_bytes, two._window.memory_bytes) == (MEMORY // 2, MEMORY // 2)
    producers.release(one)
    assert two._window.memory_bytes == MEMORY


def test_one_that_nobody_uses_is_closed_after_a_while_and_its_sums_stay(producers: Producers, tmp_path: Path) -> None:
    pipeline = stoker.Pipeline(stoker.tar(numbered(tmp_path / "a.tar", 50)), [], batch_size=8, lanes=1)
    producer = acquired(producers, pipeline)
    assert all_of(producer, pipeline, 50) == list(range(7))
    producers.release(producer)
    eventually(lambda: producer.failure is not None)
    (stats,) = producers.stats()
    assert (stats.pipeline, stats.rows, stats.batches, stats.lanes) == (pipeline.fingerprint, 50, 7, ())
    again = acquired(producers, pipeline)
    assert again is not producer
    assert all_of(again, pipeline, 50) == list(range(7))
    (stats,) = producers.stats()
    assert stats.rows == 100


def test_few_are_kept_that_nobody_uses(producers: Producers, shards: str) -> None:
    producers._linger_s = 1000.0
    made = [acquired(producers, pictures(shards, seed=seed)) for seed in range(MAX_IDLE + 2)]
    for producer in made:
        producers.release(producer)
    eventually(lambda: sum(producer.failure is not None for producer in made) == 2)
    assert [producer.failure is not None for producer in made[:2]] == [True, True]


def test_one_that_crashed_tells_its_streams_and_is_replaced(producers: Producers, pipeline: stoker.Pipeline) -> None:
    producer = acquired(producers, pipeline)
    plan = Plan(0, Lanes(Ranges(((0, 240),)), 4, 3), "short")
    number = producer.attach(plan, range(0, 60, 3), 0)
    producer.on_crash(RuntimeError("a fault of ours"))
    with pytest.raises(StokerError, match="a fault of ours"):
        producer.take(number, WAIT_S)
    assert acquired(producers, pipeline) is not producer


def test_a_data_set_is_opened_once_for_all(producers: Producers, shards: str) -> None:
    one = producers.opening(producers.pipeline(code.pack(pictures(shards, seed=1))))
    other = producers.opening(producers.pipeline(code.pack(pictures(shards, seed=2))))
    assert one is other
    assert producers.opening(producers.pipeline(code.pack(pictures(shards, shuffle="full")))) is not one


def test_a_data_set_that_could_not_be_opened_is_tried_again(producers: Producers, tmp_path: Path) -> None:
    pipeline = stoker.Pipeline(stoker.tar(f"{tmp_path}/a.tar"), [], batch_size=8, lanes=1)
    first = producers.opening(pipeline)
    assert first.wait(WAIT_S)
    assert first.result.exception() is not None
    numbered(tmp_path / "a.tar", 50)
    assert producers.opened(pipeline, "", WAIT_S, lambda _: True).dataset.chunks.num_samples == 50


def test_after_the_end_there_is_none(producers: Producers, pipeline: stoker.Pipeline) -> None:
    producer = acquired(producers, pipeline)
    producers.close(time.monotonic() + WAIT_S)
    with pytest.raises(ClosedError):
        producer.attach(Plan(0, Lanes(Ranges(((0, 240),)), 4, 3), "short"), range(3), 0)
    with pytest.raises(ClosedError):
        acquired(producers, pipeline)


def test_a_pipeline_is_read_once(producers: Producers, pipeline: stoker.Pipeline) -> None:
    message = code.pack(pipeline)
    copy = stream_pb2.Pipeline.FromString(message.SerializeToString())
    assert producers.pipeline(message) is producers.pipeline(copy)


@pytest.mark.parametrize("allow_code", [True])
def test_batches_are_made_with_care_if_any_stream_wants_it(producers: Producers, tmp_path: Path) -> None:
    """Samples that end their process are told with the batch, and known to later streams."""
    num_samples = 12
    shard = numbered(tmp_path / "a.tar", num_samples)
    pipeline = numbers(shard, dying_of({5}), batch_size=4, shuffle=False, on_error="replace", lanes=1)
    plan = Plan(0, Lanes(Ranges(((0, num_samples),)), 4, 1), "short")
    producer = acquired(producers, pipeline)
    other, careful = producer.attach(plan, range(3), 0), producer.attach(plan, range(3), 0, range(2))
    for number in (careful, other):
        producer.ask(number, 3)
    for number in (careful, other):
        for index in range(3):
            taken = producer.take(number, WAIT_S)
            assert taken is not None
            key, made = taken
            assert made.failure is None
            assert [killer.sample for killer in made.killers] == ([5] if index == 1 else [])
            assert [str(error.reason) for error in made.bad] == [killer.reason for killer in made.killers]
            producer.let_go(key)
        producer.detach(number)
    assert all_of(producer, pipeline, num_samples) == [0, 1, 2]


@pytest.mark.parametrize("allow_code", [True])
def test_what_a_client_tells_to_kill_is_bad_without_a_look(producers: Producers, tmp_path: Path) -> None:
    pipeline = numbers(numbered(tmp_path / "a.tar", 4), dying_of({1}), shuffle=False, on_error="replace", lanes=1)
    producer = acquired(producers, pipeline)
    producer.learn([Killer(1, "it was killed")])
    number = producer.attach(Plan(0, Lanes(Ranges(((0, 4),)), 4, 1), "short"), range(1), 0)
    producer.ask(number, 1)
    taken = producer.take(number, WAIT_S)
    assert taken is not None
    assert [error.reason for error in taken[1].bad] == ["it was killed"]
    producer.let_go(taken[0])
    producer.detach(number)
