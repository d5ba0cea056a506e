"""A session with the real dispatcher and real workers, all in this process: the same batches as local mode."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import stoker
from stoker.engine.feed import Deal
from stoker.engine.local import LocalSupply
from stoker.errors import NotFoundError, SpecError
from stoker.ranks import Rank
from stoker.supply import Supply, SupplyOptions
from stoker_service.client.session import Session, open_session
from stoker_service.dispatcher.server import DispatcherServer
from stoker_service.options import DispatcherOptions, WorkerOptions
from stoker_service.worker.server import WorkerServer
from support.fake_service import until
from support.streams import make_pictures, pictures

OPTIONS = SupplyOptions(1 << 20, 30.0, True, False, "job")
BEAT_S = 0.5


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def dispatcher(stack: ExitStack) -> DispatcherServer:
    server = DispatcherServer(DispatcherOptions(port=0, beat_s=BEAT_S))
    server.start()
    stack.callback(server.stop)
    return server


@pytest.fixture
def add_worker(stack: ExitStack, dispatcher: DispatcherServer) -> Callable[..., WorkerServer]:
    def add(**options: object) -> WorkerServer:
        settings = {"dispatcher": dispatcher.address, "port": 0, "num_threads": 1, **options}
        worker = WorkerServer(WorkerOptions(**settings))  # type: ignore[arg-type]  # the tests name them
        worker.start()
        stack.callback(worker.stop)
        return worker

    return add


AddWorker = Callable[..., WorkerServer]


def batches(supply: Supply, deal: Deal, count: int) -> list[pa.RecordBatch]:
    found = []
    position = deal.start(0)
    for _ in range(count):
        position = deal.after(position)
        delivery = supply.next(position)
        position = deal.taken(position, delivery.batch_index)
        found.append(delivery.batch)
    return found


def local(pipeline: stoker.Pipeline, rank: Rank, count: int) -> list[pa.RecordBatch]:
    supply = LocalSupply(pipeline, rank, OPTIONS, num_threads=1, read_bytes=None)
    try:
        return batches(supply, Deal(pipeline, supply.order.num_samples, rank), count)
    finally:
        supply.close()


def deal_of(session: Session) -> Deal:
    return session._deal


@pytest.mark.parametrize("arena", [True, False])
def test_the_batches_are_those_of_local_mode(
    dispatcher: DispatcherServer, add_worker: AddWorker, stack: ExitStack, tmp_path: Path, arena: bool
) -> None:
    pipeline = pictures(make_pictures(tmp_path))
    add_worker(arena=arena)
    add_worker(arena=arena)
    for rank in (Rank(0, 1), Rank(1, 2)):
        session = open_session(dispatcher.address, pipeline, rank, OPTIONS)
        stack.callback(session.close)
        assert batches(session, deal_of(session), 70) == local(pipeline, rank, 70)
        assert bool(session.stats()["arena_batches"]) is arena
        session.close()


def test_workers_come_and_go_and_the_batches_stay(
    dispatcher: DispatcherServer, add_worker: AddWorker, stack: ExitStack, tmp_path: Path
) -> None:
    pipeline = pictures(make_pictures(tmp_path))
    first = add_worker()
    session = open_session(dispatcher.address, pipeline, Rank(0, 1), OPTIONS)
    stack.callback(session.close)
    expected = iter(local(pipeline, Rank(0, 1), 240))
    deal = deal_of(session)
    position = deal.start(0)

    def take(count: int) -> None:
        nonlocal position
        for _ in range(count):
            position = deal.after(position)
            delivery = session.next(position)
            assert delivery.batch == next(expected)
            position = deal.taken(position, delivery.batch_index)

    take(30)
    second = add_worker()
    until(lambda: len(session.stats()["workers"]) == 2)
    take(60)
    first.drain()
    until(lambda: session.stats()["workers"] == [second.worker_id])
    take(60)
    third = add_worker()
    until(lambda: len(session.stats()["workers"]) == 2)
    stopping = threading.Thread(target=second.stop)
    stopping.start()
    take(90)
    stopping.join()
    until(lambda: session.stats()["workers"] == [third.worker_id])


def test_data_that_are_not_there(dispatcher: DispatcherServer, add_worker: AddWorker, tmp_path: Path) -> None:
    add_worker()
    with pytest.raises(NotFoundError, match="nowhere"):
        open_session(dispatcher.address, pictures(f"{tmp_path}/nowhere-0001.tar"), Rank(0, 1), OPTIONS)


def test_functions_need_a_worker_that_allows_them(
    dispatcher: DispatcherServer, add_worker: AddWorker, stack: ExitStack, tmp_path: Path
) -> None:
    marked = stoker.ops.Map(lambda sample: {**sample, "mark": 7})
    pipeline = pictures(make_pictures(tmp_path), marked)
    add_worker()
    with pytest.raises((SpecError, stoker.errors.StallError), match="allow-code"):
        open_session(dispatcher.address, pipeline, Rank(0, 1), SupplyOptions(1 << 20, 1.5, True, False, "job"))
    add_worker(allow_code=True)
    session = open_session(dispatcher.address, pipeline, Rank(0, 1), OPTIONS)
    stack.callback(session.close)
    assert batches(session, deal_of(session), 5) == local(pipeline, Rank(0, 1), 5)
