"""What one worker asks another for, on its way over the wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from google.protobuf.message import DecodeError

from stoker.errors import SpecError
from stoker.formats import source as sources
from stoker.formats.source import Source
from stoker.pipeline import Pipeline
from stoker.storage.store import ObjectRange
from stoker.storage.use import Use
from stoker_proto.v1 import stream_pb2
from stoker_service import versions

MAX_RANGES: Final = 4096
MAX_CALL_BYTES: Final = 32 << 20
"""Of one call, unless a single range has more."""

MAX_WAIT_S: Final = 60.0
DEFAULT_WAIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class SourceText:
    """A source as JSON without secrets, with a hash by which it is named once it was sent."""

    text: str
    is_full: bool
    digest: bytes

    @staticmethod
    def of(pipeline: Pipeline) -> SourceText:
        """What a pipeline reads."""
        text = json.dumps(sources.to_json(pipeline.source), sort_keys=True)
        return _named(text, is_full=pipeline.shuffle == "full")

    def read(self) -> Pipeline:
        """A pipeline that reads the same. Raises SpecError if the text is none of a source."""
        try:
            found: Source = sources.from_json(json.loads(self.text))
        except (ValueError, TypeError) as error:
            raise SpecError(f"source: expected the JSON of a source, found something else: {error}") from None
        return Pipeline(found, (), 1, shuffle="full" if self.is_full else False)


@dataclass(frozen=True, slots=True)
class Asked:
    """Ranges of one data set, and their uses. ``source`` is None if it was sent before."""

    digest: bytes
    source: SourceText | None
    fingerprint: str
    ranges: tuple[ObjectRange, ...]
    uses: tuple[Use, ...]
    wait_s: float

    @property
    def num_bytes(self) -> int:
        return sum(wanted.num_bytes for wanted in self.ranges)


def ticket(
    source: SourceText,
    fingerprint: str,
    ranges: Sequence[ObjectRange],
    uses: Sequence[Use],
    *,
    wait_s: float,
    with_source: bool,
) -> bytes:
    """The ticket of a call."""
    wanted = [
        stream_pb2.Range(
            url=one.url,
            start=one.start,
            stop=one.stop,
            version=one.version,
            endpoint=one.endpoint,
            job=use.job,
            now=use.now,
            next=use.next,
        )
        for one, use in zip(ranges, uses, strict=True)
    ]
    return stream_pb2.RangesRequest(
        version=versions.ours(),
        source=source.text if with_source else "",
        source_id=source.digest,
        is_full=source.is_full,
        dataset=fingerprint,
        ranges=wanted,
        wait_ms=round(1000 * wait_s),
    ).SerializeToString()


def read(found: bytes) -> Asked:
    """Read a ticket. Raises SpecError, which says what was expected and what was found, or StokerError (versions)."""
    try:
        request = stream_pb2.RangesRequest.FromString(found)
    except DecodeError:
        raise SpecError("expected a RangesRequest as the ticket, found other bytes") from None
    versions.check(request.version, "the worker that asks")
    source = _named(request.source, is_full=request.is_full) if request.source else None
    if source is not None and source.digest != request.source_id:
        raise SpecError("source_id: expected the hash of the source that came with it, found another")
    if not request.dataset:
        raise SpecError("dataset: expected the data set's fingerprint, found nothing")
    asked = Asked(
        request.source_id,
        source,
        request.dataset,
        tuple(ObjectRange(one.url, one.start, one.stop, one.version, one.endpoint) for one in request.ranges),
        tuple(Use(one.job, one.now, one.next) for one in request.ranges),
        min(request.wait_ms / 1000 or DEFAULT_WAIT_S, MAX_WAIT_S),
    )
    _check(asked)
    return asked


def _check(asked: Asked) -> None:
    if not 1 <= len(asked.ranges) <= MAX_RANGES:
        raise SpecError(f"ranges: expected 1 to {MAX_RANGES}, found {len(asked.ranges)}")
    if any(one.start >= one.stop for one in asked.ranges):
        raise SpecError("ranges: expected each to stop behind its start, found one that does not")
    if len(asked.ranges) > 1 and asked.num_bytes > MAX_CALL_BYTES:
        raise SpecError(f"ranges: expected at most {MAX_CALL_BYTES} bytes in one call, found {asked.num_bytes}")


def _named(text: str, *, is_full: bool) -> SourceText:
    return SourceText(text, is_full, blake2b(f"{is_full} {text}".encode(), digest_size=16).digest())
