"""Streams of a real worker, against what the loader makes in this process."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stoker
from stoker import ops
from stoker_proto.v1 import control_pb2, stream_pb2
from stoker_service import versions
from stoker_service.transport.arena_view import ArenaView
from stoker_service.worker.server import WorkerServer
from support.loading import load, tar_of
from support.streams import pictures

WAIT_S = 20.0


def locally(pipeline: stoker.Pipeline, rank: int = 0, world_size: int = 1) -> list[pa.RecordBatch]:
    with load(pipeline, rank, world_size, output="arrow") as loader:
        return list(loader)


def same(found: pa.RecordBatch, expected: pa.RecordBatch) -> bool:
    return bool(found.equals(expected, check_metadata=True))


def eventually(is_so: Any) -> None:
    """Wait until something is so that threads of the worker bring about."""
    deadline_s = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < deadline_s, "it is not so within the deadline"
        pause.wait(0.005)


# -- what comes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arena", [False, True])
def test_all_lanes_together_are_the_epoch_of_local_mode(start: Any, pipeline: stoker.Pipeline, arena: bool) -> None:
    expected = locally(pipeline)
    hands = start(arena=arena)
    view = ArenaView.open(hands.hello().arena_socket, 1.0) if arena else None
    found: dict[int, pa.RecordBatch] = {}
    num_placed = 0
    for lane in range(3):
        call = hands.open(hands.request(pipeline, lane, takes_arena=arena))
        call.credit(2)
        for index in range(lane, len(expected), 3):
            begin, batch = call.batch(view)
            assert begin.batch_index == index
            num_placed += bool(begin.pieces)
            found[index] = batch
            call.credit(1, num_copied=int(bool(begin.pieces)))
        call.end()
    assert num_placed == (len(expected) if arena else 0)
    assert all(same(found[index], batch) for index, batch in enumerate(expected))
    assert len(found) == len(expected)
    if view is not None:
        view.close()
    eventually(lambda: hands.server.stats().num_streams == 0)
    assert hands.server.stats().queued_bytes == 0


def test_a_stream_may_begin_anywhere_and_step_over_ranks(start: Any, pipeline: stoker.Pipeline) -> None:
    hands = start()
    expected = {batch.schema.metadata[b"batch"]: batch for batch in locally(pipeline)}
    call = hands.open(hands.request(pipeline, batch_start=21, batch_stride=6, batch_stop=50, tail="pad"))
    call.credit(100)
    for index in range(21, 50, 6):
        begin, batch = call.batch()
        assert begin.batch_index == index
        assert batch.column("image").equals(expected[str(index).encode()].column("image"))
    call.end()


def test_a_later_epoch_of_what_is_left_of_a_plan(start: Any, pipeline: stoker.Pipeline) -> None:
    with load(pipeline, output="arrow") as loader:
        loader.set_epoch(3)
        expected = list(loader)
    hands = start()
    call = hands.open(hands.request(pipeline, 1, epoch=3))
    call.credit(2)
    assert [same(call.batch()[1], expected[index]) for index in (1, 4)] == [True, True]


def test_filler_beyond_the_end_is_that_of_local_mode(start: Any, shards: str) -> None:
    """240 samples in batches of 7 on two ranks are 18 steps."""
    pipeline = pictures(shards, batch_size=7, lanes=1, tail="pad")
    expected = locally(pipeline, rank=1, world_size=2)
    hands = start()
    call = hands.open(hands.request(pipeline, batch_start=1, batch_stride=2, batch_stop=36, tail="pad"))
    call.credit(100)
    assert all(same(call.batch()[1], batch) for batch in expected)
    call.end()


def test_nothing_comes_without_credit(start: Any, pipeline: stoker.Pipeline) -> None:
    hands = start()
    call = hands.open(hands.request(pipeline))
    call.credit(1)
    call.batch()
    other = hands.open(hands.request(pipeline, 1))
    other.credit(1)
    other.batch()
    call.credit(1)
    assert call.batch()[0].batch_index == 3


def test_one_batch_is_made_once_for_all_who_want_it(start: Any, pipeline: stoker.Pipeline) -> None:
    hands = start()
    calls = [hands.open(hands.request(pipeline, lanes_of, client_id=name)) for name in "ab" for lanes_of in (0,)]
    for call in calls:
        call.credit(20)
    firsts = [[call.batch()[1] for _ in range(20)] for call in calls]
    assert all(same(one, other) for one, other in zip(*firsts, strict=True))
    (producer,) = hands.server.stats().producers
    assert producer.batches <= 25  # the second may have opened when the first had taken some
    assert producer.lanes in ((), (0,))


def test_it_beats_while_a_batch_is_long_in_the_making(start: Any, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)

    def wait_for_it(fields: dict[str, Any]) -> dict[str, Any]:
        Path(gate).read_bytes()  # blocks until someone writes
        return fields

    source = stoker.tar(tar_of(tmp_path / "a.tar", {"k": {"cls": b"1"}}))
    pipeline = stoker.Pipeline(source, [ops.Map(wait_for_it)], batch_size=1, lanes=1)
    hands = start(allow_code=True)
    hands.server._agent.beat_s = 0.01
    call = hands.open(hands.request(pipeline, num_samples=1))
    call.credit(1)
    while not any(beat.waits_for == "decode" and "has taken" in beat.text for beat in call.beats):
        chunk = call.reader.read_chunk()
        call.beats.append(stream_pb2.Message.FromString(chunk.app_metadata.to_pybytes()).beat)
    Path(gate).write_bytes(b"go")
    call.batch()
    call.end()


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_batch_that_cannot_be_made_is_an_error_at_its_turn(start: Any, tmp_path: Any) -> None:
    samples = {f"k{number}": {"jpg": b"no picture", "cls": b"1"} for number in range(4)}
    pipeline = stoker.Pipeline(
        stoker.tar(tar_of(tmp_path / "a.tar", samples)), [ops.DecodeImage("jpg", to="image")], batch_size=2, lanes=1
    )
    hands = start()
    call = hands.open(hands.request(pipeline, num_samples=4))
    call.credit(1)
    error = call.error()
    assert (error.type, error.origin.key) == ("SampleError", "k0")
    eventually(lambda: hands.server.stats().num_streams == 0)


def test_bad_samples_and_conversions_travel(start: Any, tmp_path: Any) -> None:
    samples = {"bad": {"jpg": b"no picture", "cls": b"1"}, "good": {"jpg": _jpeg(), "cls": b"1"}}
    pipeline = stoker.Pipeline(
        stoker.tar(tar_of(tmp_path / "a.tar", samples)),
        [ops.DecodeImage("jpg", to="image")],
        batch_size=2,
        lanes=1,
        on_error="replace",
    )
    hands = start()
    call = hands.open(hands.request(pipeline, num_samples=2))
    call.credit(1)
    begin, batch = call.batch()
    assert [error.origin.key for error in begin.bad] == ["bad"]
    assert list(begin.conversions) == ["grey to RGB"] or begin.conversions
    assert same(batch, locally(pipeline)[0])
    assert hands.server.stats().bad_samples == 1


def _jpeg() -> bytes:
    from support import pictures as made

    return made.grey_jpeg()


def test_storage_that_is_not_there_is_an_error_of_storage(start: Any, tmp_path: Any) -> None:
    hands = start()
    missing = pictures(f"{tmp_path}/nothing-*.tar")
    (answer,) = hands.describe(missing)
    assert answer.error.type == "NotFoundError"
    error = hands.open(hands.request(missing, dataset="f00d")).error()
    assert error.type == "NotFoundError"


def test_another_data_set_than_expected_names_both(start: Any, pipeline: stoker.Pipeline) -> None:
    hands = start()
    actual = hands.describe(pipeline)[-1].dataset
    error = hands.open(hands.request(pipeline, dataset="f00d")).error()
    assert error.type == "DataError"
    assert "f00d" in error.text
    assert actual in error.text


def test_data_that_changed_are_looked_at_again(start: Any, tmp_path: Any) -> None:
    def write(num: int) -> None:
        tar_of(tmp_path / "a.tar", {f"k{number}": {"cls": b"1"} for number in range(num)})

    write(3)
    pipeline = stoker.Pipeline(stoker.tar(f"{tmp_path}/a.tar"), [], batch_size=1, lanes=1)
    hands, newer = start(), start()
    assert hands.describe(pipeline)[-1].num_samples == 3
    write(5)
    dataset = newer.describe(pipeline)[-1].dataset
    call = hands.open(hands.request(pipeline, num_samples=5, dataset=dataset))
    call.credit(5)
    assert [call.batch()[0].batch_index for _ in range(5)] == [0, 1, 2, 3, 4]
    call.end()


def test_code_is_refused_unless_it_is_allowed(start: Any, shards: str) -> None:
    pipeline = pictures(shards, ops.Map(_double))
    (answer,) = start().describe(pipeline)
    assert answer.error.type == "SpecError"
    assert "--allow-code" in answer.error.text
    assert start(allow_code=True).describe(pipeline)[-1].num_samples == 240


def test_code_runs_where_it_is_allowed(start: Any, shards: str) -> None:
    pipeline = pictures(shards, ops.Map(_double), lanes=1)
    hands = start(allow_code=True)
    call = hands.open(hands.request(pipeline))
    call.credit(1)
    assert same(call.batch()[1], locally(pipeline)[0])


def _double(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "two": len(fields) * 2}


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"version": control_pb2.Version()}, "protocol"),
        ({"version": control_pb2.Version(protocol=99, oldest_protocol=99)}, "upgrade this process"),
        ({"pipeline": stream_pb2.Pipeline(fingerprint="1")}, "expected JSON or code"),
        ({"batch_size": 0}, "batch_size: expected 1 to"),
        ({"num_lanes": 0}, "num_lanes: expected 1 to"),
        ({"num_lanes": 1 << 20}, "num_lanes: expected 1 to"),
        ({"batch_stride": 0}, "batch_stride: expected 1 to"),
        ({"batch_stride": 4}, "multiple of num_lanes"),
        ({"batch_stop": 1 << 40}, "expected indices below 60"),
        ({"batch_stop": 61}, "expected indices below 60"),
        ({"tail": "long"}, "tail: expected one of short"),
        ({"ranges": [0]}, "ranges: expected"),
        ({"ranges": [5, 3]}, "ranges: expected"),
        ({"ranges": [0, 241]}, "expected to end at 240"),
        ({"epoch": 1 << 60}, "epoch: expected 0 to"),
    ],
)
def test_a_request_that_is_wrong_says_what_was_expected(
    start: Any, pipeline: stoker.Pipeline, changes: dict[str, Any], expected: str
) -> None:
    hands = start(arena=False)
    error = hands.open(hands.request(pipeline, **changes)).error()
    assert expected in error.text


def test_bytes_that_are_no_request_are_an_error(start: Any) -> None:
    assert "StreamRequest" in start(arena=False).open(b"\xff\xff\xff").error().text


def test_more_copied_than_sent_is_an_error(start: Any, pipeline: stoker.Pipeline) -> None:
    hands = start()
    call = hands.open(hands.request(pipeline))
    call.credit(0, num_copied=1)
    assert "num_copied" in call.error().text


def test_a_fingerprint_that_does_not_fit_the_pipeline_is_an_error(start: Any, pipeline: stoker.Pipeline) -> None:
    message = stream_pb2.Pipeline(fingerprint="f00d", json=pipeline.to_json())
    (answer,) = start(arena=False).describe(message)
    assert "f00d" in answer.error.text


def test_an_unknown_action_is_refused_and_nothing_breaks(start: Any, pipeline: stoker.Pipeline) -> None:
    hands = start(arena=False)
    with pytest.raises(pa.ArrowException, match="expected the action"):
        list(hands.client.do_action(pa.flight.Action("dance", b"")))
    assert hands.describe(pipeline)[-1].num_samples == 240


# -- who goes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("takes_arena", [False, True])
def test_a_client_that_vanishes_leaves_nothing(start: Any, pipeline: stoker.Pipeline, takes_arena: bool) -> None:
    hands = start()
    view = ArenaView.open(hands.hello().arena_socket, 1.0)
    call = hands.open(hands.request(pipeline, takes_arena=takes_arena))
    call.credit(3)
    begin, _ = call.batch(view)
    call.close()
    eventually(lambda: hands.server.stats().num_streams == 0)
    eventually(lambda: hands.server.stats().queued_bytes == 0)
    if takes_arena:
        assert not view.holds(begin.seal)
    view.close()


def test_a_client_that_takes_nothing_keeps_nobody_waiting(start: Any, pipeline: stoker.Pipeline) -> None:
    hands = start(memory_bytes=1 << 20)
    idle = hands.open(hands.request(pipeline))
    idle.credit(20)
    call = hands.open(hands.request(pipeline, 1))
    for _ in range(20):
        call.credit(1)
        call.batch()
    call.end()


def test_hello_tells_who_it_is(start: Any) -> None:
    hands = start(worker_id="the-worker")
    hello = hands.hello()
    assert hello.worker_id == "the-worker"
    assert hello.version == versions.ours()
    assert hello.host_id
    assert hello.arena_socket
    assert hello.beat_ms == 1000


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_draining_worker_sends_new_streams_elsewhere_and_goes_on_with_open_ones(
    start: Any, pipeline: stoker.Pipeline
) -> None:
    hands = start(drain_s=20.0)
    call = hands.open(hands.request(pipeline))
    call.credit(1)
    call.batch()
    hands.server.drain()
    other = hands.open(hands.request(pipeline, 1))
    message, _ = other.message()
    assert message.WhichOneof("kind") == "leaving"
    other.end()
    call.credit(19)
    assert [call.batch()[0].batch_index for _ in range(19)] == list(range(3, 60, 3))
    call.end()
    assert _end_of(hands.server) == 0


def test_a_draining_worker_tells_idle_streams_to_leave_in_the_end(start: Any, pipeline: stoker.Pipeline) -> None:
    hands = start(drain_s=0.0)
    call = hands.open(hands.request(pipeline))
    call.credit(1)
    call.batch()
    hands.server.drain()
    message, _ = call.message()
    assert message.WhichOneof("kind") == "leaving"
    call.close()
    assert _end_of(hands.server) == 0


@pytest.mark.parametrize("hangs_up", [False, True])
def test_stop_ends_all_within_two_seconds(start: Any, pipeline: stoker.Pipeline, hangs_up: bool) -> None:
    hands = start()
    call = hands.open(hands.request(pipeline))
    call.credit(1)
    call.batch()
    if hangs_up:
        call.close()
    begun_s = time.monotonic()
    hands.server.stop()
    assert time.monotonic() - begun_s < 2.0
    assert _end_of(hands.server) == 0
    assert hands.server.unready() == "the worker drains"


def _end_of(server: WorkerServer) -> int:
    codes: list[int] = []
    waiting = threading.Thread(target=lambda: codes.append(server.wait()))
    waiting.start()
    waiting.join(WAIT_S)
    assert codes, "the worker has not ended"
    return codes[0]
