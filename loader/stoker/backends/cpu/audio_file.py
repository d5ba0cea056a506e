"""What a sound file says about its being whole (pure)."""

from __future__ import annotations

from stoker.errors import SampleError

_UNKNOWN_SIZES = (0, 0xFFFFFFFF, 0x7FFFFFFF)
"""What is written to a pipe, whose length nobody knew, has one of these."""
_OGG_HEADER_BYTES = 27
_OGG_PAGE_BYTES = _OGG_HEADER_BYTES + 255 + 255 * 255


def check_whole(file: bytes | memoryview) -> None:
    """Raise SampleError for a WAV, AIFF or Ogg file that ends before it should: libsndfile reads them as shorter ones.

    FLAC and MP3 say how many frames they have, which shows when they are read.
    """
    view = memoryview(file).cast("B")
    start = bytes(view[:4])
    if start in (b"RIFF", b"FORM"):
        size = int.from_bytes(view[4:8], "little" if start == b"RIFF" else "big")
        if size not in _UNKNOWN_SIZES and 8 + size > len(view) + 1:  # some leave the last byte of padding out
            raise SampleError(f"the sound file is cut short: of {8 + size} bytes {len(view)} are there")
    elif start == b"OggS":
        _check_ogg(bytes(view[-_OGG_PAGE_BYTES:]))


def _check_ogg(tail: bytes) -> None:
    """RFC 3533: the last page, like each, has a table of the sizes of its segments behind its header."""
    at = tail.rfind(b"OggS\0")
    table = tail[at + _OGG_HEADER_BYTES :]
    num_segments = tail[at + _OGG_HEADER_BYTES - 1] if at >= 0 and len(table) else 255
    if len(table) < num_segments + sum(table[:num_segments]):
        raise SampleError("the sound file is cut short: its last Ogg page does not end")
