"""What the outermost boxes of a video file say about its being whole (pure)."""

from __future__ import annotations

from stoker.errors import SampleError

_MP4_FIRST = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
_EBML = b"\x1a\x45\xdf\xa3"
_SEGMENT = b"\x18\x53\x80\x67"


def check_whole(file: bytes | memoryview) -> None:
    """Raise SampleError for a file that ends before it should, or an MP4 without its index.

    MP4, Matroska and AVI say how long they are; of others nothing is known.
    """
    view = memoryview(file).cast("B")
    if not len(view):
        raise SampleError("the video file is empty")
    start = bytes(view[:12])
    if start[4:8] in _MP4_FIRST:
        _check_mp4(view)
    elif start[:4] == _EBML:
        _check_matroska(view)
    elif start[:4] == b"RIFF" and start[8:] == b"AVI ":
        _check_end(view, 8 + int.from_bytes(start[4:8], "little"))


def _check_mp4(view: memoryview) -> None:
    """ISO/IEC 14496-12, 4.2: boxes of a size, a type and, if the size is 1, a size of 64 bits; 0 is up to the end."""
    at, kinds = 0, set[bytes]()
    while at + 8 <= len(view):
        size, kind = int.from_bytes(view[at : at + 4], "big"), bytes(view[at + 4 : at + 8])
        if size == 1:
            size = int.from_bytes(view[at + 8 : at + 16], "big")
        elif size == 0:
            size = len(view) - at
        if size < 8 or not kind.isascii():
            break  # some writers leave bytes behind the last box
        kinds.add(kind)
        at += size
    if b"moov" not in kinds:
        cut = f"; it is cut short, of {at} bytes {len(view)} are there" if at > len(view) else ""
        raise SampleError(f"an MP4 without its index, the moov box{cut}")
    _check_end(view, at)


def _check_matroska(view: memoryview) -> None:
    """RFC 8794: the EBML header, then a segment; the size of each is a number of variable length."""
    end, _ = _ebml_end(view, 4)
    if end is not None and bytes(view[end : end + 4]) == _SEGMENT:
        segment_end, _ = _ebml_end(view, end + 4)
        if segment_end is not None:
            _check_end(view, segment_end)


def _ebml_end(view: memoryview, at: int) -> tuple[int | None, int]:
    """Where the element ends whose size stands at ``at``, None if that is unknown; and how many bytes the size has."""
    if at >= len(view) or not view[at]:
        return None, 0
    length = 9 - int(view[at]).bit_length()
    size = int.from_bytes(view[at : at + length], "big") & ((1 << 7 * length) - 1)
    return (None if size == (1 << 7 * length) - 1 else at + length + size), length


def _check_end(view: memoryview, end: int) -> None:
    if end > len(view):
        raise SampleError(f"the video file is cut short: of {end} bytes {len(view)} are there")
