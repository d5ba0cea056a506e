"""Gives other workers the ranges that this one keeps for the fleet."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa

from stoker.errors import ClosedError, ServiceError, StokerError
from stoker.pipeline import Pipeline
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.errors import to_wire
from stoker_service.worker import range_bytes, range_request
from stoker_service.worker.belonging import Belongings
from stoker_service.worker.producer import Opened
from stoker_service.worker.range_request import Asked

MAX_CALLS: Final = 64
"""At a time; Flight has a thread for each."""

MAX_BYTES: Final = 256 << 20
"""Of the ranges being read and sent; a single call may have more if it is alone."""

MAX_KNOWN: Final = 16
BUSY_S: Final = 0.5

Open: TypeAlias = Callable[[Pipeline, str, float, Callable[[str], bool]], Opened]
"""As :meth:`stoker_service.worker.producers.Producers.opened`."""

Part: TypeAlias = tuple[pa.RecordBatch, bytes]

_LOG: Final = logging.getLogger("stoker")


class Keeper:
    """Answers calls for ranges, each in a thread of Flight's. It never asks another worker: nobody waits in a circle.

    A call names a data set, which is opened here with this worker's own rights, and ranges of its objects. Anything
    else is refused: a worker is no open proxy.
    """

    def __init__(self, open_: Open, *, max_calls: int = MAX_CALLS, max_bytes: int = MAX_BYTES) -> None:
        self._open = open_
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._num_calls = 0
        self._num_bytes = 0
        self._given_bytes = 0
        self._is_closed = False
        self._pipelines: OrderedDict[bytes, Pipeline] = OrderedDict()  # least recently used first
        self._known: OrderedDict[tuple[bytes, str], Belongings] = OrderedDict()

    @property
    def given_bytes(self) -> int:
        """Bytes given since the start."""
        return self._given_bytes

    def answer(self, ticket: bytes) -> Iterator[Part]:
        """What goes back for a ticket: a word at once, then the bytes or an error. Raises nothing."""
        yield range_bytes.NO_BYTES, stream_pb2.RangesAnswer().SerializeToString()
        try:
            asked = range_request.read(ticket)
            deadline_s = time.monotonic() + asked.wait_s
            pipeline = self._pipeline(asked)
            if pipeline is None:
                yield range_bytes.NO_BYTES, stream_pb2.RangesAnswer(wants_source=True).SerializeToString()
                return
            with self._one_more_call():
                found = self._belongings(asked, pipeline, deadline_s)
                found.check(asked.ranges)
                with self._room(asked.num_bytes, deadline_s):
                    for part in range_bytes.cut(found.dataset.stores.serve(asked.ranges, asked.uses)):
                        yield part, b""
        except Exception as error:  # noqa: BLE001  # the call's outermost place: the caller must hear of it
            if not isinstance(error, StokerError):
                _LOG.error("ranges could not be given to another worker", exc_info=error)
            yield range_bytes.NO_BYTES, stream_pb2.RangesAnswer(error=to_wire(error)).SerializeToString()
        else:
            with self._changed:
                self._given_bytes += asked.num_bytes

    def close(self) -> None:
        """Refuse what comes, and what waits for room."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # -- room ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _one_more_call(self) -> Iterator[None]:
        """Count a call. Raises ServiceError if it is one too many."""
        with self._changed:
            if self._num_calls >= self._max_calls:
                raise ServiceError(f"full: this worker answers {self._num_calls} calls of others, which is its most")
            self._num_calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_calls -= 1

    @contextlib.contextmanager
    def _room(self, num_bytes: int, deadline_s: float) -> Iterator[None]:
        """Take room for bytes, waiting for it. Raises ServiceError if there is none in time."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._has_room(num_bytes), max(0.0, deadline_s - time.monotonic())
            )
            if self._is_closed:
                raise ServiceError("this worker stops")
            if not self._has_room(num_bytes):
                raise ServiceError(f"full: this worker sends {self._num_bytes} bytes to others")
            self._num_bytes += num_bytes
        try:
            yield
        finally:
            with self._changed:
                self._num_bytes -= num_bytes
                self._changed.notify_all()

    def _has_room(self, num_bytes: int) -> bool:
        return not self._num_bytes or self._num_bytes + num_bytes <= self._max_bytes

    # -- data sets ----------------------------------------------------------------------------------------------------

    def _pipeline(self, asked: Asked) -> Pipeline | None:
        """What reads the source that is asked for; None if it was never told."""
        with self._changed:
            if asked.digest in self._pipelines:
                self._pipelines.move_to_end(asked.digest)
                return self._pipelines[asked.digest]
        if asked.source is None:
            return None
        made = asked.source.read()
        with self._changed:
            _put(self._pipelines, asked.digest, made)
        return made

    def _belongings(self, asked: Asked, pipeline: Pipeline, deadline_s: float) -> Belongings:
        name = asked.digest, asked.fingerprint
        with self._changed:
            if name in self._known:
                self._known.move_to_end(name)
                return self._known[name]

        def is_waited_for(_busy: str) -> bool:
            return time.monotonic() < deadline_s and not self._is_closed

        try:
            opened = self._open(pipeline, asked.fingerprint, BUSY_S, is_waited_for)
        except ClosedError:
            raise ServiceError("the data set is still being opened here, or this worker stops") from None
        found = Belongings(opened.dataset)
        with self._changed:
            _put(self._known, name, found)
        return found


def _put(kept: OrderedDict[Any, Any], name: Any, value: Any) -> None:
    kept[name] = value
    while len(kept) > MAX_KNOWN:
        kept.popitem(last=False)
