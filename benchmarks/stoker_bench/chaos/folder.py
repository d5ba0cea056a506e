"""A local folder that answers as a bucket of S3 does."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiohttp import web

from stoker_bench.chaos import listing
from stoker_bench.chaos.answers import Answer, in_memory
from stoker_bench.chaos.listing import Entry

_PIECE_BYTES: Final = 512 << 10
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")


class FolderOrigin:
    """GET with Range, HEAD and ListObjectsV2; every bucket name means this folder. ETags are the files' MD5."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve(strict=True)
        self._etags: dict[tuple[str, int, int], str] = {}

    @contextlib.asynccontextmanager
    async def answer(self, request: web.BaseRequest, page: int) -> AsyncIterator[Answer]:
        """See :class:`stoker_bench.chaos.answers.Origin`."""
        bucket, _, key = request.path.lstrip("/").partition("/")
        if request.method not in {"GET", "HEAD"}:
            yield in_memory(405)
        elif not key:
            yield await self._list(request, bucket, page)
        elif (path := self._path(key)) is None:
            yield in_memory(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                yield await self._object(request, path, descriptor)
            finally:
                os.close(descriptor)

    async def close(self) -> None:
        """Nothing is open between requests."""

    def _path(self, key: str) -> Path | None:
        if "\0" in key or not {"", ".", ".."}.isdisjoint(key.split("/")):
            return None  # no way out of the folder, but by links, which are meant
        path = self._folder / key
        return path if path.is_file() else None

    async def _object(self, request: web.BaseRequest, path: Path, descriptor: int) -> Answer:
        status = os.fstat(descriptor)
        etag = await self._etag(path, status)
        headers = {
            "ETag": etag,
            "Accept-Ranges": "bytes",
            "Last-Modified": datetime.fromtimestamp(status.st_mtime, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "Content-Type": "application/octet-stream",
        }
        if request.headers.get("If-Match", etag).strip('"') not in {etag.strip('"'), "*"}:
            return in_memory(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        size = status.st_size
        asked = _asked(request.headers.get("Range", ""), size)
        if asked is None:
            return Answer(200, headers, size, _pieces(descriptor, 0, size))
        start, stop = asked
        if start >= stop:
            return in_memory(416, b"<Error><Code>InvalidRange</Code></Error>", {"Content-Range": f"bytes */{size}"})
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return Answer(206, headers, stop - start, _pieces(descriptor, start, stop), start)

    async def _list(self, request: web.BaseRequest, bucket: str, page: int) -> Answer:
        asked = request.query
        prefix, token = asked.get("prefix", ""), asked.get("continuation-token", asked.get("start-after", ""))
        size = min(int(asked.get("max-keys", listing.DEFAULT_PAGE)), page or listing.DEFAULT_PAGE)
        names = await asyncio.to_thread(lambda: list(self._names()))
        objects, folders = listing.grouped(names, prefix, asked.get("delimiter", ""))
        entries = [*(Entry(name) for name in objects), *(Entry(name, is_folder=True) for name in folders)]
        shown = listing.page_of(entries, token, size)
        full = tuple([entry if entry.is_folder else await self._entry(entry.name) for entry in shown.entries])
        xml = listing.to_xml(bucket, prefix, size, listing.Page(full, shown.token))
        return in_memory(200, xml, {"Content-Type": "application/xml"})

    def _names(self) -> Iterator[str]:
        for folder, _, files in os.walk(self._folder):
            for name in files:
                yield Path(folder, name).relative_to(self._folder).as_posix()

    async def _entry(self, name: str) -> Entry:
        path = self._folder / name
        status = path.stat()
        modified = datetime.fromtimestamp(int(status.st_mtime), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return Entry(name, status.st_size, await self._etag(path, status), modified)

    async def _etag(self, path: Path, status: os.stat_result) -> str:
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._etags:
            self._etags[key] = await asyncio.to_thread(_md5, path)
        return self._etags[key]


def _asked(header: str, size: int) -> tuple[int, int] | None:
    """The range ``[start, stop)`` that a header asks for, empty if it lies behind the end; None is the whole."""
    found = _RANGE.fullmatch(header)
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(0, size - int(found[2])), size
    return int(found[1]), min(int(found[2]) + 1, size) if found[2] else size


async def _pieces(descriptor: int, start: int, stop: int) -> AsyncIterator[bytes]:
    while start < stop and (piece := os.pread(descriptor, min(_PIECE_BYTES, stop - start), start)):
        yield piece
        start += len(piece)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return f'"{hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()}"'
