"""What a worker gives to others at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stoker
from stoker import ops
from stoker.engine.retries import RetryTally
from stoker.formats.dataset import Dataset
from stoker.formats.open import open_dataset
from stoker.storage.use import Use
from stoker_proto.v1 import stream_pb2
from stoker_service.worker import range_request
from stoker_service.worker.keeper import Keeper
from stoker_service.worker.producer import Opened
from stoker_service.worker.range_request import SourceText
from support.loading import tar_of

WAIT_S = 20.0
ROW_BYTES = 2 << 20


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> stoker.Pipeline:
    """Four chunks of one sample of 2 MiB."""
    rows = ((f"{row}", {"bin": bytes([row]) * ROW_BYTES}) for row in range(4))
    path: Path = tmp_path_factory.mktemp("keeper") / "0.tar"
    return stoker.Pipeline(stoker.tar(tar_of(path, rows), chunk_bytes=1), [ops.Select("bin")], batch_size=1)


@pytest.fixture(scope="module")
def dataset(pipeline: stoker.Pipeline) -> Dataset:
    return open_dataset(pipeline.source)


def keeper(dataset: Dataset, **limits: int) -> Keeper:
    return Keeper(lambda *_: Opened(dataset, RetryTally()), **limits)


def ticket(pipeline: stoker.Pipeline, dataset: Dataset, *chunks: int, wait_s: float = WAIT_S) -> bytes:
    ranges = [one for chunk in chunks for one in dataset.ranges(chunk)]
    uses = [Use("job", 0.5, 1.5)] * len(ranges)
    source = SourceText.of(pipeline)
    return range_request.ticket(source, dataset.fingerprint, ranges, uses, wait_s=wait_s, with_source=True)


Parts = Iterator[tuple[pa.RecordBatch, bytes]]


def error(parts: Parts) -> str:
    """The text of the error that is all there is."""
    found = list(parts)
    assert all(not len(part) for part, _ in found)
    return stream_pb2.RangesAnswer.FromString(found[-1][1]).error.text


def num_bytes(parts: Parts) -> int:
    return sum(len(part) for part, _ in parts)


def test_one_call_too_many_is_refused_at_once_and_a_place_is_free_again(
    pipeline: stoker.Pipeline, dataset: Dataset
) -> None:
    found = keeper(dataset, max_calls=1)
    first = found.answer(ticket(pipeline, dataset, 0))
    assert len(next(first)[0]) == 0  # its first word comes before anything is read
    assert len(next(first)[0]) > 0
    assert "full: this worker answers 1 calls" in error(found.answer(ticket(pipeline, dataset, 1)))
    first.close()  # type: ignore[attr-defined]  # the caller has hung up
    assert num_bytes(found.answer(ticket(pipeline, dataset, 1))) > ROW_BYTES
    assert found.given_bytes == sum(one.num_bytes for one in dataset.ranges(1))


def test_bytes_wait_for_room(pipeline: stoker.Pipeline, dataset: Dataset) -> None:
    found = keeper(dataset, max_bytes=3 << 20)
    first = found.answer(ticket(pipeline, dataset, 0))
    assert [len(next(first)[0]) > 0 for _ in range(2)] == [False, True]
    assert "full: this worker sends" in error(found.answer(ticket(pipeline, dataset, 1, wait_s=0.05)))
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(num_bytes(found.answer(ticket(pipeline, dataset, 1)))))
    waiting.start()
    num_bytes(first)
    waiting.join(WAIT_S)
    assert answers
    assert answers[0] > ROW_BYTES


def test_more_bytes_than_there_is_room_for_go_alone(pipeline: stoker.Pipeline, dataset: Dataset) -> None:
    assert num_bytes(keeper(dataset, max_bytes=1).answer(ticket(pipeline, dataset, 0, 1))) > 2 * ROW_BYTES


def test_once_closed_it_refuses(pipeline: stoker.Pipeline, dataset: Dataset) -> None:
    found = keeper(dataset)
    found.close()
    assert "this worker stops" in error(found.answer(ticket(pipeline, dataset, 0)))


def test_an_opening_that_takes_too_long_is_an_answer(pipeline: stoker.Pipeline, dataset: Dataset) -> None:
    def never(_pipeline: Any, _fingerprint: str, beat_s: float, is_waited_for: Any) -> Opened:
        pause = threading.Event()
        while is_waited_for("the index is read"):
            pause.wait(min(beat_s, 0.01))
        raise stoker.errors.ClosedError("nobody waits")

    parts = Keeper(never).answer(ticket(pipeline, dataset, 0, wait_s=0.05))
    assert "still being opened here" in error(parts)
