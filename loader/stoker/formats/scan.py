"""The scan of one shard: where its rows lie."""

from __future__ import annotations

from crc32c import crc32c

from stoker.errors import ShardError
from stoker.formats.keys import Split, lacks_field
from stoker.formats.shard_rows import Row, ShardRows, parse_label
from stoker.formats.sniff import looks_like
from stoker.formats.tar import BLOCK_BYTES, End, Member, NeedMore, Skipped, TarError, next_member
from stoker.formats.window import Window

HOP_BYTES = 1 << 20
"""A body is not read if this much of it is still to come; its row then has no checksum."""

_MAX_LABEL_BYTES = 20


class Scan:
    """Reads the tar in ``window`` from front to back, once; after :meth:`run` the rows and notices stand in it.

    A shard that is cut or broken in the middle gives the rows before, and a notice. Raises ShardError, which names
    ``url``, if the shard does not begin as a tar.
    """

    def __init__(self, url: str, window: Window, size: int, split: Split) -> None:
        self.rows = ShardRows()
        self.notices: list[str] = []
        self._url = url
        self._window = window
        self._size = size
        self._split = split
        self._row: Row | None = None
        self._crc: int | None = None  # of all bytes since the row began; None once some were not read

    def run(self) -> None:
        position = 0
        while (stop := self._step(position)) is not None:
            position = stop
        self.notices += self.rows.notices()

    def _step(self, position: int) -> int | None:
        """Take what stands at ``position``; returns where the next header stands, or None at the end."""
        try:
            item = self._parse(position)
        except TarError as error:
            self._broken(position, error)
            return None
        match item:
            case End():
                self._close_row()
                self._look_behind(position + BLOCK_BYTES)
                return None
            case NeedMore():
                self._cut(position)
                return None
            case Skipped(end=end) if position + end <= self._size:
                self._extend(position, position + end)
                return position + end
            case Member(name=name, body=body, size=size) if position + body + size <= self._size:
                return self._member(position, item)
            case Member(name=name) | Skipped(name=name):
                self._cut_inside(position, name, position + item.end)
                return None

    def _parse(self, position: int) -> Member | Skipped | NeedMore | End:
        needed = BLOCK_BYTES
        while True:
            item = next_member(self._window.at(position, needed))
            if not isinstance(item, NeedMore) or position + item.num_bytes > self._size:
                return item
            needed = item.num_bytes

    def _member(self, position: int, item: Member) -> int:
        stop = min(position + item.end, self._size)
        split = self._split(item.name)
        if split is None:
            if lacks_field(item.name):
                self.rows.skip_unnamed(item.name)
            self._extend(position, stop)
            return stop
        key, field = split
        row = self._row
        if row is None or row.key != key:
            self._close_row()
            row = self._row = Row(key, position)
            self._crc = 0
        if field == "cls" and item.size <= _MAX_LABEL_BYTES:
            row.label = parse_label(bytes(self._window.at(position, item.body + item.size)[item.body :][: item.size]))
        self._extend(position, stop)
        row.stop, row.crc = stop, self._crc
        row.names.append(item.name)
        row.fields.append(field)
        row.sizes.append(item.size)
        return stop

    def _extend(self, start: int, stop: int) -> None:
        """Add bytes to the running checksum, unless that would mean to read a large rest of a body."""
        while self._crc is not None and start < stop:
            if stop - max(start, self._window.end) >= HOP_BYTES:
                self._crc = None
                return
            piece = self._window.at(start, 1)[: stop - start]
            self._crc = crc32c(piece, self._crc)
            start += len(piece)

    def _close_row(self) -> None:
        if self._row is not None:
            self.rows.add(self._row)
        self._row = self._crc = None

    def _close_row_at_cut(self) -> str:
        """Take the last row unless it looks cut; returns what to say about it."""
        row = self._row
        if row is None or not self.rows.looks_cut(row):
            self._close_row()
            return f"its {len(self.rows)} whole samples are used"
        self._row = None
        return (
            f"its {len(self.rows)} whole samples are used, {row.key!r}, which has only {', '.join(row.fields)}, is not"
        )

    def _cut(self, position: int) -> None:
        """The shard ends where a header or the end-of-archive marker should stand."""
        if 0 < self._size < BLOCK_BYTES:
            raise ShardError(self._no_tar(f"only {self._size} bytes, a tar header has {BLOCK_BYTES}"))
        if self._size == 0:
            self.notices.append("is empty (0 bytes), as after a broken upload; make it again")
            return
        said = self._close_row_at_cut()
        self.notices.append(f"is cut at byte {self._size}: no end-of-archive marker at byte {position}; {said}")

    def _cut_inside(self, position: int, name: str, end: int) -> None:
        """The shard ends inside a body: the sample that it belongs to is not whole."""
        split = self._split(name)
        if self._row is not None and split is not None and split[0] == self._row.key:
            self._row = None
        self._close_row()
        self.notices.append(
            f"is cut at byte {self._size}: its member {name!r} at byte {position} ends at byte {end}; "
            f"its {len(self.rows)} whole samples are used"
        )

    def _broken(self, position: int, error: TarError) -> None:
        if position == 0:
            raise ShardError(self._no_tar(error.reason)) from error
        said = self._close_row_at_cut()
        self.notices.append(
            f"is broken at byte {position + error.offset}: {error.reason}; {said}, "
            f"the {self._size - position} bytes from there on are not"
        )

    def _no_tar(self, found: str) -> str:
        start = bytes(self._window.at(0, BLOCK_BYTES)[:BLOCK_BYTES])
        return f"{self._url} is no tar: byte 0: {found}; it looks like {looks_like(start)}"

    def _look_behind(self, position: int) -> None:
        """Say so if data follow the end-of-archive marker, as in archives that were appended with cat."""
        rest = self._window.at(position, 0) if position < self._window.end else memoryview(b"")
        if bytes(rest).strip(b"\0"):
            self.notices.append(
                f"has data after its end-of-archive marker at byte {position - BLOCK_BYTES}, ignored as tar ignores "
                "them; archives that were joined with `cat` must be joined with `tar -A`"
            )
