"""Connections to workers, with the memory that those of this host share."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from pyarrow import flight

from stoker.errors import ClosedError, ServiceError
from stoker_proto.v1 import control_pb2, stream_pb2
from stoker_service import versions
from stoker_service.client.owners import Owner
from stoker_service.transport import flight as calls
from stoker_service.transport.arena_view import ArenaView
from stoker_service.transport.host import host_id

HELLO_S: Final = 2.0
"""How long a worker may take to say hello, the connection included."""

_ARENA_S = 1.0
_DEFAULT_BEAT_MS = 1000

_log = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker that said hello: its connection, its beat, its memory if it is shared, and which process it is."""

    owner: Owner
    client: flight.FlightClient
    beat_s: float
    arena: ArenaView | None
    life: str = ""


class Peers:
    """One connection to each worker, made at first use, shared by all lanes. Safe for all threads.

    A connection that failed is dropped rather than closed, since other lanes may still read from it.
    """

    def __init__(self, *, use_arenas: bool = True) -> None:
        self._use_arenas = use_arenas
        self._lock = threading.Lock()
        self._peers: dict[Owner, Future[Peer]] = {}
        self._socket_only: set[str] = set()
        self._closed = False

    def of(self, owner: Owner) -> Peer:
        """The connection to a worker. Raises ServiceError if it does not answer within ``HELLO_S``.

        Raises StokerError if its version does not fit, ClosedError.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the session was closed")
            made: Future[Peer] = Future()
            waiting = self._peers.get(owner)
            if waiting is None:
                self._peers[owner] = made
        if waiting is not None:
            return waiting.result()  # whoever makes it has a deadline
        try:
            made.set_result(self._greet(owner))
        except BaseException as error:
            self._forget(owner, made)
            made.set_exception(error)
            raise
        return made.result()

    def drop(self, peer: Peer) -> None:
        """Make the next use of this worker say hello anew."""
        with self._lock:
            found = self._peers.get(peer.owner)
            if found is not None and found.done() and found.exception() is None and found.result() is peer:
                del self._peers[peer.owner]

    def refuse_arena(self, peer: Peer, reason: str) -> None:
        """Take this worker's batches through the socket from now on."""
        self._warn(peer.owner, reason)
        self.drop(peer)

    def close(self) -> None:
        """Close all connections, once nobody uses them any more; harmless again."""
        with self._lock:
            self._closed = True
            peers = [found.result() for found in self._peers.values() if found.done() and found.exception() is None]
            self._peers.clear()
        for peer in peers:
            if peer.arena is not None:
                peer.arena.close()
            peer.client.close()

    def _forget(self, owner: Owner, made: Future[Peer]) -> None:
        with self._lock:
            if self._peers.get(owner) is made:
                del self._peers[owner]

    def _greet(self, owner: Owner) -> Peer:
        client = calls.connect(owner.location)
        with closed_on_error(client):
            body = control_pb2.HelloRequest(version=versions.ours()).SerializeToString()
            answers = list(calls.act(client, owner.location, calls.HELLO, body, HELLO_S))
            if not answers:
                raise ServiceError(f"{owner} said nothing")
            hello = stream_pb2.WorkerHello.FromString(answers[0])
            versions.check(hello.version, str(owner))
            beat_s = (hello.beat_ms or _DEFAULT_BEAT_MS) / 1000
            return Peer(owner, client, beat_s, self._arena_of(owner, hello), hello.life)

    def _arena_of(self, owner: Owner, hello: stream_pb2.WorkerHello) -> ArenaView | None:
        if not self._use_arenas or not hello.arena_socket or hello.host_id != host_id():
            return None
        if owner.location in self._socket_only:
            return None
        try:
            return ArenaView.open(hello.arena_socket, _ARENA_S)
        except OSError as error:
            self._warn(owner, str(error))
            return None

    def _warn(self, owner: Owner, reason: str) -> None:
        with self._lock:
            is_known = owner.location in self._socket_only
            self._socket_only.add(owner.location)
        if not is_known:
            _log.warning("%s shares no memory with this process (%s): its batches come by socket", owner, reason)


@contextlib.contextmanager
def closed_on_error(client: flight.FlightClient) -> Iterator[None]:
    """Close a client that nobody else has seen, if what is done with it fails."""
    try:
        yield
    except BaseException:
        client.close()
        raise
