"""What a DataLoader takes its batches from: an engine in this process, worker processes, or a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from stoker.errors import SampleError
from stoker.pipeline import Pipeline
from stoker.plan.resume import Position
from stoker.ranks import Rank
from stoker.state import OrderIdentity

if TYPE_CHECKING:
    import pyarrow as pa

SERVICE_GROUP = "stoker.services"
"""The entry points of this group are :class:`OpenSupply`, each named after the scheme of the URLs that it opens."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One batch of one rank, and what became of the samples on the way.

    ``bad`` are the samples that could not be made, whatever the policy made of them; ``num_filtered`` were refused by
    a filter; ``conversions`` has a text for each picture whose colours were not those asked for. ``device_fields`` are
    columns that a back-end made on a device and left there: torch tensors, complete, and not in ``batch``.
    """

    epoch: int
    batch_index: int
    batch: pa.RecordBatch
    bad: tuple[SampleError, ...] = ()
    num_filtered: int = 0
    conversions: tuple[str, ...] = ()
    device_fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SupplyOptions:
    """What a service is asked for: bytes ahead, seconds of one wait, batches in order or as they come, pinned memory.

    ``job`` is the name that people see; the ranks of one training run give the same.
    """

    prefetch_bytes: int
    timeout_s: float
    in_order: bool
    pin_memory: bool
    job: str


class Supply(Protocol):
    """Gives the batches of one rank. Called by one thread, but for :meth:`close`."""

    @property
    def order(self) -> OrderIdentity:
        """What decides the order of an epoch, the data set's fingerprint and size with it."""

    def next(self, position: Position) -> Delivery:
        """A batch of this rank that is not consumed at ``position``: the first such, or any if order is not asked for.

        A call at the position after the last batch streams on, into the next epoch as well, whose first batches are
        made while this one ends. Another position starts anew there. Blocks; raises what the batch's making failed
        with, StallError at the deadline, ClosedError.
        """

    def stats(self) -> dict[str, Any]:
        """Running counters since it was opened; see :meth:`stoker.DataLoader.stats`."""

    def add_between(self, seconds: float) -> None:
        """Count time that the trainer spent on its own step."""

    def close(self) -> None:
        """Stop all threads and let go of all memory, within 2 s; may be called again, and from any thread."""


class OpenSupply(Protocol):
    """Opens the supply of one rank from a service. Raises what is wrong with the URL, the service or the pipeline."""

    def __call__(self, url: str, pipeline: Pipeline, rank: Rank, options: SupplyOptions) -> Supply: ...
