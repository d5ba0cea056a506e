"""Which worker owns which lane, as the dispatcher told it last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoker_proto.v1 import control_pb2 as wire


@dataclass(frozen=True, slots=True)
class Owner:
    """A worker: its id, and where its Flight server listens."""

    worker_id: str
    location: str

    def __str__(self) -> str:
        return f"worker {self.worker_id} ({self.location})"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owners of a pipeline's lanes; ``reason`` says why there is none.

    ``is_refusal``: workers are there, and none of them makes such a pipeline.
    """

    version: str = ""
    owners: Mapping[int, Owner] = field(default_factory=dict)
    reason: str = ""
    is_refusal: bool = False

    def owner(self, lane: int) -> Owner | None:
        """The owner of a lane; None if no worker is there for it."""
        return self.owners.get(lane)

    @property
    def workers(self) -> tuple[Owner, ...]:
        """Each worker once, those with most lanes first."""
        owners = list(self.owners.values())
        return tuple(sorted(set(owners), key=lambda owner: (-owners.count(owner), owner.worker_id)))


def from_wire(found: wire.Assignment) -> Assignment:
    """Read the dispatcher's answer."""
    owners = {owner.lane: Owner(owner.worker_id, owner.location) for owner in found.owners if owner.worker_id}
    return Assignment(found.version, owners, found.reason, found.is_refusal)
