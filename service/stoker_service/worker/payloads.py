"""Torch datasets, with their functions, that clients have sent: each kept once for all processes that open it."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from stoker.errors import ClosedError
from stoker.processes.payload import Payload


@dataclass(slots=True)
class _Kept:
    """``payload`` is None while the first who wants it receives it."""

    payload: Payload | None = None
    num_users: int = 0


class Payloads:
    """Payloads by the hash of their bytes. Safe for all threads.

    Those that nobody holds are kept as long as they are at most ``max_idle_bytes`` together: the next epoch, the next
    rank or the loader that is made again finds them here.
    """

    def __init__(self, max_idle_bytes: int) -> None:
        self._max_idle_bytes = max_idle_bytes
        self._changed = threading.Condition()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # least recently used first
        self._is_closed = False

    def hold(
        self, digest: str, receive: Callable[[], Payload], beat_s: float, is_waited_for: Callable[[], bool]
    ) -> Payload:
        """The payload of a hash, to be given back by :meth:`drop`; received by whoever wants it first.

        ``is_waited_for`` is asked each ``beat_s`` while another one receives it. Raises what ``receive`` raises, and
        ClosedError if nobody waits any more.
        """
        with self._changed:
            while (kept := self._kept.get(digest)) is not None and kept.payload is None:
                self._changed.wait(beat_s)
                if self._is_closed or not is_waited_for():
                    raise ClosedError("nobody waits for the dataset any more")
            if kept is not None and kept.payload is not None:
                kept.num_users += 1
                self._kept.move_to_end(digest)
                return kept.payload
            kept = self._kept[digest] = _Kept()
        try:
            payload = receive()
        except BaseException:
            with self._changed:
                del self._kept[digest]
                self._changed.notify_all()
            raise
        with self._changed:
            kept.payload, kept.num_users = payload, 1
            self._evict()
            self._changed.notify_all()
        return payload

    def drop(self, digest: str) -> None:
        """One holder less."""
        with self._changed:
            self._kept[digest].num_users -= 1
            self._evict()

    @property
    def num_bytes(self) -> int:
        """Of all payloads that are here."""
        with self._changed:
            return sum(kept.payload.num_bytes for kept in self._kept.values() if kept.payload is not None)

    def close(self) -> None:
        """Keep no more than what is held."""
        with self._changed:
            self._is_closed = True
            self._max_idle_bytes = 0
            self._evict()
            self._changed.notify_all()

    def _evict(self) -> None:
        idle = [
            (digest, kept.payload)
            for digest, kept in self._kept.items()
            if kept.payload is not None and not kept.num_users
        ]
        num_bytes = sum(payload.num_bytes for _, payload in idle)
        for digest, payload in idle:
            if num_bytes <= self._max_idle_bytes:
                return
            num_bytes -= payload.num_bytes
            del self._kept[digest]
            with contextlib.suppress(OSError):
                payload.close()
