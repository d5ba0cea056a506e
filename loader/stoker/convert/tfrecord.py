"""Records of TFRecord files, each a ``tf.train.Example``.

A frame: the length (uint64), the masked CRC32C of these 8 bytes, the record, its masked CRC32C. The first are verified
when the file is surveyed, the last when a record is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from stoker.convert.example import parse, values
from stoker.convert.fields import to_fields
from stoker.convert.records import Survey, joined
from stoker.convert.runs import runs
from stoker.convert.source_files import digest_of, read, read_whole
from stoker.errors import SampleError, SampleOrigin
from stoker.formats import compressed
from stoker.formats.stores import Stores
from stoker.formats.window import Window
from stoker.sample import RawSample
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import shown

HEAD_BYTES = 12
_TAIL_BYTES = 4
_MASK = 0xA282EAD8


@dataclass(frozen=True, slots=True)
class Frames:
    """Where the records of a file begin and how long they are; ``problem`` says why there are no more."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    problem: str = ""


class TfRecords:
    """The files as parts. Files in gzip are inflated whole."""

    kind = "tfrecord"

    def __init__(
        self, stores: Stores, folder: str, entries: Sequence[ObjectInfo], columns: Sequence[str] | None = None
    ) -> None:
        self._stores = stores
        self._entries = list(entries)
        self._columns = None if columns is None else frozenset(columns)
        self.digest = digest_of(self.kind, folder, self._entries)
        self.classes: Mapping[str, Sequence[str]] = {}
        self.costs_whole_parts = False
        self._frames: list[Frames] = []
        self._packed: set[int] = set()

    def survey(self, pool: Executor) -> Survey:
        self._frames = list(pool.map(self._scan, range(len(self._entries))))
        self.costs_whole_parts = bool(self._packed)
        problems = [
            SampleError(frames.problem, origin=SampleOrigin(shown(entry.url), len(frames.starts), ""))
            for entry, frames in zip(self._entries, self._frames, strict=True)
            if frames.problem
        ]
        return joined([frames.sizes for frames in self._frames], problems)

    def read(self, part: int, rows: Sequence[int]) -> Iterator[RawSample | SampleError]:
        entry, frames = self._entries[part], self._frames[part]
        content = self._inflated(entry)[0] if part in self._packed else None
        wanted = np.asarray(rows, np.int64)
        begins = (frames.starts[wanted] - HEAD_BYTES).tolist()
        ends = (frames.starts[wanted] + frames.sizes[wanted] + _TAIL_BYTES).tolist()
        for run in runs(rows, begins, ends):
            start, stop = begins[run[0]], ends[run[-1]]
            body = content[start:stop] if content is not None else read(self._stores, entry, start, stop)
            for index in run:
                yield self._sample(entry.url, rows[index], body[begins[index] - start : ends[index] - start])

    def _scan(self, part: int) -> Frames:
        entry = self._entries[part]
        if entry.size_bytes >= 3 and compressed.is_gzip(read(self._stores, entry, 0, 3)):
            self._packed.add(part)
            content, is_whole = self._inflated(entry)
            found = scan(Window(lambda start, stop: content[start:stop], len(content)), len(content))
            return (
                found if is_whole else Frames(found.starts, found.sizes, f"its gzip stream is damaged; {found.problem}")
            )
        return scan(
            Window(lambda start, stop: read(self._stores, entry, start, stop), entry.size_bytes), entry.size_bytes
        )

    def _inflated(self, entry: ObjectInfo) -> tuple[memoryview, bool]:
        return compressed.inflate(shown(entry.url), read_whole(self._stores, entry))

    def _sample(self, url: str, row: int, frame: memoryview) -> RawSample | SampleError:
        origin = SampleOrigin(shown(url), row, "")
        record = frame[HEAD_BYTES:-_TAIL_BYTES]
        stated, found = int.from_bytes(frame[-_TAIL_BYTES:], "little"), masked_crc(record)
        if stated != found:
            return SampleError(f"its checksum is {found:#010x}, the file says {stated:#010x}: damaged", origin=origin)
        try:
            return RawSample(origin, to_fields(values(parse(record), self._columns)))
        except SampleError as error:
            return error.at(origin)


def scan(window: Window, size_bytes: int) -> Frames:
    """Walk over the frames of a file until its end, or until one that is broken."""
    starts: list[int] = []
    sizes: list[int] = []
    position, problem = 0, ""
    while position < size_bytes and not problem:
        head = bytes(window.at(position, HEAD_BYTES)[:HEAD_BYTES])
        problem = _problem(head, position, size_bytes)
        if not problem:
            (length,) = struct.unpack_from("<Q", head)
            starts.append(position + HEAD_BYTES)
            sizes.append(length)
            position += HEAD_BYTES + length + _TAIL_BYTES
    return Frames(np.array(starts, np.int64), np.array(sizes, np.int64), problem)


def is_frame(head: bytes) -> bool:
    """Whether a file that begins with these 12 bytes is a TFRecord file."""
    return len(head) == HEAD_BYTES and masked_crc(head[:8]) == int.from_bytes(head[8:], "little")


def masked_crc(content: bytes | memoryview) -> int:
    """The CRC32C as TFRecord files keep it: rotated by 15 bits, plus a constant."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def _problem(head: bytes, position: int, size_bytes: int) -> str:
    lost = "nothing from there on can be found"
    if len(head) < HEAD_BYTES:
        return f"the file is cut at byte {size_bytes}, inside the length at byte {position}"
    if not is_frame(head):
        return f"no record at byte {position}: the length's checksum is wrong; {lost}"
    end = position + HEAD_BYTES + int.from_bytes(head[:8], "little") + _TAIL_BYTES
    if end > size_bytes:
        return f"the file is cut at byte {size_bytes}: the record at byte {position} ends at byte {end}"
    return ""
