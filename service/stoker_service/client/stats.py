"""Counters of one session, with the word that names what limits it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Counters:
    """Running sums since the session was opened. Written under one lock, but for ``between_s``.

    ``wait_*_s`` is what the trainer waited inside ``next()``: for chunks that the worker did not have yet, for samples
    that it had not decoded yet, or for anything else: credits and bytes on their way, connections made anew.
    ``start_s`` is what it waited for the first batch after a start or a jump, which says nothing of the rate.
    ``receive_s`` and ``copy_s`` are spent in the threads of lanes, beside the trainer's own.
    """

    batches: int = 0
    samples: int = 0
    bytes_made: int = 0
    bytes_received: int = 0
    arena_batches: int = 0
    socket_batches: int = 0
    reconnects: int = 0
    moves: int = 0
    start_s: float = 0.0
    wait_read_s: float = 0.0
    wait_decode_s: float = 0.0
    wait_network_s: float = 0.0
    receive_s: float = 0.0
    copy_s: float = 0.0
    between_s: float = 0.0

    @property
    def wait_s(self) -> float:
        """All that the trainer waited."""
        return self.start_s + self.wait_read_s + self.wait_decode_s + self.wait_network_s

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def add_wait(self, waited_s: float, storage_s: float, decode_s: float, *, is_first: bool) -> None:
        """Count a wait of the trainer, of which the worker says how long it waited for chunks and for rows."""
        if is_first:
            self.start_s += waited_s
            return
        reading = min(waited_s, storage_s)
        decoding = min(waited_s - reading, decode_s)
        self.wait_read_s += reading
        self.wait_decode_s += decoding
        self.wait_network_s += waited_s - reading - decoding


def verdict(counters: Counters) -> str:
    """Which part limits the rate: ``storage``, ``decode``, ``network`` or ``trainer``; ``unknown`` in the beginning.

    The trainer limits when it waits less than a fiftieth of the time; otherwise the largest of its waits is named.
    """
    waits = {
        "storage": counters.wait_read_s,
        "decode": counters.wait_decode_s,
        "network": counters.wait_network_s,
    }
    waited = sum(waits.values())
    total = waited + counters.between_s
    if counters.batches == 0 or total == 0.0:
        return "unknown"
    if waited < 0.02 * total:
        return "trainer"
    return max(waits, key=lambda name: waits[name])
