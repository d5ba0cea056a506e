"""What a stream says to its client."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from stoker.errors import ClosedError, StokerError
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.encode import SLICE_SCHEMA
from stoker_service.transport.errors import to_wire

_LOG: Final = logging.getLogger("stoker")

LEAVING: Final = stream_pb2.Message(leaving=stream_pb2.Leaving())


class Gone(Exception):  # noqa: N818  # no error: clients come and go
    """The client hung up, or the connection broke."""


class Voice:
    """The writer of one call, for any thread until :meth:`end`, which comes before the call's end."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._lock = threading.Lock()  # guards the writer, and that nobody writes once the call has ended
        self._has_begun = False
        self._is_over = False

    def say(self, message: stream_pb2.Message, part: pa.RecordBatch | None = None) -> None:
        """Write a message. Raises Gone if nobody is there to read it."""
        text = message.SerializeToString()
        with self._lock:
            if self._is_over:
                raise Gone
            try:
                if part is None:
                    self._writer.write_metadata(text)
                    return
                if not self._has_begun:
                    self._writer.begin(SLICE_SCHEMA)
                    self._has_begun = True
                self._writer.write_with_metadata(part, text)
            except (pa.ArrowException, OSError):
                raise Gone from None

    def attend(self, reader: Any, what: str, serve: Callable[[], None]) -> None:
        """Serve a call, say what goes wrong, and wait for its client's end. Raises nothing."""
        try:
            serve()
        except Gone:
            pass
        except ClosedError:  # what it needs is being closed, since the worker stops
            with contextlib.suppress(Gone):
                self.say(LEAVING)
        except Exception as error:  # noqa: BLE001  # the call's outermost place: the client must hear of it
            if not isinstance(error, StokerError):
                _LOG.error("%s failed", what, exc_info=error)
            with contextlib.suppress(Gone):
                self.say(stream_pb2.Message(error=to_wire(error)))
        await_hang_up(reader)
        self.end()

    def end(self) -> None:
        """Say nothing more."""
        with self._lock:
            self._is_over = True


def await_hang_up(reader: Any) -> None:
    """Wait until the client has read all, and says so by hanging up.

    If the call ended before, what the client sends meanwhile would fail, and Arrow's client then throws away what it
    has not read yet: the last batch, or the error.
    """
    with contextlib.suppress(StopIteration, pa.ArrowException, OSError):
        while True:
            reader.read_chunk()
