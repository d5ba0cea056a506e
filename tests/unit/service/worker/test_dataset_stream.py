"""Streams of a worker's that run a process for a torch dataset, at the level of messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import default_collate

from stoker.batch.pool import BufferPool
from stoker.compat import wire
from stoker.compat.crew import Job, Task
from stoker.compat.wire import Answer, Kind
from stoker.processes.objects import decode
from stoker.processes.payload import pack
from stoker_proto.v1 import stream_pb2
from stoker_service.client.order_call import Cargo, request_for
from stoker_service.transport.cargo import digest_of
from stoker_service.transport.decode import Assembly
from stoker_service.transport.encode import SLICE_SCHEMA, Encoded, slices
from stoker_service.worker import passing
from support.cluster import until

WAIT_S = 60.0


class Rows:
    """Sample ``i``: a row full of ``i``."""

    def __init__(self, num_values: int = 3, ballast: int = 0) -> None:
        self.num_values = num_values
        self.ballast = np.arange(ballast)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.num_values,), index)


class Waiting(Rows):
    """Waits for a word from outside with sample 1, which may never come."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 1:
            threading.Event().wait(WAIT_S)
        return super().__getitem__(index)


def job(dataset: Any) -> Job:
    return Job(dataset, default_collate, None, False, True, False, 1, "sample", 1)


def cargo(dataset: Any) -> Cargo:
    content = pack(wire.cargo_of(job(dataset)), "loader", ships_modules=True).view()
    return Cargo(digest_of(content), content)


class Orders:
    """One stream, as a client holds it."""

    def __init__(self, hands: Any, **changes: Any) -> None:
        request = request_for("dataset-test", 0, "client", "job")
        for name, value in changes.items():
            setattr(request.process, name, value)
        self.call = hands.open(request)

    def first(self) -> stream_pb2.Message:
        """The worker's first word."""
        return stream_pb2.Message.FromString(self.call.reader.read_chunk().app_metadata.to_pybytes())

    def order(self, **kind: Any) -> None:
        self.call.writer.write_metadata(stream_pb2.Order(**kind).SerializeToString())

    def begin(self, dataset: Any, packed: Cargo, run: int = 1) -> None:
        words = b"".join(wire.begin_message(wire.Begin(run, 0, job(dataset), None, has_cargo=True)))
        self.order(
            begin=stream_pb2.Begin(words=words, run=run, payload=packed.digest, payload_bytes=len(packed.content))
        )

    def fetch(self, batch_index: int, keys: list[int], run: int = 1) -> None:
        words = b"".join(wire.task_message(run, Task(batch_index, keys), ()))
        self.order(fetch=stream_pb2.Fetch(words=words, num_rows=len(keys), run=run, batch_index=batch_index))

    def send(self, content: memoryview) -> None:
        self.call.writer.begin(SLICE_SCHEMA)
        for part in slices(Encoded((pa.py_buffer(content),), len(content)), 1 << 20):
            self.call.writer.write_with_metadata(part, stream_pb2.Order(slice=stream_pb2.Slice()).SerializeToString())

    def message(self) -> tuple[stream_pb2.Message, Any]:
        found: tuple[stream_pb2.Message, Any] = self.call.message()
        return found

    def kind(self) -> str | None:
        found: str | None = self.message()[0].WhichOneof("kind")
        return found

    def answer(self) -> Answer:
        message, part = self.message()
        assert message.WhichOneof("kind") == "batch", message
        assembly = Assembly(message.batch.num_bytes, BufferPool())
        while True:
            if part is not None:
                assembly.add(part)
            if not assembly.num_missing:
                return wire.answer_of(assembly.taken().data)
            message, part = self.message()
            assert message.WhichOneof("kind") == "slice", message

    def values(self) -> list[Any]:
        answer = self.answer()
        assert answer.kind is Kind.MADE
        found: list[Any] = decode(answer.value, None).tolist()
        return found


@pytest.fixture
def begun(start: Any) -> Callable[..., tuple[Any, Orders]]:
    """Starts a worker with a stream whose process has a dataset."""

    def begin(dataset: Any, **options: Any) -> tuple[Any, Orders]:
        hands = start(allow_code=True, **options)
        orders = Orders(hands)
        assert orders.first().WhichOneof("kind") == "beat"
        packed = cargo(dataset)
        orders.begin(dataset, packed)
        assert orders.kind() == "wanted"
        orders.send(packed.content)
        return hands, orders

    return begin


Begun = Callable[..., tuple[Any, Orders]]


def test_it_fetches_what_it_is_asked_for(begun: Begun) -> None:
    hands, orders = begun(Rows())
    orders.fetch(0, [5, 6])
    orders.fetch(1, [7])
    assert orders.values() == [[5, 5, 5], [6, 6, 6]]
    assert orders.values() == [[7, 7, 7]]
    stats = hands.server.stats()
    assert (stats.num_processes, stats.dataset_batches) == (1, 2)
    assert [(one.rows, one.lanes) for one in hands.server.processes.sums()] == [(3, (0,))]
    assert stats.bytes_sent > 0
    orders.call.close()
    until("its process has ended", lambda: hands.server.stats().num_processes == 0)


def test_a_payload_is_sent_once(begun: Begun) -> None:
    """Pain 29: the second stream, the next iteration and the next loader find the dataset at the worker."""
    dataset = Rows(ballast=1 << 20)
    hands, first = begun(dataset)
    first.fetch(0, [1])
    assert first.values() == [[1, 1, 1]]
    packed = cargo(dataset)
    second = Orders(hands)
    assert second.first().WhichOneof("kind") == "beat"
    second.begin(dataset, packed)
    second.fetch(0, [2], run=1)
    assert second.values() == [[2, 2, 2]]
    first.begin(dataset, packed, run=2)
    first.fetch(0, [3], run=2)
    assert first.values() == [[3, 3, 3]]
    assert hands.server.stats().payload_bytes == len(packed.content)
    for orders in (first, second):
        orders.call.close()
    until("its processes have ended", lambda: hands.server.stats().num_processes == 0)
    third = Orders(hands)
    assert third.first().WhichOneof("kind") == "beat"
    third.begin(dataset, packed)
    third.fetch(0, [4])
    assert third.values() == [[4, 4, 4]]


def test_a_stream_that_is_cut_in_a_payload_leaves_it_to_the_next_one(start: Any) -> None:
    dataset = Rows(ballast=1 << 20)
    packed = cargo(dataset)
    hands = start(allow_code=True)
    first, second = Orders(hands), Orders(hands)
    first.begin(dataset, packed)
    assert first.first().WhichOneof("kind") == "beat"
    assert first.kind() == "wanted"
    assert second.first().WhichOneof("kind") == "beat"
    second.begin(dataset, packed)
    first.call.writer.begin(SLICE_SCHEMA)
    first.call.close()
    assert second.kind() == "wanted"
    second.send(packed.content)
    second.fetch(0, [2])
    assert second.values() == [[2, 2, 2]]


def test_other_bytes_than_were_told_are_refused(start: Any) -> None:
    hands = start(allow_code=True)
    orders = Orders(hands)
    packed = cargo(Rows())
    orders.begin(Rows(), Cargo("0" * 32, packed.content))
    assert orders.kind() == "wanted"
    orders.send(packed.content)
    message, _ = orders.message()
    assert message.error.type == "SpecError"
    assert packed.digest in message.error.text
    assert hands.server.stats().payload_bytes == 0


def test_large_batches_come_in_slices(begun: Begun) -> None:
    _, orders = begun(Rows(num_values=1 << 20))
    for batch_index in range(3):  # the process uses its memory again
        orders.fetch(batch_index, [batch_index] * 2)
        answer = orders.answer()
        found = decode(answer.value, None)
        assert found.shape == (2, 1 << 20)
        assert bool((found == batch_index).all())


def test_an_iteration_gives_up_what_was_asked_for_before(begun: Begun) -> None:
    dataset = Rows()
    _, orders = begun(dataset)
    for batch_index in range(20):
        orders.fetch(batch_index, [batch_index])
    orders.begin(dataset, cargo(dataset), run=2)
    orders.fetch(0, [100], run=2)
    while (answer := orders.answer()).run == 1:
        pass
    assert answer.batch_index == 0
    assert decode(answer.value, None).tolist() == [[100, 100, 100]]


@pytest.mark.parametrize(
    "options, changes, text",
    [
        ({}, {}, "--allow-code"),
        ({"allow_code": True}, {"python": "3.1"}, "comes from Python 3.1 and this worker runs Python"),
    ],
)
def test_what_is_not_run_here(start: Any, options: Any, changes: Any, text: str) -> None:
    orders = Orders(start(**options), **changes)
    message = orders.first()
    assert message.error.type == "SpecError"
    assert text in message.error.text


def test_only_so_many_processes(start: Any) -> None:
    hands = start(allow_code=True, max_processes=1)
    first = Orders(hands)
    assert first.first().WhichOneof("kind") == "beat"
    assert Orders(hands).first().full.num_processes == 1
    first.call.close()
    until("there is room again", lambda: Orders(hands).first().HasField("beat"))


def test_a_process_that_dies_is_told(begun: Begun) -> None:
    class Ending(Rows):
        def __getitem__(self, index: int) -> torch.Tensor:
            import os

            os._exit(9)

    hands, orders = begun(Ending())
    orders.fetch(0, [1])
    message, _ = orders.message()
    assert message.died.pid > 0
    assert "code 9" in message.died.text
    orders.call.end()
    until("its place is free", lambda: hands.server.stats().num_processes == 0)


def test_beats_tell_what_the_process_does(begun: Begun) -> None:
    _, orders = begun(Waiting())
    orders.fetch(0, [1])

    def told() -> bool:
        chunk = orders.call.reader.read_chunk()
        beat = stream_pb2.Message.FromString(chunk.app_metadata.to_pybytes()).beat
        return beat.waits_for == "dataset" and "__getitem__" in beat.text and beat.cpu_s > 0

    until("where its code is", told)


def test_a_draining_worker_finishes_what_is_in_hand(begun: Begun) -> None:
    hands, orders = begun(Rows())
    orders.fetch(0, [1])
    assert orders.values() == [[1, 1, 1]]
    hands.server.drain()
    assert orders.kind() == "leaving"
    orders.call.end()
    assert hands.server.wait() == 0


def test_a_worker_that_stops_waits_for_no_batch(begun: Begun) -> None:
    hands, orders = begun(Waiting())
    orders.fetch(0, [1])
    hands.server.stop()
    assert orders.kind() == "leaving"


def test_a_client_that_says_nothing_for_long_loses_its_process(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    hands, orders = begun(Rows())
    orders.fetch(0, [1])
    assert orders.values() == [[1, 1, 1]]
    monkeypatch.setattr(passing, "SILENT_S", 0.1)
    assert orders.kind() == "leaving"
    until("its place is free", lambda: hands.server.stats().num_processes == 0)


def test_an_order_that_is_none_is_refused(start: Any) -> None:
    orders = Orders(start(allow_code=True))
    assert orders.first().WhichOneof("kind") == "beat"
    orders.call.writer.write_metadata(b"\xff\xff")
    message, _ = orders.message()
    assert "expected an Order" in message.error.text
