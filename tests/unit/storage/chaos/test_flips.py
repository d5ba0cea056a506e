"""A byte that was flipped comes right when it is read again."""

from __future__ import annotations

import pytest

from stoker.storage.chaos import flips
from stoker.storage.chaos.flips import Flips


def test_what_holds_a_flipped_byte_is_right() -> None:
    kept = Flips()
    assert kept.flips("x", 0, 100, 50)
    assert not kept.flips("x", 0, 100, 20)
    assert not kept.flips("x", 50, 51, 50)
    assert kept.flips("x", 51, 100, 60)
    assert kept.flips("x", 0, 50, 49)
    assert kept.flips("y", 0, 100, 50)


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flips, "MAX_FLIPS", 2)
    kept = Flips()
    assert [kept.flips(name, 0, 1, 0) for name in ("a", "b", "c", "a")] == [True] * 4
