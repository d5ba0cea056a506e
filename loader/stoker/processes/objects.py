"""Results of a worker as messages, whose large buffers stay in memory that both sides see."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.batch.pool import BufferPool
from stoker.memory.arena import Arena
from stoker.processes.lent import LentMemory
from stoker.processes.results.layout import INLINE, Parsed, Place, begun, finished, inline_ranges, parse
from stoker.processes.results.outgoing import Outgoing, address_of
from stoker.processes.results.pickler import Pickler
from stoker.processes.storages import check_sparse_tensors

_ALIGNMENT_BYTES = 16  # of malloc, which all NumPy dtypes are satisfied with


class Encoder:
    """A worker's side: makes messages, and keeps the memory that the trainer looks at. For one thread.

    ``pool`` takes its blocks from ``arena``. What already lies there is not copied, so a trainer that writes into its
    batch writes into the worker's.
    """

    def __init__(self, pool: BufferPool, arena: Arena | None) -> None:
        self._pool = pool
        self._arena = arena
        self._held: dict[int, list[Any]] = {}

    def encode(self, value: Any) -> list[bytes | memoryview]:
        """Return the parts of one message for :func:`decode`; send them before the value is changed.

        Large buffers lie in the arena and are held until :meth:`release`, once for each time they were encoded. Raises
        what a part of the value raises that cannot be pickled; then nothing of it is held.
        """
        out = Outgoing(self._pool, self._arena)
        file = begun()
        Pickler(file, out).dump(value)
        for offset, owner in out.held:
            self._held.setdefault(offset, []).append(owner)
        return finished(file, out.places, out.inline)

    def release(self, offsets: Sequence[int]) -> None:
        """Give up what the trainer has returned, each offset once; what is not held is passed over."""
        for offset in offsets:
            owners = self._held.get(offset)
            if owners is not None:
                owners.pop()
                if not owners:
                    del self._held[offset]

    def forget(self) -> None:
        """Give up all that is held: only when nobody looks at any of it any more."""
        self._held.clear()


def decode(body: memoryview, memory: LentMemory | None) -> Any:
    """Return the value of a message.

    Its large arrays and tensors lie over ``memory``, which is given back when they are gone, or over ``body``. All can
    be written to, but for arrays that could not be before. Raises ValueError if the message has places in a memory that
    is not given; and whatever the value's own classes raise.
    """
    parsed = parse(body)
    value = pickle.loads(parsed.head, buffers=_buffers(body, parsed, memory) if parsed.places else None)
    check_sparse_tensors()
    return value


def inlined(body: memoryview, memory: LentMemory | None) -> list[bytes | memoryview]:
    """Return the parts of the same message without places in ``memory``.

    The memory is given back when the parts are gone: to drop a message unread, call this and drop what it returns.
    """
    parsed = parse(body)
    if all(place.offset == INLINE for place in parsed.places):
        return [body]
    file = begun()
    file.write(parsed.head)
    places = [Place(INLINE, place.num_bytes) for place in parsed.places]
    return finished(file, places, [buffer.data for buffer in _buffers(body, parsed, memory)])


def _buffers(body: memoryview, parsed: Parsed, memory: LentMemory | None) -> list[NDArray[np.uint8]]:
    """The memory of each row of the table."""
    ranges = iter(inline_ranges(parsed.places, parsed.inline_start))
    whole = np.frombuffer(body, np.uint8)
    is_usable = whole.flags.writeable and address_of(whole) % _ALIGNMENT_BYTES == 0
    buffers = []
    for place in parsed.places:
        if place.offset == INLINE:
            start, stop = next(ranges)
            buffers.append(whole[start:stop] if is_usable else whole[start:stop].copy())
        elif memory is None:
            raise ValueError("a message whose buffers lie in a worker's arena, which is not mapped here")
        else:
            buffers.append(memory.lend(place.offset, place.num_bytes))
    return buffers
