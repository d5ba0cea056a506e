"""What a loader of a torch dataset saves, and whether it fits another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from torch.utils.data import IterableDataset, RandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from stoker.compat.indices import unwrapped
from stoker.errors import StateError

_KIND: Final = "stoker.DataLoader of a torch dataset"
_VERSION: Final = 1
_MAX_NAME: Final = 80

_PARAMETERS: Final[tuple[tuple[type, tuple[str, ...]], ...]] = (
    (RandomSampler, ("replacement", "num_samples")),
    (WeightedRandomSampler, ("replacement", "num_samples")),
    (DistributedSampler, ("num_replicas", "shuffle", "seed", "drop_last")),
)
"""What decides an order, of the samplers whose meaning is known. Not the rank: some trainers save the state of rank 0
for all, and the position is the same on each."""


@dataclass(frozen=True, slots=True)
class WorkerStates:
    """Where the workers of an iterable dataset are, after ``num_taken`` batches were handed out.

    ``states``: each worker's state after the last batch of its that was handed out (None: before its first), as the
    crew gave it; ``ended``: whose data ended; ``next_worker``: whose batch is handed out next.
    """

    states: tuple[Any, ...]
    ended: tuple[bool, ...]
    next_worker: int
    num_taken: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A state that fits: give ``position`` to the next TrackedSampler; if that says ``resumed``, the rest holds too."""

    position: dict[str, Any]
    base_seed: int | None
    workers: WorkerStates | None


def to_state(
    loader: Any, position: dict[str, Any], base_seed: int | None, workers: WorkerStates | None = None
) -> dict[str, Any]:
    """A new dict: JSON values, but for the states that an iterable dataset's workers have, which stay as they are.

    ``loader`` is a DataLoader of torch's or a subclass; ``base_seed`` is None before its first iteration.
    """
    state = {
        "kind": _KIND,
        "version": _VERSION,
        "loader": _identity(loader),
        "position": position,
        "base_seed": base_seed,
    }
    if workers is not None:
        state["workers"] = {
            "states": list(workers.states),
            "ended": list(workers.ended),
            "next_worker": workers.next_worker,
            "num_taken": workers.num_taken,
        }
    return state


def from_state(loader: Any, state: dict[str, Any]) -> Saved | None:
    """What a state holds; None for an empty one, which means "from the beginning" (torchdata's convention).

    Keys that are not known are passed over: Accelerate adds one. Called by load_state_dict, followed by
    ``positions.prepare(loader._index_sampler, saved.position)``. Raises StateError if the state is of another kind or
    version, or was saved by a loader of other batches; the text names each difference.
    """
    if not state:
        return None
    if state.get("kind") != _KIND or state.get("version") != _VERSION:
        raise StateError(
            f"expected a state of kind {_KIND!r}, version {_VERSION}; found kind {state.get('kind')!r}, version "
            f"{state.get('version')!r}. Load what this loader's state_dict() gave"
        )
    saved, found = state["loader"], _identity(loader)
    differences = [
        f"{name} was {saved.get(name)!r}, is {found.get(name)!r}"
        for name in sorted({*saved, *found})
        if saved.get(name) != found.get(name)
    ]
    if differences:
        raise StateError(
            f"the state was saved by a loader of other batches: {'; '.join(differences)}. What is left of its epoch "
            "cannot be told. Make the loader as it was, or begin an epoch without the state"
        )
    return _saved(state)


def _saved(state: dict[str, Any]) -> Saved:
    position, workers = dict(state["position"]), state.get("workers")
    if workers is None:
        return Saved(position, state["base_seed"], None)
    if all(workers["ended"]):
        return Saved({**position, "finished": True}, None, None)
    states = WorkerStates(
        tuple(workers["states"]), tuple(workers["ended"]), workers["next_worker"], workers["num_taken"]
    )
    return Saved(position, state["base_seed"], states)


def _identity(loader: Any) -> dict[str, Any]:
    """What decides which batches a loader gives; what may differ (workers, prefetching, pinning) is not in it.

    An iterable dataset is dealt out to its workers, so there their number is in it.
    """
    batching = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if isinstance(loader.dataset, IterableDataset):
        return {**batching, "num_workers": loader.num_workers}
    sampler, _ = unwrapped(loader._index_sampler)
    return {**batching, "dataset_length": _length(loader.dataset), "sampler": _described(sampler)}


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _described(sampler: Any) -> str:
    names = next((names for kind, names in _PARAMETERS if isinstance(sampler, kind)), ())
    parameters = ", ".join(f"{name}={getattr(sampler, name)!r}" for name in names)
    return f"{type(sampler).__qualname__[:_MAX_NAME]}({parameters})"
