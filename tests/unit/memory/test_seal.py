"""A seal tells a reader whether what it copied was what was promised."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from stoker.memory.arena import Arena
from stoker.memory.seal import TABLE_BYTES, Seals, holds
from stoker_service.transport.arena_host import ArenaHost
from stoker_service.transport.arena_view import ArenaView


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(1 << 20)
    yield made
    made.close()


def test_a_seal_holds_until_it_is_broken(arena: Arena) -> None:
    with ArenaHost(arena) as host:
        view = ArenaView.open(host.socket_name, 5.0)
    first, second = arena.seals.make(), arena.seals.make()
    assert first is not None
    assert second is not None
    assert view.holds(first)
    arena.seals.break_seal(first)
    assert not view.holds(first)
    assert view.holds(second)
    view.close()
    assert not view.holds(second)


def test_a_broken_seal_never_holds_again() -> None:
    space = np.zeros(TABLE_BYTES, np.uint8)
    seals = Seals(space)
    broken = []
    for _ in range(20_000):
        seal = seals.make()
        assert seal is not None
        assert seal > 0
        seals.break_seal(seal)
        broken.append(seal)
    assert len(set(broken)) == len(broken)
    assert not any(holds(space, seal) for seal in broken)
    assert not holds(space, 0)


def test_there_are_thousands_at_a_time_and_no_more() -> None:
    seals = Seals(np.zeros(TABLE_BYTES, np.uint8))
    made = [seals.make() for _ in range(TABLE_BYTES // 8)]
    assert None not in made
    assert seals.make() is None
    seals.break_seal(made[5] or 0)
    assert seals.make() is not None


def test_blocks_do_not_lie_over_the_table(arena: Arena) -> None:
    seal = arena.seals.make()
    block = arena.allocate(1 << 20)
    assert seal is not None
    assert block is not None
    block[:] = 255
    assert holds(arena._space, seal)
