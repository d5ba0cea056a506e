"""Ranges from other workers: real Flight servers, and a web server that counts."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

import stoker
from stoker import ops
from stoker.errors import AccessError, SpecError, StokerError
from stoker.formats.dataset import Dataset
from stoker.formats.open import open_dataset
from stoker.storage.store import ObjectRange
from stoker.storage.use import Use
from stoker_proto.v1 import stream_pb2
from stoker_service import versions
from stoker_service.members import Member, members
from stoker_service.transport.errors import from_wire
from stoker_service.worker import range_request
from stoker_service.worker.fleet import Fleet
from stoker_service.worker.peers import FleetPeers
from stoker_service.worker.range_call import Patience
from stoker_service.worker.range_request import SourceText
from support.faulty_http import FaultyServer, Stall, run_faulty_http
from support.loading import tar_of

WAIT_S = 20.0
PATIENT = Patience(WAIT_S, WAIT_S)
NUM_CHUNKS = 24
ROW_BYTES = 6000


@pytest.fixture
def origin() -> Iterator[FaultyServer]:
    with run_faulty_http() as server:
        yield server


@pytest.fixture
def pipeline(origin: FaultyServer, tmp_path: Path) -> stoker.Pipeline:
    """Tar shards at a web server: 24 chunks of one sample each."""
    for shard in range(2):
        rows = ((f"{shard}-{row:02d}", {"bin": bytes([shard * 12 + row]) * ROW_BYTES}) for row in range(12))
        tar_of(tmp_path / f"{shard}.tar", rows)
        origin.put(f"{shard}.tar", (tmp_path / f"{shard}.tar").read_bytes())
    source = stoker.tar(f"{origin.url}/{{0..1}}.tar", chunk_bytes=1, manifest=str(tmp_path / "index"), **_HTTP)
    return stoker.Pipeline(source, [ops.Select("bin")], batch_size=1)


_HTTP: dict[str, Any] = {"storage_options": {"allow_http": "true"}}


@pytest.fixture
def dataset(pipeline: stoker.Pipeline) -> Dataset:
    found = open_dataset(pipeline.source)
    assert len(found.chunks.num_rows) == NUM_CHUNKS
    return found


def ranges_of(dataset: Dataset) -> list[ObjectRange]:
    return [one for chunk in range(len(dataset.chunks.num_rows)) for one in dataset.ranges(chunk)]


def uses(ranges: Sequence[ObjectRange]) -> list[Use]:
    return [Use("job", 0.5, 1.5)] * len(ranges)


Ask = Callable[..., FleetPeers]


@pytest.fixture
def ask(pipeline: stoker.Pipeline, dataset: Dataset) -> Iterator[Ask]:
    """Makes peers of a worker that asks others."""
    fleets: list[Fleet] = []

    def peers_of(*others: Member, patience: Patience = PATIENT) -> FleetPeers:
        fleets.append(Fleet("asker", keeps_cache=False, patience=patience))
        fleets[-1].told(members(others))
        peers = FleetPeers(fleets[-1], pipeline)
        peers.opened(dataset.fingerprint)
        return peers

    yield peers_of
    for fleet in fleets:
        fleet.close()


def member(hands: Any) -> Member:
    return Member(hands.server.worker_id, hands.server.location)


def counts(peers: FleetPeers) -> dict[str, int]:
    return {str(outcome): number for outcome, number in peers._fleet.counts()[1].items()}


def test_all_ranges_come_from_their_owners_in_one_call_each(
    start: Any, ask: Ask, dataset: Dataset, origin: FaultyServer
) -> None:
    owners = [start(cache_ram_bytes=1 << 20) for _ in range(3)]
    peers, ranges = ask(*map(member, owners)), ranges_of(dataset)
    expected = [bytes(dataset.stores.read(one.url, one.start, one.stop)) for one in ranges]
    assert not any(peers.owns(one) for one in ranges)
    assert [bytes(body or b"") for body in peers.read(ranges, uses(ranges))] == expected
    assert counts(peers) == {"served": 3, "refused": 0, "late": 0}
    assert sum(hands.server.stats().fleet.given_bytes for hands in owners) == sum(map(len, expected))
    assert all(hands.server.stats().fleet.given_bytes for hands in owners)


def test_the_source_is_sent_once(start: Any, ask: Ask, dataset: Dataset) -> None:
    hands = start()
    peers, ranges = ask(member(hands)), ranges_of(dataset)
    peers.read(ranges[:1], uses(ranges[:1]))
    digest = peers._source.digest
    hands.server.keeper._pipelines.clear()  # as after many other sources
    assert peers.read(ranges[:1], uses(ranges[:1])) != [None]
    assert digest in hands.server.keeper._pipelines
    assert counts(peers)["refused"] == 0


def test_the_files_of_a_chunk_are_one_call_and_what_the_index_lacks_is_refused(
    start: Any, origin: FaultyServer, tmp_path: Path
) -> None:
    names = [f"n01_{number:05d}.jpg" for number in range(300, 308)]
    urls = [origin.put(f"train/{name}", name.encode() * 9) for name in names]
    listing = tmp_path / "list.txt"
    listing.write_text("".join(f"{url}\n" for url in urls))
    source = stoker.files(str(listing), manifest=str(tmp_path / "files-index"), **_HTTP)
    pipeline = stoker.Pipeline(source, [ops.Select("jpg")], batch_size=1)
    dataset = open_dataset(source)
    owners = [start(cache_ram_bytes=1 << 20) for _ in range(3)]
    fleet = Fleet("asker", keeps_cache=False, patience=PATIENT)
    fleet.told(members(map(member, owners)))
    peers, ranges = FleetPeers(fleet, pipeline), dataset.ranges(0)
    peers.opened(dataset.fingerprint)
    assert [bytes(body or b"") for body in peers.read(ranges, uses(ranges))] == [name.encode() * 9 for name in names]
    assert counts(peers) == {"served": 1, "refused": 0, "late": 0}
    unlisted = ObjectRange(origin.put("train/n01_00400.jpg", b"unlisted"), 0, 8, "v", ranges[0].endpoint)
    assert isinstance(refused(owners[0], asked(pipeline, dataset.fingerprint, unlisted)), AccessError)
    fleet.close()


def test_own_ranges_local_ones_and_those_of_no_version_are_read_here(start: Any, ask: Ask, dataset: Dataset) -> None:
    hands = start()
    ranges = ranges_of(dataset)
    peers = ask(member(hands), Member("asker", "grpc://127.0.0.1:1"))
    own = [one for one in ranges if peers.owns(one)]
    assert 0 < len(own) < len(ranges)
    assert peers.read(own, uses(own)) == [None] * len(own)
    here = [ObjectRange("file:///x.tar", 0, 10, "v"), ObjectRange("s3://bucket/x.tar", 0, 10)]
    assert [peers.owns(one) for one in here] == [True, True]
    assert peers.read(here, uses(here)) == [None, None]
    assert counts(peers) == {"served": 0, "refused": 0, "late": 0}


def test_without_members_everything_is_read_here(ask: Ask, dataset: Dataset) -> None:
    peers, ranges = ask(), ranges_of(dataset)
    assert all(peers.owns(one) for one in ranges)
    assert peers.read(ranges, uses(ranges)) == [None] * len(ranges)


def test_nobody_is_asked_before_the_data_set_is_open(start: Any, pipeline: stoker.Pipeline, dataset: Dataset) -> None:
    hands = start()
    fleet = Fleet("asker", keeps_cache=False)
    fleet.told(members([member(hands)]))
    ranges = ranges_of(dataset)
    assert FleetPeers(fleet, pipeline).read(ranges, uses(ranges)) == [None] * len(ranges)
    fleet.close()


def test_a_worker_that_is_gone_costs_a_call_and_is_left_alone(ask: Ask, dataset: Dataset) -> None:
    peers, ranges = ask(Member("gone", "grpc://127.0.0.1:1")), ranges_of(dataset)
    for _ in range(3):
        assert peers.read(ranges, uses(ranges)) == [None] * len(ranges)
    assert counts(peers) == {"served": 0, "refused": 1, "late": 0}


class _Silent(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow carries no types
    """Takes calls and says nothing until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        super().__init__("grpc://127.0.0.1:0")

    def do_get(self, context: Any, ticket: Any) -> Any:
        self.released.wait(WAIT_S)
        raise flight.FlightServerError("released")


@contextlib.contextmanager
def silent() -> Iterator[Member]:
    server = _Silent()
    try:
        yield Member("silent", f"grpc://127.0.0.1:{server.port}")
    finally:
        server.released.set()
        server.shutdown()


def test_a_worker_that_says_nothing_is_late_and_the_others_are_not_waited_for_longer(
    start: Any, ask: Ask, dataset: Dataset
) -> None:
    hands = start()
    with silent() as other:
        peers, ranges = ask(member(hands), other, patience=Patience(heard_s=1.0, wait_s=WAIT_S)), ranges_of(dataset)
        found = peers.read(ranges, uses(ranges))
        assert 0 < sum(body is not None for body in found) < len(ranges)
        assert counts(peers) == {"served": 1, "refused": 0, "late": 1}


def test_a_worker_whose_reading_stalls_is_late(
    start: Any, ask: Ask, dataset: Dataset, origin: FaultyServer, pipeline: stoker.Pipeline
) -> None:
    hands = start()
    peers, ranges = ask(member(hands), patience=Patience(WAIT_S, 0.2)), ranges_of(dataset)
    hands.describe(pipeline)  # so that it is open, and the first read is of a chunk
    origin.scripts["/0.tar"].append(Stall())
    assert peers.read(ranges[:1], uses(ranges[:1])) == [None]
    assert counts(peers)["late"] == 1


def test_one_that_comes_back_as_another_member_is_asked_at_once(start: Any, ask: Ask, dataset: Dataset) -> None:
    peers, ranges = ask(Member("w", "grpc://127.0.0.1:1")), ranges_of(dataset)
    assert peers.read(ranges[:1], uses(ranges[:1])) == [None]
    peers._fleet.told(members([member(start())]))
    assert peers.read(ranges[:1], uses(ranges[:1])) != [None]


# -- what an owner refuses ---------------------------------------------------------------------------------------------


def answers(hands: Any, request: bytes) -> tuple[list[bytes], stream_pb2.RangesAnswer]:
    """The slices that a ticket brings, and the last word."""
    reader = hands.client.do_get(flight.Ticket(request), flight.FlightCallOptions(timeout=WAIT_S))
    parts, answer = [], stream_pb2.RangesAnswer()
    for chunk in reader:
        if chunk.app_metadata is not None and chunk.app_metadata.size:
            answer = stream_pb2.RangesAnswer.FromString(chunk.app_metadata.to_pybytes())
        if chunk.data is not None and len(chunk.data):
            parts.append(bytes(chunk.data.column(0).buffers()[1]))
    return parts, answer


def refused(hands: Any, request: bytes) -> StokerError:
    parts, answer = answers(hands, request)
    assert not parts
    assert answer.HasField("error")
    return from_wire(answer.error)


def asked(pipeline: stoker.Pipeline, fingerprint: str, *ranges: ObjectRange) -> bytes:
    source = SourceText.of(pipeline)
    return range_request.ticket(source, fingerprint, ranges, uses(ranges), wait_s=WAIT_S, with_source=True)


def test_a_worker_is_no_open_proxy(
    start: Any, pipeline: stoker.Pipeline, dataset: Dataset, origin: FaultyServer
) -> None:
    hands = start()
    good = ranges_of(dataset)[0]
    secret = origin.put("secret.txt", b"nobody's business")
    size = len(origin.files["/0.tar"])
    wrong = [
        ObjectRange(secret, 0, 5, good.version, good.endpoint),
        ObjectRange(f"{good.url}?x=1", good.start, good.stop, good.version, good.endpoint),
        ObjectRange("file:///etc/hostname", 0, 1),
        ObjectRange(good.url, size - 1, size + 1, good.version, good.endpoint),
        ObjectRange(good.url, good.start, good.stop, "another", good.endpoint),
        ObjectRange(good.url, good.start, good.stop, "", good.endpoint),
        ObjectRange(good.url, good.start, good.stop, good.version, "http://elsewhere"),
    ]
    for one in wrong:
        error = refused(hands, asked(pipeline, dataset.fingerprint, good, one))
        assert isinstance(error, AccessError), one
        assert "expected ranges of the objects of data set" in str(error)
    assert origin.num_gets("secret.txt") == 0


def test_what_is_asked_wrongly_is_refused_with_what_was_expected(
    start: Any, pipeline: stoker.Pipeline, dataset: Dataset
) -> None:
    hands = start()
    good = ranges_of(dataset)[0]
    request = stream_pb2.RangesRequest.FromString(asked(pipeline, dataset.fingerprint, good))

    def changed(**fields: Any) -> bytes:
        other = stream_pb2.RangesRequest()
        other.CopyFrom(request)
        for name, value in fields.items():
            if value is None:
                other.ClearField(name)
            else:
                setattr(other, name, value)
        return other.SerializeToString()

    assert "expected a RangesRequest" in str(refused(hands, b"\xff\xff"))
    assert "upgrade the worker that asks" in str(refused(hands, changed(version=None)))
    assert "ranges: expected 1 to" in str(refused(hands, changed(ranges=None)))
    assert "expected the data set's fingerprint" in str(refused(hands, changed(dataset="")))
    assert "expected the hash of the source" in str(refused(hands, changed(source_id=b"x")))
    assert "the job's has another" in str(refused(hands, changed(dataset="another")))
    assert isinstance(refused(hands, changed(dataset="another")), StokerError)
    assert answers(hands, changed(source="", source_id=b"never told"))[1].wants_source


def test_a_source_that_is_none_is_refused(start: Any, dataset: Dataset) -> None:
    hands = start()
    good = ranges_of(dataset)[0]
    for text in ("{", '"x"', json.dumps({"source": "mystery"}), json.dumps({"source": "tar", "patterns": 3})):
        source = range_request._named(text, is_full=False)
        request = range_request.ticket(
            source, dataset.fingerprint, [good], uses([good]), wait_s=WAIT_S, with_source=True
        )
        assert isinstance(refused(hands, request), SpecError), text


class _Recording(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow carries no types
    """Keeps what it is asked, and refuses it."""

    def __init__(self) -> None:
        self.tickets: list[bytes] = []
        super().__init__("grpc://127.0.0.1:0")

    def do_get(self, context: Any, ticket: Any) -> Any:
        self.tickets.append(ticket.ticket)
        raise flight.FlightServerError("recorded")


def test_secrets_never_leave(dataset: Dataset, origin: FaultyServer) -> None:
    options = {"allow_http": "true", "secret_access_key": "hush-1", "session_token": "hush-2"}
    source = stoker.tar(f"{origin.url}/0.tar", storage_options=options)
    secretive = stoker.Pipeline(source, [ops.Select("bin")], batch_size=1)
    server = _Recording()
    fleet = Fleet("asker", keeps_cache=False)
    fleet.told(members([Member("w", f"grpc://127.0.0.1:{server.port}")]))
    peers, ranges = FleetPeers(fleet, secretive), ranges_of(dataset)[:3]
    peers.opened(dataset.fingerprint)
    assert peers.read(ranges, uses(ranges)) == [None] * 3
    fleet.close()
    server.shutdown()
    (ticket,) = server.tickets
    assert b"hush" not in ticket
    found = range_request.read(ticket)
    assert found.ranges == tuple(ranges)
    assert found.source is not None
    assert found.source.read().source.storage_options == {"allow_http": "true"}


def test_the_versions_of_both_are_looked_at(pipeline: stoker.Pipeline, dataset: Dataset) -> None:
    request = stream_pb2.RangesRequest.FromString(asked(pipeline, dataset.fingerprint, ranges_of(dataset)[0]))
    assert request.version == versions.ours()
