"""What an origin answers, before anything goes wrong with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol
from xml.sax.saxutils import escape

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers without those of the connection, and a body of ``num_bytes`` in large pieces.

    ``start`` is where the body begins in its object. The body may be read while the answer is open, once.
    """

    status: int
    headers: Mapping[str, str]
    num_bytes: int
    body: AsyncIterator[bytes]
    start: int = 0


class Origin(Protocol):
    """Where answers come from: a folder, or another server."""

    def answer(self, request: web.BaseRequest, page: int) -> AbstractAsyncContextManager[Answer]:
        """Answer a request; of a listing no more than ``page`` names, if that is above 0."""
        ...

    async def close(self) -> None: ...


def in_memory(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
    """An answer whose body is there."""

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    return Answer(status, headers or {}, len(body), pieces())


def error_xml(status: int, code: str, message: str) -> web.Response:
    """An error in the form of S3, which GCS's XML interface shares."""
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
    )
    return web.Response(status=status, text=text, content_type="application/xml")
