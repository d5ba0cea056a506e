"""Whether an MP4 says that a track is to be shown mirrored (pure)."""

from __future__ import annotations

from collections.abc import Iterator

_MOVIE_MATRIX = {0: 36, 1: 48}
_TRACK_ID = {0: 12, 1: 20}
_TRACK_MATRIX = {0: 40, 1: 52}
"""Where things stand in the boxes ``mvhd`` and ``tkhd``, by their version."""


def is_mirrored(file: bytes | memoryview, track: int) -> bool:
    """Read it off the matrices of the movie and of the track: FFmpeg tells only by how much they turn.

    ISO/IEC 14496-12, 8.2.2 and 8.3.2. False for what is no MP4, or has no such track.
    """
    movie, sign = memoryview(file).cast("B"), 1
    for kind, body in _boxes(movie):
        if kind == b"moov":
            for inner, part in _boxes(body):
                if inner == b"mvhd":
                    sign *= _determinant(part, _MOVIE_MATRIX)
                elif inner == b"trak":
                    sign *= _track_determinant(part, track)
    return sign < 0


def _track_determinant(trak: memoryview, track: int) -> int:
    for kind, body in _boxes(trak):
        at = _TRACK_ID.get(body[0]) if kind == b"tkhd" and len(body) else None
        if at is not None and int.from_bytes(body[at : at + 4], "big") == track:
            return _determinant(body, _TRACK_MATRIX)
    return 1


def _determinant(box: memoryview, matrix: dict[int, int]) -> int:
    """Return -1 for a matrix that mirrors, else 1; of (a b u c d v x y w), four bytes each, by a, b, c and d."""
    at = matrix.get(box[0]) if len(box) else None
    if at is None or len(box) < at + 36:
        return 1
    a, b, c, d = (int.from_bytes(box[at + i : at + i + 4], "big", signed=True) for i in (0, 4, 12, 16))
    return -1 if a * d - b * c < 0 else 1


def _boxes(view: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """The boxes one after the other: a size, a type, and, if the size is 1, a size of 64 bits; 0 is up to the end."""
    at = 0
    while at + 8 <= len(view):
        size, kind, header = int.from_bytes(view[at : at + 4], "big"), bytes(view[at + 4 : at + 8]), 8
        if size == 1:
            size, header = int.from_bytes(view[at + 8 : at + 16], "big"), 16
        elif size == 0:
            size = len(view) - at
        if size < header:
            return
        yield kind, view[at + header : at + size]
        at += size
