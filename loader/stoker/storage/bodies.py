"""Receives the bodies of obstore's answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError

from stoker.storage.retry import CutAnswerError

if TYPE_CHECKING:
    from obstore import GetResult

LARGE_BYTES = 256 << 10
"""A smaller body that breaks off is read again whole."""

_PIECE_BYTES = 128 << 10
_IN_PIECES_AFTER_CUT = 256


@dataclass(slots=True)
class Bodies:
    """How the bodies of one bucket are received; safe for many threads.

    At once, which costs least but loses what has come of a body that breaks off. After one has broken off, the next
    large ones, its repetition among them, come in pieces: where one of those breaks off, only the rest is read again.
    """

    num_in_pieces: int = 0

    def receive(self, answer: GetResult, tag: str) -> memoryview:
        """The body, of an object with this strong ETag. Raises obstore's errors, and CutAnswerError with what came."""
        start, stop = answer.range  # not to be had any more once the body is
        if stop - start < LARGE_BYTES:
            return memoryview(answer.bytes())
        if self.num_in_pieces == 0:
            try:
                return memoryview(answer.bytes())
            except BaseError:
                self.num_in_pieces = _IN_PIECES_AFTER_CUT
                raise
        self.num_in_pieces = max(0, self.num_in_pieces - 1)  # threads may miscount, which does no harm
        return self._in_pieces(answer, stop - start, tag)

    def _in_pieces(self, answer: GetResult, num_bytes: int, tag: str) -> memoryview:
        body = bytearray()
        try:
            for piece in answer.stream(_PIECE_BYTES):
                body += piece
        except BaseError:
            self.num_in_pieces = _IN_PIECES_AFTER_CUT
            if not body:
                raise
            reason = f"the body broke off, or was too slow, after {len(body)} of {num_bytes} bytes"
            raise CutAnswerError(reason, memoryview(body).toreadonly(), tag) from None  # obstore's may hold secrets
        return memoryview(body).toreadonly()
