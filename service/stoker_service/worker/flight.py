"""The worker's Flight server: streams, and what clients ask before they open them."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError
from pyarrow import flight

from stoker.errors import ClosedError, ServiceError, SpecError, StokerError
from stoker_proto.v1 import control_pb2, stream_pb2
from stoker_service import limits, versions
from stoker_service.transport.encode import SLICE_SCHEMA
from stoker_service.transport.errors import to_wire
from stoker_service.transport.flight import DESCRIBE, HELLO
from stoker_service.worker import dataset_stream, streams
from stoker_service.worker.dataset_stream import DatasetStream
from stoker_service.worker.keeper import Keeper
from stoker_service.worker.streams import Stream

MAX_STREAMS: Final = 4096
"""Open at a time; Flight has a thread for each."""

PROGRESS_S: Final = 1.0

_LOG: Final = logging.getLogger("stoker")


class Home(streams.Home, dataset_stream.Home, Protocol):
    """The worker, as its Flight server sees it."""

    @property
    def worker_id(self) -> str: ...

    @property
    def life(self) -> str: ...

    @property
    def host_id(self) -> str: ...

    @property
    def arena_socket(self) -> str:
        """Where the arena's descriptor is handed out; empty without an arena."""

    @property
    def keeper(self) -> Keeper:
        """What answers the other workers."""


def _never() -> bool:
    return False


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow carries no types
    """Listens from the constructor on, until :meth:`shutdown`. Its methods are called in Flight's threads."""

    def __init__(self, home: Home, location: str) -> None:
        self._home = home
        self._changed = threading.Condition()
        self._streams: set[Stream | DatasetStream] = set()
        super().__init__(location)

    # -- called by Flight ---------------------------------------------------------------------------------------------

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Serve a stream; see stream.proto."""
        command = descriptor.command or b""
        kind = DatasetStream if dataset_stream.asks_for_process(command) else Stream
        stream = kind(self._home, context, reader, writer)
        with self._changed:
            num_streams = len(self._streams)
            if num_streams < MAX_STREAMS:
                self._streams.add(stream)
        if num_streams >= MAX_STREAMS:
            error = ServiceError(f"this worker has {num_streams} streams open, which is the most that it serves")
            writer.write_metadata(stream_pb2.Message(error=to_wire(error)).SerializeToString())
            return
        try:
            stream.serve(command)
        finally:
            with self._changed:
                self._streams.discard(stream)
                self._changed.notify_all()

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Give another worker ranges that this one keeps; see stream.proto."""
        del context
        return flight.GeneratorStream(SLICE_SCHEMA, self._home.keeper.answer(ticket.ticket))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Answer ``hello`` and ``describe``."""
        body = action.body.to_pybytes() if action.body is not None else b""
        match action.type:
            case "hello":
                yield flight.Result(self._hello(body).SerializeToString())
            case "describe":
                for answer in self._describe(context, body):
                    yield flight.Result(answer.SerializeToString())
            case other:
                raise flight.FlightServerError(f"expected the action {HELLO!r} or {DESCRIBE!r}, found {other!r}")

    def list_actions(self, context: Any) -> list[Any]:
        """What :meth:`do_action` answers."""
        del context
        return [(HELLO, "who this worker is"), (DESCRIBE, "what a pipeline's data are")]

    # -- called by the worker -----------------------------------------------------------------------------------------

    @property
    def num_streams(self) -> int:
        return len(self._streams)

    def leave(self) -> None:
        """Tell all streams to end; those that wait for credit are told by a message of its own."""
        with self._changed:
            open_streams = list(self._streams)
        for stream in open_streams:  # each may be held up by a client that does not read
            threading.Thread(target=stream.leave, name="stoker-leave", daemon=True).start()

    def drain_datasets(self) -> None:
        """Have datasets' streams end once what is in hand is sent: their clients do not move by themselves."""
        with self._changed:
            open_streams = [stream for stream in self._streams if isinstance(stream, DatasetStream)]
        for stream in open_streams:
            stream.leave()

    def look_again(self) -> None:
        """Have whoever waits for the streams see whether that is still worth it."""
        with self._changed:
            self._changed.notify_all()

    def wait_for_streams(self, deadline_s: float, is_in_vain: Callable[[], bool] = _never) -> bool:
        """Wait until no stream is open; False if it is in vain, or some are open at the deadline (monotonic clock)."""
        with self._changed:
            while self._streams:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or is_in_vain():
                    return False
                self._changed.wait(left_s)
        return True

    # -- answers ------------------------------------------------------------------------------------------------------

    def _hello(self, body: bytes) -> stream_pb2.WorkerHello:
        """Who this is, whatever the caller speaks: it is for the caller to say that it does not fit."""
        with contextlib.suppress(DecodeError):
            control_pb2.HelloRequest.FromString(body)
        return stream_pb2.WorkerHello(
            version=versions.ours(),
            worker_id=self._home.worker_id,
            host_id=self._home.host_id,
            arena_socket=self._home.arena_socket,
            limits=control_pb2.Limits(max_pipeline_bytes=limits.MAX_PIPELINE_BYTES, max_lanes=limits.MAX_LANES),
            beat_ms=round(self._home.beat_s * 1000),
            life=self._home.life,
        )

    def _describe(self, context: Any, body: bytes) -> Iterator[stream_pb2.Description]:
        try:
            asked = stream_pb2.DescribeRequest.FromString(body)
            pipeline = self._home.producers.pipeline(asked.pipeline)
            opening = self._home.producers.opening(pipeline)
            while not opening.wait(PROGRESS_S):
                if context.is_cancelled():
                    return
                yield stream_pb2.Description(progress=opening.progress)
            dataset = opening.result.result().dataset
            answer = stream_pb2.Description(dataset=dataset.fingerprint, num_samples=dataset.chunks.num_samples)
        except ClosedError:
            answer = stream_pb2.Description(error=to_wire(ServiceError(f"{self._home.worker_id} stops; ask another")))
        except DecodeError:
            answer = stream_pb2.Description(error=to_wire(SpecError("expected a DescribeRequest, found other bytes")))
        except Exception as error:  # noqa: BLE001  # the call's outermost place: the client must hear of it
            if not isinstance(error, StokerError):
                _LOG.error("a data set could not be described", exc_info=error)
            answer = stream_pb2.Description(error=to_wire(error))
        yield answer
