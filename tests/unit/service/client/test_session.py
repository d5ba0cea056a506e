"""A session against real servers that do what the test tells them."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import (
    ClosedError,
    NotFoundError,
    SampleError,
    SampleOrigin,
    ServiceError,
    SpecError,
    StallError,
    StokerError,
)
from stoker.plan.resume import Position
from stoker.ranks import Rank
from stoker.supply import Delivery, SupplyOptions
from stoker_proto.v1 import stream_pb2
from stoker_service.client.session import Session, open_session
from stoker_service.limits import MAX_AHEAD
from stoker_service.transport.errors import to_wire
from support.fake_service import (
    Break,
    Deed,
    End,
    Fail,
    FakeDispatcher,
    FakeWorker,
    Hold,
    Leave,
    Say,
    Silence,
    content,
    until,
)
from support.proxy import Cut, run_proxies

NUM_LANES = 4
ALONE = Rank(0, 1)
BATCH = 4


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def dispatcher(stack: ExitStack) -> FakeDispatcher:
    found = FakeDispatcher()
    stack.callback(found.stop)
    return found


@pytest.fixture
def worker_at(stack: ExitStack) -> Callable[..., FakeWorker]:
    def make(*arguments: Any, **options: Any) -> FakeWorker:
        worker = FakeWorker(*arguments, **options)
        stack.callback(worker.close)
        return worker

    return make


@pytest.fixture
def session_of(stack: ExitStack, dispatcher: FakeDispatcher) -> Callable[..., Session]:
    def make(rank: Rank = ALONE, **options: Any) -> Session:
        settings = {"prefetch_bytes": 1 << 20, "timeout_s": 20.0, "in_order": True, "pin_memory": False, "job": "j"}
        session = open_session(dispatcher.url, pipeline(), rank, SupplyOptions(**{**settings, **options}))
        stack.callback(session.close)
        return session

    return make


def pipeline(**settings: Any) -> stoker.Pipeline:
    return stoker.Pipeline(
        stoker.tar("/nowhere/shard-*.tar"), [ops.Label("cls")], **{"batch_size": BATCH, "lanes": NUM_LANES, **settings}
    )


class Trainer:
    """Takes batches as a loader does."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.position: Position = session._deal.start(0)

    def take(self, count: int) -> list[tuple[int, int]]:
        return [self.one() for _ in range(count)]

    def one(self) -> tuple[int, int]:
        delivery = self.delivery()
        place = (delivery.epoch, delivery.batch_index)
        expected = content(*place, num_bytes=delivery.batch.column("pixels").type.list_size)
        assert delivery.batch.equals(expected), f"the batch at {place} is not what the worker made"
        return place

    def delivery(self) -> Delivery:
        deal = self.session._deal
        self.position = deal.after(self.position)
        delivery = self.session.next(self.position)
        self.position = deal.taken(self.position, delivery.batch_index)
        return delivery


def epoch(number: int, start: int = 0, stop: int = 60, step: int = 1) -> list[tuple[int, int]]:
    return [(number, index) for index in range(start, stop, step)]


def once(*deeds: tuple[int, Deed]) -> Callable[[stream_pb2.StreamRequest, int], Deed | None]:
    """A script that does each deed at its batch of the first epoch, the first time only."""
    left = dict(deeds)
    return lambda request, index: left.pop(index, None) if request.epoch == 0 else None


Session_ = Callable[..., Session]
Worker_ = Callable[..., FakeWorker]


# -- streaming ---------------------------------------------------------------------------------------------------------


def test_two_epochs_in_order_from_two_workers(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    one, two = worker_at("one"), worker_at("two")
    dispatcher.assign(one, two)
    session = session_of()
    assert Trainer(session).take(120) == epoch(0) + epoch(1)
    assert {record.request.tail for record in one.streams + two.streams} == {"short"}
    stats = session.stats()
    assert (stats["batches"], stats["samples"], stats["reconnects"], stats["moves"]) == (120, 120, 0, 0)
    assert stats["socket_batches"] >= 120
    assert stats["workers"] == ["one", "two"]


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_each_rank_gets_its_own(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_, world_size: int
) -> None:
    dispatcher.assign(worker_at())
    for rank in range(world_size):
        session = session_of(Rank(rank, world_size))
        assert Trainer(session).take(60 // world_size) == epoch(0, rank, 60, world_size)
        session.close()


def test_large_batches_come_in_slices_within_the_budget(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    worker = worker_at(num_bytes=3_000_000)
    dispatcher.assign(worker)
    trainer = Trainer(session_of(prefetch_bytes=7_000_000))
    assert trainer.take(20) == epoch(0, stop=20)
    assert max(record.most_credits for record in worker.streams) <= 2


def test_small_batches_are_asked_for_several_at_a_time(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    worker = worker_at(num_samples=BATCH * 1000)
    dispatcher.assign(worker)
    assert Trainer(session_of()).take(1000) == epoch(0, stop=1000)
    assert 4 < max(record.most_credits for record in worker.streams) <= 16


def test_batches_of_the_arena_are_copied_and_given_back(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    worker = worker_at(num_bytes=500_000, arena_bytes=64 << 20)
    dispatcher.assign(worker)
    session = session_of(prefetch_bytes=4_000_000)
    assert Trainer(session).take(50) == epoch(0, stop=50)
    assert session.stats()["arena_batches"] >= 50
    until(lambda: sum(record.num_copied for record in worker.streams) >= 50)


def test_a_batch_that_was_overwritten_in_the_arena_is_asked_for_again(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    worker = worker_at(arena_bytes=64 << 20)
    worker.breaks_seals = 2
    dispatcher.assign(worker)
    session = session_of()
    assert Trainer(session).take(30) == epoch(0, stop=30)
    assert session.stats()["reconnects"] == 2


def test_an_arena_that_cannot_be_opened_means_the_socket(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_, caplog: pytest.LogCaptureFixture
) -> None:
    worker = worker_at(arena_bytes=1 << 20)
    assert worker.arena_host is not None
    worker.arena_host.close()
    dispatcher.assign(worker)
    session = session_of()
    assert Trainer(session).take(10) == epoch(0, stop=10)
    assert session.stats()["arena_batches"] == 0
    assert [record.getMessage().count("by socket") for record in caplog.records].count(1) == 1


def test_unordered_passes_a_lane_that_waits(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    go = threading.Event()
    dispatcher.assign(worker_at(script=once((4, Hold(go)))))
    trainer = Trainer(session_of(in_order=False))
    found = trainer.take(46)  # all but the fourteen of the lane that waits
    assert {index % NUM_LANES for _, index in found if index > 0} >= {1, 2, 3}
    assert (0, 4) not in found
    go.set()
    found += trainer.take(14)
    assert sorted(found) == epoch(0)


def test_the_next_epoch_is_opened_before_this_one_ends(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    worker = worker_at(num_bytes=100_000)
    dispatcher.assign(worker)
    trainer = Trainer(session_of(prefetch_bytes=300_000))
    trainer.take(50)
    until(lambda: any(record.request.epoch == 1 for record in worker.streams))
    assert trainer.take(20) == epoch(0, 50, 60) + epoch(1, stop=10)


def test_another_position_starts_anew(dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_) -> None:
    worker = worker_at()
    dispatcher.assign(worker)
    trainer = Trainer(session_of())
    trainer.take(7)
    trainer.position = trainer.session._deal.start(5)
    assert trainer.take(3) == epoch(5, stop=3)
    until(lambda: all(record.is_over for record in worker.streams if record.request.epoch == 0))


def test_a_position_with_batches_taken_ahead_gives_the_others(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    dispatcher.assign(worker_at())
    trainer = Trainer(session_of(in_order=False))
    for index in (3, 5, 9, 13):
        trainer.position = trainer.session._deal.taken(trainer.position, index)
    found = trainer.take(56)
    assert sorted(found) == [place for place in epoch(0) if place[1] not in (3, 5, 9, 13)]


def test_what_became_of_samples_is_told(dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_) -> None:
    bad = SampleError("cut short", op="DecodeImage(jpg)", origin=SampleOrigin("s3://b/x.tar", 3, "k"))
    worker = worker_at()
    worker.extra = {"bad": [to_wire(bad)], "num_filtered": 2, "conversions": ["CMYK to RGB"]}
    dispatcher.assign(worker)
    delivery = Trainer(session_of()).delivery()
    (found,) = delivery.bad
    assert (str(found), delivery.num_filtered, delivery.conversions) == (str(bad), 2, ("CMYK to RGB",))


# -- what goes wrong on a lane -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deed", [Break(), Break(after_slices=1), End(), Say(stream_pb2.Message()), Say(stream_pb2.Message(slice={}))]
)
def test_a_stream_that_breaks_is_opened_again_at_the_first_batch_it_lacks(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_, deed: Deed
) -> None:
    worker = worker_at(script=once((8, deed)), num_bytes=2_500_000)
    dispatcher.assign(worker)
    session = session_of(prefetch_bytes=30_000_000)
    assert Trainer(session).take(20) == epoch(0, stop=20)
    assert session.stats()["reconnects"] == 1
    starts = [record.request.batch_start for record in worker.streams if record.request.epoch == 0]
    assert sorted(starts)[:4] == [0, 1, 2, 3]
    assert starts[4:] in ([4], [8])  # 4 if a credit met the end of the stream: Flight then drops what it had received


@pytest.mark.parametrize(
    "deed, lives, is_careful",
    [
        (Break(), ("a", "b"), True),
        (End(), ("a", "b"), True),
        (Break(), ("a", "a"), False),
        (Break(), ("", ""), True),
        (Leave(), ("a", "b"), False),
    ],
    ids=["break", "end", "lives", "unknown", "leave"],
)
def test_what_a_worker_had_in_hand_when_it_went_without_a_word_is_to_be_made_with_care(
    dispatcher: FakeDispatcher,
    worker_at: Worker_,
    session_of: Session_,
    deed: Deed,
    lives: tuple[str, str],
    is_careful: bool,
) -> None:
    one, two = worker_at("one"), worker_at("two")
    one.life, two.life = lives

    def script(_: stream_pb2.StreamRequest, index: int) -> Deed | None:
        if index != 8:
            return None
        if lives == ("a", "b"):
            one.life = "c"  # another process is there when the client looks again
        dispatcher.assign(two)
        return deed

    one.script = script
    dispatcher.assign(one)
    assert Trainer(session_of(prefetch_bytes=500)).take(100) == [divmod(number, 60) for number in range(100)]
    again = [record.request for record in two.streams if record.request.batch_start in (4, 8)]
    assert again
    assert all(request.num_careful > MAX_AHEAD if is_careful else not request.num_careful for request in again)
    assert not any(record.request.num_careful for record in (*one.streams, *two.streams) if record.request.epoch)


def test_samples_that_end_workers_are_told_to_all(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    worker = worker_at()
    killer = stream_pb2.Killer(sample=7, reason="it was killed")
    worker.extra = {"killers": [killer]}
    dispatcher.assign(worker)
    Trainer(session_of(prefetch_bytes=500)).take(100)
    assert not worker.streams[0].request.killers
    assert [list(record.request.killers) for record in worker.streams[NUM_LANES:]] == [[killer]] * NUM_LANES


def test_a_connection_reset_in_the_middle_of_a_batch(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    go = threading.Event()
    worker = worker_at(script=once((9, Silence(go, after_slices=2))), num_bytes=4_000_000)
    with run_proxies() as proxies:
        proxy = proxies.listen()
        proxy.forward_to(worker.port)
        dispatcher.assign((worker.worker_id, f"grpc://{proxy.address}"))
        session = session_of(prefetch_bytes=40_000_000)
        trainer = Trainer(session)
        trainer.take(8)
        proxy.fail(Cut())
        go.set()
        assert trainer.take(12) == epoch(0, 8, 20)
        assert session.stats()["reconnects"] >= 1


def test_a_silent_worker_is_given_up_and_reported(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    one, two = worker_at("one"), worker_at("two")
    one.script = once((8, Silence(threading.Event())))
    dispatcher.assign(one)

    def is_dead(worker_id: str) -> bool:
        dispatcher.assign(two)
        return True

    dispatcher.on_report = is_dead
    trainer = Trainer(session_of())
    assert trainer.take(60) == epoch(0)
    assert "silent" in dispatcher.reports[0].reason
    assert dispatcher.reports[0].worker_id == "one"


def test_a_silent_worker_that_lives_is_asked_again(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    worker = worker_at(script=once((8, Silence(threading.Event()))))
    dispatcher.assign(worker)
    assert Trainer(session_of()).take(60) == epoch(0)
    assert dispatcher.reports


def test_a_worker_that_beats_is_waited_for(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    go = threading.Event()
    worker = worker_at(script=once((8, Hold(go))))
    dispatcher.assign(worker)
    session = session_of()
    trainer = Trainer(session)
    trainer.take(8)
    num_beats = len(dispatcher.beats)
    dispatcher.wait_for(lambda: len(dispatcher.beats) > num_beats + 6)
    go.set()
    assert trainer.take(10) == epoch(0, 8, 18)
    assert session.stats()["reconnects"] == 0


def test_a_worker_that_leaves_hands_over(dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_) -> None:
    one, two = worker_at("one"), worker_at("two")
    left = threading.Event()

    def script(_: stream_pb2.StreamRequest, index: int) -> Deed | None:
        if index < 8:
            return None
        if not left.is_set():
            left.set()
            dispatcher.assign(two)
        return Leave()

    one.script = script
    dispatcher.assign(one)
    assert Trainer(session_of()).take(60) == epoch(0)
    assert not dispatcher.reports


def test_a_worker_that_is_gone_is_replaced_within_a_second(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    one, two = worker_at("one"), worker_at("two")
    dispatcher.assign(one, two)

    def is_dead(_: str) -> bool:
        dispatcher.assign(two)
        return True

    dispatcher.on_report = is_dead
    trainer = Trainer(session_of(prefetch_bytes=0))
    trainer.take(8)
    one.close()
    begun = time.monotonic()
    assert trainer.take(52) == epoch(0, 8)
    assert time.monotonic() - begun < 10
    assert dispatcher.reports[0].worker_id == "one"


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("s3://b/shard-0001.tar: not found"),
        SampleError("cut short", op="DecodeImage(jpg)", origin=SampleOrigin("s3://b/x.tar", 3, "k")),
        SpecError("the pipeline holds functions"),
    ],
)
def test_an_error_comes_at_its_batch_with_its_class(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_, error: StokerError
) -> None:
    worker = worker_at(script=once((9, Fail(error))))
    dispatcher.assign(worker)
    trainer = Trainer(session_of())
    assert trainer.take(9) == epoch(0, stop=9)
    with pytest.raises(type(error)) as found:
        trainer.one()
    assert str(found.value) == str(error)
    assert trainer.take(10) == epoch(0, 9, 19)  # asked again, it is made


def test_a_worker_that_always_fails_in_ways_of_its_own_is_not_asked_for_ever(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    dispatcher.assign(worker_at(script=lambda _request, _index: Break()))
    with pytest.raises(StokerError, match=r"failed 8 times.*told to break"):
        Trainer(session_of()).one()


def test_a_worker_of_another_protocol(dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_) -> None:
    dispatcher.assign(worker_at(protocol=7))
    with pytest.raises(
        StokerError, match=r"speaks protocol 7 to 7; this process .* speaks 1 to 1: upgrade this process"
    ):
        session_of()


# -- owners ------------------------------------------------------------------------------------------------------------


def test_lanes_move_without_a_gap(dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_) -> None:
    one, two = worker_at("one"), worker_at("two")
    dispatcher.assign(one)
    session = session_of(prefetch_bytes=4_000)
    trainer = Trainer(session)
    found = trainer.take(5)
    for owners in ((one, two), (two,), (two, one), (one,)):
        num_moves = session.stats()["moves"]
        dispatcher.assign(*owners)
        while session.stats()["moves"] == num_moves:
            found += trainer.take(1)
    found += trainer.take(5)
    assert found == [divmod(number, 60) for number in range(len(found))]
    assert session.stats()["reconnects"] == 0


def test_the_dispatcher_may_go_and_come_back(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    one, two = worker_at("one"), worker_at("two")
    dispatcher.assign(one)
    session = session_of()
    trainer = Trainer(session)
    trainer.take(5)
    dispatcher.stop()
    assert trainer.take(60) == epoch(0, 5) + epoch(1, stop=5)
    dispatcher.assign(two)
    dispatcher.restart()
    dispatcher.wait_for(lambda: len(dispatcher.opened) == 2)
    until(lambda: session.stats()["workers"] == ["two"])
    assert trainer.take(180) == epoch(1, 5) + epoch(2) + epoch(3) + epoch(4, stop=5)
    assert two.streams


def test_a_dispatcher_that_has_not_decided_yet_takes_no_owner_away(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    dispatcher.assign(worker_at("one"))
    session = session_of()
    trainer = Trainer(session)
    trainer.take(5)
    dispatcher.stop()
    dispatcher.is_undecided = True
    dispatcher.restart()
    num_beats = len(dispatcher.beats)
    dispatcher.wait_for(lambda: len(dispatcher.opened) == 2 and len(dispatcher.beats) > num_beats + 2)
    assert session.stats()["workers"] == ["one"]
    assert trainer.take(60) == epoch(0, 5) + epoch(1, stop=5)


def test_no_workers_is_waited_for(dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_) -> None:
    one = worker_at("one")
    dispatcher.assign(one)
    session = session_of(prefetch_bytes=0)
    trainer = Trainer(session)
    trainer.take(3)
    dispatcher.assign()
    until(lambda: session.stats()["workers"] == [])
    one.close()
    dispatcher.assign(worker_at("two"))
    assert trainer.take(10) == epoch(0, 3, 13)


def test_the_client_tells_how_it_fares(dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_) -> None:
    dispatcher.assign(worker_at())
    Trainer(session_of()).take(70)
    dispatcher.wait_for(lambda: any(beat.steps == 70 for beat in dispatcher.beats))
    last = dispatcher.beats[-1]
    assert (last.rows, last.epoch, last.name) == (70, 1, "j")
    assert last.wait_s > 0
    (job,) = [opened.job for opened in dispatcher.opened]
    assert (job.num_lanes, job.world_size, job.has_code) == (NUM_LANES, 1, False)


# -- waits and ends ----------------------------------------------------------------------------------------------------


def test_a_stall_names_lane_batch_worker_and_what_it_does(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    go = threading.Event()
    dispatcher.assign(worker_at("w-1", script=once((2, Hold(go)))))
    session = session_of(timeout_s=0.7)
    trainer = Trainer(session)
    trainer.take(2)
    with pytest.raises(StallError) as found:
        trainer.one()
    text = str(found.value)
    for part in ("batch 2 of epoch 0 (lane 2)", "w-1", "waits for decode a picture", "0.7 s", "answers"):
        assert part in text
    go.set()
    assert trainer.take(3) == epoch(0, 2, 5)


def test_a_stall_for_want_of_workers_names_the_dispatchers_reason(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    one = worker_at("one")
    dispatcher.assign(one)
    trainer = Trainer(session_of(prefetch_bytes=0, timeout_s=1.0))
    trainer.take(3)
    dispatcher.reason = "all workers drain"
    dispatcher.assign()
    one.close()
    with pytest.raises(StallError, match=r"waits for an owner.*before: worker .*all workers drain"):
        trainer.take(3)  # one may be here already


def test_closing_ends_a_wait(dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_) -> None:
    dispatcher.assign(worker_at(script=lambda _request, _index: Hold(threading.Event())))
    session = session_of()
    errors: list[BaseException] = []

    def take() -> None:
        try:
            Trainer(session).one()
        except BaseException as error:  # noqa: BLE001  # looked at below
            errors.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    until(lambda: session._core.flow is not None and session._core.flow._is_waited_for)
    begun = time.monotonic()
    session.close()
    thread.join(5)
    assert time.monotonic() - begun < 2
    assert [type(error) for error in errors] == [ClosedError]
    dispatcher.wait_for(lambda: len(dispatcher.closed) == 1)


def test_nothing_of_a_closed_session_is_left(
    dispatcher: FakeDispatcher, worker_at: Worker_, session_of: Session_
) -> None:
    dispatcher.assign(worker_at())
    session = session_of()
    Trainer(session).take(10)
    session.close()
    session.close()
    assert [thread.name for thread in threading.enumerate() if _is_ours(thread)] == []
    with pytest.raises(ClosedError):
        session.next(session._deal.start(0))


def test_a_forgotten_session_closes_itself(dispatcher: FakeDispatcher, worker_at: Worker_) -> None:
    worker = worker_at()
    dispatcher.assign(worker)
    session = open_session(dispatcher.url, pipeline(), Rank(0, 1), SupplyOptions(1 << 20, 20.0, True, False, "j"))
    Trainer(session).take(3)
    del session
    gc.collect()
    dispatcher.wait_for(lambda: len(dispatcher.closed) == 1)
    until(lambda: not any(_is_ours(thread) for thread in threading.enumerate()))


def _is_ours(thread: threading.Thread) -> bool:
    return thread.name.startswith(("stoker-lane", "stoker-ask", "stoker-watch", "stoker-control", "stoker-leave"))


# -- opening -----------------------------------------------------------------------------------------------------------


def opened(url: str, timeout_s: float = 1.0, found: stoker.Pipeline | None = None) -> Session:
    return open_session(url, found or pipeline(), Rank(0, 1), SupplyOptions(1 << 20, timeout_s, True, False, "j"))


@pytest.mark.parametrize("url", ["stoker://", "http://127.0.0.1:1", "stoker://127.0.0.1:none"])
def test_a_wrong_url(url: str) -> None:
    with pytest.raises(SpecError, match="expected stoker://HOST:PORT"):
        opened(url)


def test_no_dispatcher_there(dispatcher: FakeDispatcher) -> None:
    dispatcher.stop()
    begun = time.monotonic()
    with pytest.raises(ServiceError, match=rf"no service answers at {dispatcher.url} .*`stoker up` starts one"):
        opened(dispatcher.url)
    assert time.monotonic() - begun < 5


def test_a_dispatcher_of_another_protocol(stack: ExitStack) -> None:
    dispatcher = FakeDispatcher(protocol=7)
    stack.callback(dispatcher.stop)
    with pytest.raises(StokerError, match=r"Stoker 9\.9 and speaks protocol 7 to 7; .* upgrade this process"):
        opened(dispatcher.url)


def test_no_worker_within_the_time(dispatcher: FakeDispatcher) -> None:
    dispatcher.reason = "no worker allows code"
    with pytest.raises(StallError, match=r"no worker within 0\.6 s \(timeout_s\): no worker allows code"):
        opened(dispatcher.url, timeout_s=0.6)


def test_a_worker_that_comes_later_is_waited_for(
    dispatcher: FakeDispatcher, worker_at: Worker_, stack: ExitStack
) -> None:
    def come() -> None:
        dispatcher.wait_for(lambda: len(dispatcher.beats) > 1)
        dispatcher.assign(worker_at())

    later = threading.Thread(target=come)
    later.start()
    session = opened(dispatcher.url, timeout_s=20)
    stack.callback(session.close)
    later.join()
    assert Trainer(session).take(3) == epoch(0, stop=3)


def test_a_pipeline_that_cannot_be_sent_is_refused_before_anything_is_connected() -> None:
    lock = threading.Lock()
    step = ops.Map(lambda sample: (lock, sample)[1])
    with pytest.raises(SpecError, match="lock"):
        opened("stoker://127.0.0.1:9", found=stoker.Pipeline(stoker.tar("/nowhere"), [step], batch_size=1))


def test_what_a_worker_says_of_the_data(dispatcher: FakeDispatcher, worker_at: Worker_) -> None:
    worker = worker_at()
    worker.descriptions = [
        stream_pb2.Description(progress="3 of 6 shards"),
        stream_pb2.Description(error=to_wire(NotFoundError("/nowhere/shard-*.tar: nothing there"))),
    ]
    dispatcher.assign(worker)
    with pytest.raises(NotFoundError, match="nothing there"):
        opened(dispatcher.url)


def test_another_worker_describes_when_one_is_gone(
    dispatcher: FakeDispatcher, worker_at: Worker_, stack: ExitStack
) -> None:
    gone = worker_at("gone")
    gone.close()
    dispatcher.assign(gone, gone, gone, worker_at("there"))
    session = opened(dispatcher.url, timeout_s=20)
    stack.callback(session.close)
    assert session.order.num_samples == 240
    assert dispatcher.reports[0].worker_id == "gone"


def test_workers_that_refuse_the_pipeline_are_an_error_rather_than_a_wait(dispatcher: FakeDispatcher) -> None:
    dispatcher.is_refusal, dispatcher.reason = True, "found 1 that do not; start workers with --allow-code"
    begun_s = time.monotonic()
    with pytest.raises(SpecError, match="start workers with --allow-code"):
        opened(dispatcher.url, timeout_s=60.0)
    assert time.monotonic() - begun_s < 60.0


def test_a_long_wait_for_a_batch_is_told_in_the_log(
    dispatcher: FakeDispatcher,
    worker_at: Worker_,
    session_of: Session_,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("stoker_service.client.session.SAY_AFTER_S", 0.3)
    one = worker_at("one")
    dispatcher.assign(one)
    session = session_of(prefetch_bytes=0, timeout_s=2.0)
    trainer = Trainer(session)
    trainer.take(3)
    dispatcher.stop()
    one.close()
    with pytest.raises(StallError, match="if it is gone, start the service again"):
        trainer.take(5)
    assert "no batch for 0 s, waiting up to 2 s: batch" in caplog.text
