"""Another server's answers: a reverse proxy in front of S3 or GCS."""

from __future__ import annotations

import contextlib
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from stoker_bench.chaos import listing
from stoker_bench.chaos.answers import Answer, in_memory
from stoker_bench.chaos.counts import is_object

_PIECE_BYTES: Final = 512 << 10
_OF_THE_CONNECTION: Final = frozenset(
    ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"]
)
_BASE64_TAG: Final = re.compile(r'"?([A-Za-z0-9+/]{22}==)"?')
_BASE64_ELEMENT: Final = re.compile(rb"<ETag>([A-Za-z0-9+/]{22}==)</ETag>")
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-")


class UpstreamOrigin:
    """Passes requests on as they are, but for the size of a listing's pages, and answers as the server does.

    The server must not check signatures (emulators do not), since they cover what is changed here. fake-gcs-server
    gives an object's MD5 in base64 as its ETag; here it is in hexadecimal, as GCS itself gives it.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._session: aiohttp.ClientSession | None = None  # made in the loop that uses it

    @contextlib.asynccontextmanager
    async def answer(self, request: web.BaseRequest, page: int) -> AsyncIterator[Answer]:
        """See :class:`stoker_bench.chaos.answers.Origin`."""
        if request.method == "GET" and not is_object(request.path):
            yield await self._list(request, page)
            return
        length = request.headers.get("Content-Length")
        headers = _passed_on(request.headers) | ({"Content-Length": length} if length else {})
        sent = request.content if request.can_read_body else None
        target = URL(f"{self._endpoint}{request.raw_path}", encoded=True)
        async with self._client().request(
            request.method, target, headers=headers, data=sent, allow_redirects=False
        ) as got:
            start = _CONTENT_RANGE.match(got.headers.get("Content-Range", ""))
            yield Answer(
                got.status,
                _passed_on(got.headers),
                int(got.headers.get("Content-Length", -1)),
                got.content.iter_chunked(_PIECE_BYTES),
                int(start[1]) if start else 0,
            )

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._session is not None:
            await self._session.close()

    async def _list(self, request: web.BaseRequest, page: int) -> Answer:
        """A listing of one page; cut here if the server does not."""
        asked = dict(request.query)
        token = asked.get("continuation-token", "")
        if listing.is_ours(token):
            del asked["continuation-token"]
        elif page:
            asked["max-keys"] = str(min(page, int(asked.get("max-keys", page))))
        target = URL(f"{self._endpoint}{request.rel_url.raw_path}", encoded=True).with_query(asked)
        async with self._client().get(target, headers=_passed_on(request.headers)) as got:
            body = await got.read()
            if got.status == 200 and b"<ListBucketResult" in body:
                if page:
                    body = listing.cut_to_page(body, token if listing.is_ours(token) else "", page)
                body = _BASE64_ELEMENT.sub(lambda found: f"<ETag>{_in_hex(found[1].decode())}</ETag>".encode(), body)
            return in_memory(got.status, body, _passed_on(got.headers))

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=60),
                read_bufsize=_PIECE_BYTES,
                skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent"),
            )
        return self._session


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    passed = {name: value for name, value in headers.items() if name.lower() not in _OF_THE_CONNECTION}
    if found := _BASE64_TAG.fullmatch(headers.get("ETag", "")):
        passed = {**passed, next(name for name in passed if name.lower() == "etag"): _in_hex(found[1])}
    return passed


def _in_hex(base64: str) -> str:
    return f'"{b64decode(base64).hex()}"'
