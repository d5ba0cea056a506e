"""Tar headers, parsed by bytes from a buffer that starts at one.

Written after POSIX.1-2017 (pax: ustar and its extended headers), GNU tar's ``tar.h``, and the behaviour of Python's
``tarfile``, with which the tests compare it. It works over a range of a shard, where ``tarfile`` wants a file.
"""

from __future__ import annotations

from typing import NamedTuple

from stoker.errors import DataError

BLOCK_BYTES = 512
MAX_EXTENSION_BYTES = 16 << 20
"""The largest long name or PAX header that is taken seriously."""

_ZEROS = bytes(BLOCK_BYTES)
_NUL = b"\0"
_REGULAR = b"0\x007"
_FIELD_ENDS = b"\0 "
_EXTENDED = b"LKxXg"
_WITHOUT_BODY = b"123456"
_LONG_NAME, _LONG_LINK, _SPARSE, _PAX_GLOBAL = b"LKSg"
_GLOBALS_REFUSED = (b"path", b"size")


class Member(NamedTuple):
    """A regular file; offsets count from the start of the buffer. ``end`` is where the next header stands.

    ``problem`` is empty, or says why the body is not the file's content.
    """

    name: str
    body: int
    size: int
    end: int
    problem: str


class Skipped(NamedTuple):
    """A directory, link, device or anything else that is not a regular file."""

    name: str
    end: int


class NeedMore(NamedTuple):
    """The buffer must be at least ``num_bytes`` long before more can be said."""

    num_bytes: int


class End(NamedTuple):
    """The end-of-archive marker: whatever follows is not part of the archive."""


class TarError(DataError):
    """The bytes at ``offset`` of the buffer are not a tar header."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


def next_member(buffer: memoryview, start: int = 0, *, verify: bool = True) -> Member | Skipped | NeedMore | End:
    """Parse the member whose first header stands at ``start``; its body need not be in the buffer.

    Long-name and PAX headers belong to the member that follows them. With ``verify`` each header's checksum is
    compared, which takes most of the time. Raises TarError.
    """
    block = bytes(buffer[start : start + BLOCK_BYTES])
    if len(block) < BLOCK_BYTES:
        return NeedMore(start + BLOCK_BYTES)
    if verify:
        if block == _ZEROS:
            return End()
        _verify(block, start)
    # The usual case, to which the general one below gives the same answer: type '0', octal size, no prefix.
    if block[156] == 48 and block[135] in _FIELD_ENDS and (block[345] == 0 or block[262] != 0):
        try:
            size = int(block[124:135], 8)
        except ValueError:
            return _next_member(buffer, start, block, verify)
        cut = block.find(0, 0, 100)
        body = start + BLOCK_BYTES
        name = block[: cut if cut >= 0 else 100].decode("utf-8", "surrogateescape")
        return Member(name, body, size, body + (size + 511 & -BLOCK_BYTES), "")
    return _next_member(buffer, start, block, verify)


def members(run: memoryview, *, verify: bool = False) -> list[Member]:
    """Parse all regular files of a run of whole members. Raises TarError if the run ends inside a header."""
    found = []
    position, length = 0, len(run)
    while position < length:
        item = next_member(run, position, verify=verify)
        if isinstance(item, Member):
            found.append(item)
            position = item.end
        elif isinstance(item, Skipped):
            position = item.end
        elif isinstance(item, NeedMore):
            raise TarError("the run of bytes ends inside a header", position)
        else:
            break
    return found


def _next_member(buffer: memoryview, start: int, block: bytes, verify: bool) -> Member | Skipped | NeedMore | End:
    """The general case: extended headers first, then the member that they describe; what comes first wins."""
    position = start
    name: str | None = None
    size: int | None = None
    sparse = False
    while block[156] in _EXTENDED:
        length = _number(block[124:136], position)
        if length > MAX_EXTENSION_BYTES:
            raise TarError(f"an extended header of {length} bytes; at most {MAX_EXTENSION_BYTES} are read", position)
        content_start = position + BLOCK_BYTES
        after = content_start + _padded(length)
        if len(buffer) < after + BLOCK_BYTES:
            return NeedMore(after + BLOCK_BYTES)
        content = bytes(buffer[content_start : content_start + length])
        kind = block[156]
        if kind == _LONG_NAME:
            name = _text(content.split(_NUL, 1)[0]) if name is None else name
        elif kind == _PAX_GLOBAL:
            _check_globals(_pax_records(content, position), position)
        elif kind != _LONG_LINK:
            records = _pax_records(content, position)
            name = _pax_name(records) if name is None else name
            size = _pax_size(records, position) if size is None else size
            sparse = sparse or any(keyword.startswith(b"GNU.sparse.") for keyword in records)
        position = after
        block = bytes(buffer[position : position + BLOCK_BYTES])
        if verify and block != _ZEROS:
            _verify(block, position)
    if block == _ZEROS:
        if position == start:
            return End()
        raise TarError("an extended header is followed by the end of the archive", position)
    return _member(buffer, position, block, name, size, sparse)


def _member(
    buffer: memoryview, position: int, block: bytes, name: str | None, size: int | None, sparse: bool
) -> Member | Skipped | NeedMore:
    """The member whose own header is ``block``, with what extended headers said about it."""
    kind = block[156]
    name = _header_name(block) if name is None else name
    body = position + BLOCK_BYTES
    if kind in _WITHOUT_BODY or (kind == 0 and name.endswith("/")):
        return Skipped(name, body)
    size = _number(block[124:136], position) if size is None else size
    if kind == _SPARSE:
        sparse = True
        extended = block[482]
        while extended:
            if len(buffer) < body + BLOCK_BYTES:
                return NeedMore(body + BLOCK_BYTES)
            extended = buffer[body + 504]
            body += BLOCK_BYTES
    end = body + _padded(size)
    if kind not in _REGULAR and kind != _SPARSE:
        return Skipped(name, end)
    problem = f"member {name!r} is a sparse file; pack it again without --sparse" if sparse else ""
    return Member(name, body, size, end, problem)


def _verify(block: bytes, offset: int) -> None:
    """Compare the header's checksum, summed over unsigned bytes or, as old tars did, over signed ones."""
    field = block[148:156]
    stated = _number(field, offset)
    unsigned = 256 + sum(block) - sum(field)
    if stated == unsigned:
        return
    signed = unsigned - 256 * sum(byte > 127 for byte in block[:148] + block[156:])
    if stated != signed:
        raise TarError(f"no tar header: its checksum is {unsigned}, the header says {stated}", offset)


def _number(field: bytes, offset: int) -> int:
    """Octal digits in ASCII, or base 256 if the first bit is set."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big", signed=True) if field[0] == 0xFF else int.from_bytes(field[1:], "big")
    else:
        try:
            value = int(field.partition(_NUL)[0].strip() or b"0", 8)
        except ValueError:
            raise TarError(f"no tar header: {field!r} is not an octal number", offset) from None
    if value < 0:
        raise TarError(f"no tar header: negative number {value}", offset)
    return value


def _header_name(block: bytes) -> str:
    name = block[:100].partition(_NUL)[0]
    if block[257:263] == b"ustar\0" and block[345]:
        name = block[345:500].partition(_NUL)[0] + b"/" + name
    return _text(name)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _padded(size: int) -> int:
    return (size + BLOCK_BYTES - 1) & -BLOCK_BYTES


def _pax_records(content: bytes, offset: int) -> dict[bytes, bytes]:
    """The records ``"<length> <keyword>=<value>\\n"`` of an extended header; a later one wins."""
    records: dict[bytes, bytes] = {}
    position = 0
    while position < len(content) and content[position]:
        space = content.find(b" ", position, position + 20)
        digits = content[position:space] if space > 0 else b""
        length = int(digits) if digits.isdigit() else 0
        stop = position + length
        keyword, equals, value = content[space + 1 : stop - 1].partition(b"=")
        if stop > len(content) or content[stop - 1 : stop] != b"\n" or not equals or space >= stop:
            raise TarError(f"a broken PAX record: {content[position : position + 40]!r}", offset)
        records[keyword] = value
        position = stop
    return records


def _pax_name(records: dict[bytes, bytes]) -> str | None:
    raw = records.get(b"GNU.sparse.name", records.get(b"path"))
    return None if raw is None else _text(raw).rstrip("/")


def _pax_size(records: dict[bytes, bytes], offset: int) -> int | None:
    raw = records.get(b"size")
    if raw is None:
        return None
    if not raw.isdigit():
        raise TarError(f"a PAX size that is no number: {raw[:40]!r}", offset)
    return int(raw)


def _check_globals(records: dict[bytes, bytes], offset: int) -> None:
    """A row is parsed without what stands before it, so a global header must not change what its bytes mean."""
    for keyword in records:
        if keyword in _GLOBALS_REFUSED or keyword.startswith(b"GNU.sparse."):
            raise TarError(
                f"a global PAX header sets {keyword.decode()!r} for all members; pack the shard again", offset
            )
