"""A batch as the bytes of an Arrow stream, which lie where the batch's own buffers lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

SLICE_SCHEMA: Final = pa.schema([pa.field("bytes", pa.uint8(), nullable=False)])
MIN_SLICE_BYTES: Final = 1 << 20
MAX_SLICE_BYTES: Final = 4 << 20

_SMALL_BYTES = 4096  # below, a copy costs less than a piece of its own


@dataclass(frozen=True, slots=True)
class Encoded:
    """An Arrow IPC stream of ``num_bytes`` bytes, which are the ``pieces`` one behind another.

    Large pieces are the batch's own memory: it stays in use for as long as they are referred to.
    """

    pieces: tuple[pa.Buffer, ...]
    num_bytes: int


def encode(batch: pa.RecordBatch) -> Encoded:
    """Return the stream of one batch without a copy of what is large: about 0.1 ms whatever the batch's size."""
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), batch.schema) as writer:
        writer.write_batch(batch)
    pieces = tuple(_joined(sink.parts, _SMALL_BYTES, _SMALL_BYTES * 16))
    return Encoded(pieces, sum(piece.size for piece in pieces))


def slices(encoded: Encoded, slice_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut the bytes into messages of at most ``slice_bytes`` (held between 1 and 4 MiB), as batches of one column.

    Rows are not looked at: one may be larger than a message. Pieces that are small beside a message are joined, which
    copies them; large ones are cut where they lie.
    """
    size = min(max(slice_bytes, MIN_SLICE_BYTES), MAX_SLICE_BYTES)
    for piece in _joined(encoded.pieces, size // 8, size):
        for start in range(0, piece.size, size):
            yield _slice(piece.slice(start, min(size, piece.size - start)))


def _slice(part: pa.Buffer) -> pa.RecordBatch:
    column = pa.Array.from_buffers(pa.uint8(), part.size, [None, part], 0)
    return pa.RecordBatch.from_arrays([column], schema=SLICE_SCHEMA)


def _joined(parts: Iterable[pa.Buffer | bytes], small_bytes: int, most_bytes: int) -> Iterator[pa.Buffer]:
    """Join neighbours below ``small_bytes`` into buffers of at most ``most_bytes``; leave the others as they are."""
    waiting: list[pa.Buffer | bytes] = []
    num_waiting = 0
    for part in parts:
        is_small = len(part) < small_bytes
        if waiting and (not is_small or num_waiting + len(part) > most_bytes):
            yield _join(waiting)
            waiting, num_waiting = [], 0
        if not is_small:
            yield pa.py_buffer(part)
        elif len(part):
            waiting.append(part)
            num_waiting += len(part)
    if waiting:
        yield _join(waiting)


def _join(parts: list[pa.Buffer | bytes]) -> pa.Buffer:
    return pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))


class _Sink:
    """A file that keeps what is written to it: Arrow hands buffers of a batch over as they are, the rest as bytes."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[pa.Buffer | bytes] = []
        self._num_bytes = 0

    def write(self, part: pa.Buffer | bytes) -> int:
        self.parts.append(part)
        self._num_bytes += len(part)
        return len(part)

    def tell(self) -> int:
        return self._num_bytes

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The parts stay."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
