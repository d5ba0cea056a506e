"""What a loader saves: epoch, position, and what identifies the order they are of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from stoker.errors import StateError
from stoker.formats.source import Parquet, Source
from stoker.pipeline import Pipeline
from stoker.plan import resume
from stoker.plan.resume import Position

_KIND = "stoker.DataLoader"


@dataclass(frozen=True, slots=True)
class OrderIdentity:
    """What decides the order of an epoch; two loaders with equal ones see the same positions."""

    dataset: str
    num_samples: int
    seed: int
    shuffle: str
    window: int
    chunk_bytes: int

    def differences(self, saved: OrderIdentity) -> list[str]:
        """What differs, in words; empty if nothing does."""
        pairs = [(field.name, getattr(saved, field.name), getattr(self, field.name)) for field in fields(self)]
        return [f"{name} was {before!r}, is {now!r}" for name, before, now in pairs if before != now]


def identity(pipeline: Pipeline, dataset: str, num_samples: int) -> OrderIdentity:
    """The identity of the order that a pipeline gives to the data set of this fingerprint and size."""
    window = pipeline.window if pipeline.shuffle is True else 0
    return OrderIdentity(
        dataset=dataset,
        num_samples=num_samples,
        seed=pipeline.seed,
        shuffle=str(pipeline.shuffle).lower(),
        window=window,
        chunk_bytes=_chunk_bytes(pipeline.source) if pipeline.shuffle is True else 0,
    )


def _chunk_bytes(source: Source) -> int:
    """Of Parquet files 0: their row groups are the chunks."""
    return 0 if isinstance(source, Parquet) else source.chunk_bytes


def to_state(position: Position, order: OrderIdentity) -> dict[str, Any]:
    """A state of JSON values, below 4 KiB."""
    return {"kind": _KIND, "version": resume.VERSION, "order": asdict(order), "position": position.to_json()}


def from_state(state: dict[str, Any], order: OrderIdentity, *, allow_changes: bool) -> Position:
    """The position that a state holds.

    Raises StateError if it is not a state of this kind and version, or, unless ``allow_changes``, if it was saved with
    another order; the text names each difference.
    """
    if state.get("kind") != _KIND or state.get("version") != resume.VERSION:
        found = f"kind {state.get('kind')!r}, version {state.get('version')!r}"
        raise StateError(f"expected a state of kind {_KIND!r}, version {resume.VERSION}; found {found}")
    position = resume.from_json(state["position"])
    try:
        saved = OrderIdentity(**state["order"])
    except TypeError as error:
        raise StateError(f"the order of a saved state cannot be read: {state['order']!r}") from error
    differences = order.differences(saved)
    if differences and not allow_changes:
        raise StateError(
            f"the state was saved with another order of samples: {'; '.join(differences)}. What is left of that epoch "
            "cannot be continued exactly. Load it with allow_changes=True to go on in the new order from the same "
            "number of samples."
        )
    return _within(position, saved, order) if differences else position


def _within(position: Position, saved: OrderIdentity, order: OrderIdentity) -> Position:
    """The same number of consumed samples, in an order of another size."""
    lanes = position.lanes
    consumed = saved.num_samples - lanes.remaining(position.num_consumed).size + len(position.ahead) * lanes.batch_size
    fresh = resume.start(position.epoch, order.num_samples, batch_size=lanes.batch_size, num_lanes=lanes.num_lanes)
    num_consumed = min(consumed // lanes.batch_size, fresh.lanes.num_batches)
    return Position(position.epoch, fresh.lanes, num_consumed)
