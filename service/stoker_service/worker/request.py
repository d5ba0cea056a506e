"""What a stream is asked for, read from the wire and checked."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, get_args

from google.protobuf.message import DecodeError

from stoker.engine.killers import MAX_KILLERS, Killer
from stoker.errors import SpecError
from stoker.plan.lanes import Lanes
from stoker.plan.ranges import Ranges
from stoker.plan.steps import Tail
from stoker.randomness import MAX_EPOCHS
from stoker_proto.v1 import stream_pb2
from stoker_service import versions
from stoker_service.limits import MAX_LANES, MAX_PIPELINE_BYTES
from stoker_service.worker.producer import Plan

MAX_BATCH_ROWS: Final = 1 << 24
MAX_RANGES: Final = 2 * MAX_LANES
DEFAULT_SLICE_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks for: ``batches`` of a plan, all of one lane, in slices of at most ``slice_bytes``."""

    pipeline: stream_pb2.Pipeline
    dataset: str
    plan: Plan
    batches: range
    takes_arena: bool
    slice_bytes: int
    num_careful: int = 0
    killers: tuple[Killer, ...] = ()

    @property
    def lane(self) -> int:
        return self.batches.start % self.plan.lanes.num_lanes

    @property
    def careful(self) -> range:
        """The batches to be made with care, since one of them may have ended another worker."""
        return self.batches[: self.num_careful]


def read(command: bytes) -> Asked:
    """Read a request. Raises SpecError, which says what was expected and what was found, or StokerError (versions)."""
    try:
        request = stream_pb2.StreamRequest.FromString(command)
    except DecodeError:
        raise SpecError("expected a StreamRequest as the descriptor's command, found other bytes") from None
    versions.check(request.version, "the client")
    _check_pipeline(request)
    _check_numbers(request)
    return Asked(
        pipeline=request.pipeline,
        dataset=request.dataset,
        plan=Plan(request.epoch, Lanes(_ranges(request), request.batch_size, request.num_lanes), _tail(request.tail)),
        batches=range(request.batch_start, request.batch_stop, request.batch_stride),
        takes_arena=request.takes_arena,
        slice_bytes=request.slice_bytes or DEFAULT_SLICE_BYTES,
        num_careful=request.num_careful,
        killers=tuple(Killer(one.sample, one.reason) for one in request.killers[:MAX_KILLERS]),
    )


def check_extent(asked: Asked, num_samples: int) -> None:
    """Raise SpecError if a range or a batch lies beyond a data set of so many samples."""
    parts = asked.plan.lanes.ranges.parts
    if parts and parts[-1][1] > num_samples:
        raise SpecError(f"ranges: expected to end at {num_samples}, as the data set does; found {parts[-1][1]}")
    lanes, batches = asked.plan.lanes, asked.batches
    if not batches:
        return
    num_batches = lanes.num_full if asked.plan.tail == "drop" else lanes.num_batches
    if asked.plan.tail in ("pad", "repeat") and num_batches:  # the last step, as wide as the stride at most, is filled
        num_batches += batches.step - 1
    if batches[-1] >= num_batches:
        raise SpecError(
            f"batches: expected indices below {num_batches} ({lanes.ranges.size} samples, batches of "
            f"{lanes.batch_size}, tail {asked.plan.tail!r}), found {batches[-1]}"
        )


def _check_pipeline(request: stream_pb2.StreamRequest) -> None:
    num_bytes = request.pipeline.ByteSize()
    if num_bytes > MAX_PIPELINE_BYTES:
        raise SpecError(f"pipeline: expected at most {MAX_PIPELINE_BYTES} bytes, found {num_bytes}")
    if not request.pipeline.json and not request.pipeline.code:
        raise SpecError("pipeline: expected JSON or code, found neither")
    if not request.dataset:
        raise SpecError("dataset: expected the data set's fingerprint, found nothing; ask `describe` for it")


def _check_numbers(request: stream_pb2.StreamRequest) -> None:
    for name, least, most in (
        ("epoch", 0, MAX_EPOCHS - 1),
        ("batch_size", 1, MAX_BATCH_ROWS),
        ("num_lanes", 1, MAX_LANES),
        ("batch_start", 0, 1 << 62),
        ("batch_stop", 0, 1 << 62),
        ("batch_stride", 1, 1 << 62),
    ):
        value = getattr(request, name)
        if not least <= value <= most:
            raise SpecError(f"{name}: expected {least} to {most}, found {value}")
    if request.batch_stride % request.num_lanes:
        stride = request.batch_stride
        raise SpecError(f"batch_stride: expected a multiple of num_lanes ({request.num_lanes}), found {stride}")


def _ranges(request: stream_pb2.StreamRequest) -> Ranges:
    bounds = list(request.ranges)
    if len(bounds) % 2 or len(bounds) > 2 * MAX_RANGES or any(a >= b for a, b in pairwise(bounds)):
        shown = f"{len(bounds)} numbers, {bounds[:6]} …" if len(bounds) > 6 else str(bounds)
        raise SpecError(f"ranges: expected up to {MAX_RANGES} starts and stops by turns, ascending; found {shown}")
    return Ranges(tuple(zip(bounds[::2], bounds[1::2], strict=True)))


def _tail(text: str) -> Tail:
    for tail in get_args(Tail):
        if text == tail:
            return tail  # type: ignore[no-any-return]  # one of the literals
    raise SpecError(f"tail: expected one of {', '.join(get_args(Tail))}, found {text!r}")
