"""The workers that keep ranges of objects for the fleet, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final


@dataclass(frozen=True, slots=True)
class Member:
    """A worker that keeps ranges, and where its Flight server listens."""

    worker_id: str
    location: str


@dataclass(frozen=True, slots=True)
class Members:
    """All of them, by id. Equal versions are equal members, whoever tells; an empty one: nobody has told yet."""

    version: str = ""
    members: tuple[Member, ...] = ()


UNTOLD: Final = Members()


def members(found: Iterable[Member]) -> Members:
    """The members with their version, which is a hash of them."""
    by_id = tuple(sorted(found, key=lambda member: member.worker_id))
    text = "\n".join(f"{member.worker_id} {member.location}" for member in by_id)
    return Members(blake2b(text.encode(), digest_size=8).hexdigest(), by_id)
