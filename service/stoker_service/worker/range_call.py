"""One call to another worker for ranges that it keeps."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf.message import DecodeError
from pyarrow import flight

from stoker.errors import StokerError
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.errors import from_wire
from stoker_service.transport.flight import translate
from stoker_service.worker import range_bytes

Ticket: TypeAlias = Callable[[bool], bytes]
"""The call's ticket, with the source's text or without."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long another worker is waited for.

    ``heard_s``: for its first word, which it says before it reads anything. ``wait_s``: from then on for all, its
    reading included.
    """

    heard_s: float = 3.0
    wait_s: float = 6.0


class WantsSource(Exception):  # noqa: N818  # no error: the call is made again
    """The other worker does not know the source."""


class RangeCall:
    """Runs in a thread (:meth:`run`) for another one that waits (:meth:`wait`); the two never share more than this."""

    def __init__(
        self, client: flight.FlightClient, location: str, ticket: Ticket, sizes: Sequence[int], patience: Patience
    ) -> None:
        self._client = client
        self.location = location
        self._ticket = ticket
        self._sizes = sizes
        self._heard_s, self._wait_s = patience.heard_s, patience.wait_s
        self._changed = threading.Condition()
        self._reader: Any = None
        self._is_begun = self._is_heard = self._is_done = self._is_given_up = False
        self._bodies: list[memoryview] | None = None
        self.begun_s = self._made_s = self._heard_at_s = time.monotonic()
        self.is_late = False
        """Whether it was given up since no answer came in time."""
        self.failure: StokerError | None = None
        """What it failed with, or was refused with."""

    def run(self, knows_source: bool) -> None:
        """Make the call. Raises nothing: how it ended is for who waits."""
        if not self._begin():
            return
        bodies, failure = None, None
        try:
            try:
                bodies = self._fetched(with_source=not knows_source)
            except WantsSource:
                bodies = self._fetched(with_source=True)
        except WantsSource:
            failure = StokerError(f"worker {self.location} does not know a source that it was just sent")
        except StokerError as error:
            failure = error
        except (pa.ArrowException, OSError) as error:
            failure = translate(error, self.location)
        except DecodeError:
            failure = StokerError(f"worker {self.location} answered with what is no RangesAnswer")
        with self._changed:
            if self._is_given_up:
                return
            self._bodies, self.failure = bodies, failure
            self._is_done, self._reader = True, None
            self._changed.notify_all()

    def _begin(self) -> bool:
        """Say that it begins; False if nobody waits any more."""
        with self._changed:
            self._is_begun = not self._is_given_up
            self.begun_s = time.monotonic()
            self._changed.notify_all()
            return self._is_begun

    def wait(self) -> list[memoryview] | None:
        """The bodies; None if there are none in time, and the call is cut."""
        with self._changed:
            is_done = (
                self._wait_until(lambda: self._is_begun, self._made_s + self._heard_s)
                and self._wait_until(lambda: self._is_heard or self._is_done, self.begun_s + self._heard_s)
                and self._wait_until(lambda: self._is_done, self._heard_at_s + self._wait_s)
            )
            if is_done or self._is_given_up:
                return self._bodies
            self.is_late = self._is_begun
        self.cancel()
        return None

    def cancel(self) -> None:
        """Give it up; who waits for it gets None. Harmless if it has ended."""
        with self._changed:
            self._is_given_up = True
            reader = self._reader
            self._changed.notify_all()
        if reader is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                reader.cancel()

    @property
    def was_answered(self) -> bool:
        """Whether the other worker said a word, and all that it had to say."""
        return self._is_heard and self._is_done

    def _wait_until(self, is_so: Callable[[], bool], deadline_s: float) -> bool:
        self._changed.wait_for(lambda: is_so() or self._is_given_up, max(0.0, deadline_s - time.monotonic()))
        return is_so()

    def _fetched(self, *, with_source: bool) -> list[memoryview]:
        options = flight.FlightCallOptions(timeout=self._heard_s + self._wait_s)
        reader = self._client.do_get(flight.Ticket(self._ticket(with_source)), options)
        with self._changed:
            if self._is_given_up:
                reader.cancel()
            self._reader = reader
        return range_bytes.joined(self._parts(reader), self._sizes)

    def _parts(self, reader: Any) -> Iterator[pa.RecordBatch]:
        """The slices as they come, once the worker has said its word. Raises what it says instead."""
        for chunk in reader:
            if not self._is_heard:
                with self._changed:
                    self._is_heard, self._heard_at_s = True, time.monotonic()
                    self._changed.notify_all()
            if chunk.app_metadata is not None and chunk.app_metadata.size:
                answer = stream_pb2.RangesAnswer.FromString(chunk.app_metadata.to_pybytes())
                if answer.HasField("error"):
                    raise from_wire(answer.error)
                if answer.wants_source:
                    raise WantsSource
            if chunk.data is not None:
                yield chunk.data
