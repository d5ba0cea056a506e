"""The batches of one rank from a service: what ``DataLoader(pipeline, service="stoker://…")`` opens."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from typing import Any, Final

from stoker import leaving
from stoker.batch.pinned import pool_for
from stoker.engine.feed import Deal
from stoker.errors import ClosedError, SampleError, SpecError, StallError
from stoker.pipeline import Pipeline
from stoker.plan.resume import Position
from stoker.ranks import Rank
from stoker.state import OrderIdentity, identity
from stoker.supply import Delivery, SupplyOptions
from stoker_proto.v1 import stream_pb2 as wire
from stoker_service import addresses, versions
from stoker_service.client import forks
from stoker_service.client.arenas import Peers
from stoker_service.client.control import Control, JobIdentity, Progress
from stoker_service.client.flow import Flow, Means
from stoker_service.client.merge import Place, legs
from stoker_service.client.opening import DatasetView, Opening, run_apart
from stoker_service.client.owners import Assignment
from stoker_service.client.places import with_absolute_paths
from stoker_service.client.stall import stall_cause
from stoker_service.client.stats import Counters, verdict
from stoker_service.client.stream import Arrival
from stoker_service.transport.code import pack
from stoker_service.transport.errors import from_wire
from stoker_service.transport.host import host_id

SAY_AFTER_S: Final = 10.0
SAY_AGAIN_S: Final = 60.0
"""A trainer that waits for a batch for so long is told in the log what for, and again."""

_log = logging.getLogger("stoker")

CLOSE_S: Final = 1.5
"""How long closing waits for threads; what has not ended by then is a daemon."""


def open_session(url: str, pipeline: Pipeline, rank: Rank, options: SupplyOptions) -> Session:
    """Open the supply of one rank. A :class:`stoker.supply.OpenSupply`.

    Raises SpecError if the URL is wrong, or the pipeline cannot be sent, before anything is connected; ServiceError
    if no dispatcher answers within ``REACH_S``; StallError if there is no worker within ``timeout_s``; StokerError if
    versions do not fit, or in a fork of a process that used a service; and what is wrong with the data.
    """
    address = addresses.parse(url)
    _check_options(options)
    pipeline = with_absolute_paths(pipeline)
    message = pack(pipeline)
    forks.check()
    client_id = uuid.uuid4().hex
    job = JobIdentity(
        pipeline=message.fingerprint,
        name=options.job,
        num_lanes=pipeline.lanes,
        world_size=rank.world_size,
        rank=rank.index,
        has_code=any(op.is_code for op in pipeline.ops),
        client_id=client_id,
        host_id=host_id(),
        pipeline_bytes=message.ByteSize(),
    )
    control, peers = Control(address, job), Peers()
    opening = Opening(control, peers, message, options.timeout_s)
    try:
        dataset = run_apart(opening, control, options.timeout_s)
    except BaseException:
        _abandon(control, peers, opening)
        raise
    request = wire.StreamRequest(
        version=versions.ours(),
        pipeline=message,
        dataset=dataset.fingerprint,
        tail=pipeline.tail_for(rank.world_size),
        client_id=client_id,
        job_name=options.job,
    )
    return Session(str(address), pipeline, rank, options, dataset, control, peers, request)


class Session:
    """The :class:`stoker.supply.Supply` of a service. A forgotten one closes itself, as does the interpreter's exit."""

    def __init__(
        self,
        url: str,
        pipeline: Pipeline,
        rank: Rank,
        options: SupplyOptions,
        dataset: DatasetView,
        control: Control,
        peers: Peers,
        request: wire.StreamRequest,
    ) -> None:
        self._url = url
        self._options = options
        self._order = identity(pipeline, dataset.fingerprint, dataset.num_samples)
        self._deal = Deal(pipeline, dataset.num_samples, rank)
        self._counters = Counters()
        means = Means(
            control=control,
            peers=peers,
            pool=pool_for(pin_memory=options.pin_memory),
            counters=self._counters,
            request=request,
            prefetch_bytes=options.prefetch_bytes,
            in_order=options.in_order,
        )
        self._core = _Core(means, self._deal)
        self._at: Position | None = None
        self._pid = os.getpid()
        self._finalizer = leaving.close_later(self, self._core)
        self._core.begin()

    @property
    def order(self) -> OrderIdentity:
        """See :class:`stoker.supply.Supply`."""
        return self._order

    def next(self, position: Position) -> Delivery:
        """See :class:`stoker.supply.Supply`."""
        if os.getpid() != self._pid:
            raise ClosedError(
                f"this loader belongs to process {self._pid}, whose connections a fork lacks; {forks.REMEDY}"
            )
        flow, is_first = self._core.flow, False
        if flow is None or self._at is None or self._at != position:
            flow, is_first = self._core.start_at(position), True
        self._at = None  # after an error or Ctrl-C in here, nobody knows where it is
        begun_s = time.monotonic()
        say_at_s = begun_s + SAY_AFTER_S
        while (taken := flow.take()) is None:
            deadline_s = begun_s + self._options.timeout_s
            if flow.wait(min(deadline_s, say_at_s)):
                continue
            if time.monotonic() >= deadline_s:
                raise StallError(f"no batch within {self._options.timeout_s:g} s (timeout_s): {self._cause(flow)}")
            waited_s = time.monotonic() - begun_s
            cause = self._cause(flow)
            _log.warning("no batch for %.0f s, waiting up to %g s: %s", waited_s, self._options.timeout_s, cause)
            say_at_s += SAY_AGAIN_S
        place, arrival = taken
        if arrival.failure is not None:
            raise arrival.failure
        delivery = self._delivery(place, arrival, time.monotonic() - begun_s, is_first=is_first)
        self._at = self._deal.after(self._deal.taken(position, place.batch_index))
        return delivery

    def add_between(self, seconds: float) -> None:
        """See :class:`stoker.supply.Supply`."""
        self._counters.between_s += seconds

    def stats(self) -> dict[str, Any]:
        """See :class:`stoker.supply.Supply`."""
        return {
            **self._counters.as_dict(),
            "queued_bytes": self._core.queued_bytes,
            "service": self._url,
            "workers": [owner.worker_id for owner in self._core.assignment.workers],
            "limited_by": verdict(self._counters),
        }

    def close(self) -> None:
        """See :class:`stoker.supply.Supply`."""
        if os.getpid() == self._pid:  # a fork has none of the threads
            self._core.close()
        self._finalizer.detach()

    def _delivery(self, place: Place, arrival: Arrival, waited_s: float, *, is_first: bool) -> Delivery:
        batch, begin = arrival.batch, arrival.begin
        assert batch is not None, "what is here without a failure is a batch"
        assert begin is not None, "and was told of"
        self._core.count(place, begin, batch.num_rows, waited_s, is_first=is_first)
        bad = tuple(error for error in map(from_wire, begin.bad) if isinstance(error, SampleError))
        return Delivery(place.epoch, place.batch_index, batch, bad, begin.num_filtered, tuple(begin.conversions))

    def _cause(self, flow: Flow) -> str:
        place, lane = flow.missing()
        dispatcher = self._core.dispatcher()
        rank = self._deal.rank
        who = f"rank {rank.index} of {rank.world_size}: " if rank.world_size > 1 else ""
        return who + stall_cause(place, lane, dispatcher)


class _Core:
    """What the session's threads refer to, so that a session that is forgotten can be told from one that is used."""

    def __init__(self, means: Means, deal: Deal) -> None:
        self._means = means
        self._deal = deal
        self._lock = threading.Lock()
        self._closing: list[Flow] = []
        self._closed = False
        self._opened_s = time.monotonic()
        self._epoch = 0
        self.flow: Flow | None = None

    @property
    def assignment(self) -> Assignment:
        return self._means.control.assignment

    @property
    def queued_bytes(self) -> int:
        flow = self.flow
        return flow.queued_bytes if flow is not None else 0

    def begin(self) -> None:
        """Let the control thread tell of progress, and hear who owns what."""
        self._means.control.follow(self.progress, self.on_assignment)

    def start_at(self, position: Position) -> Flow:
        """End what is under way and stream from ``position`` on."""
        flow = Flow(self._means, legs(self._deal, self._deal.rank.index, position))
        with self._lock:
            if self._closed:
                raise ClosedError("this loader was closed; make a new one")
            before, self.flow = self.flow, flow
            self._closing = [old for old in self._closing if old.is_live()]
            if before is not None:
                self._closing.append(before)
        if before is not None:
            before.close(time.monotonic())
        flow.start()
        return flow

    def on_assignment(self, assignment: Assignment) -> None:
        flow = self.flow
        if flow is not None:
            flow.on_assignment(assignment)

    def progress(self) -> Progress:
        counters = self._means.counters
        return Progress(
            rows=counters.samples,
            steps=counters.batches,
            wait_s=counters.wait_s,
            active_s=time.monotonic() - self._opened_s,
            epoch=self._epoch,
            queued_bytes=self.queued_bytes,
        )

    def count(self, place: Place, begin: wire.BatchBegin, num_rows: int, waited_s: float, *, is_first: bool) -> None:
        """Count a batch that is handed out."""
        counters = self._means.counters
        counters.batches += 1
        counters.samples += num_rows
        counters.bytes_made += begin.num_bytes
        counters.add_wait(waited_s, begin.wait_storage_s, begin.wait_decode_s, is_first=is_first)
        self._epoch = place.epoch

    def dispatcher(self) -> str:
        """How the dispatcher is, and why there is no worker, for messages."""
        control, reason = self._means.control, self.assignment.reason
        if not control.answers:
            return f"{control.describe()}; if it is gone, start the service again, such as with `stoker up`"
        return f"{control.describe()} and says: {reason}" if reason else control.describe()

    def close(self) -> None:
        """End all threads within ``CLOSE_S``; harmless again."""
        deadline_s = time.monotonic() + CLOSE_S
        with self._lock:
            self._closed = True
            flows = [*self._closing, *([] if self.flow is None else [self.flow])]
            self.flow, self._closing = None, []
        for flow in flows:
            flow.close(deadline_s)
        self._means.control.close(deadline_s)
        self._means.peers.close()


def _check_options(options: SupplyOptions) -> None:
    if options.timeout_s <= 0:
        raise SpecError(f"timeout_s is {options.timeout_s}; it must be above 0")
    if options.prefetch_bytes < 0:
        raise SpecError(f"prefetch_bytes is {options.prefetch_bytes}; it must be at least 0")


def _abandon(control: Control, peers: Peers, opening: Opening) -> None:
    """Let go of what was opened, in a thread of its own: the error should be seen at once."""

    def close() -> None:
        opening.close()
        control.close(time.monotonic() + CLOSE_S)
        peers.close()

    threading.Thread(target=close, name="stoker-leave", daemon=True).start()
