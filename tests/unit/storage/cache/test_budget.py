"""What options mean on a disk."""

from __future__ import annotations

import pytest

from stoker.errors import SpecError
from stoker.storage.cache.budget import Budget, Held, Space, budget_of, shortage
from stoker.storage.cache.options import CacheOptions

MIB, GIB = 1 << 20, 1 << 30


def space(total: int, free: int, files: int = 1000) -> Space:
    return Space(total, free, files, files // 2)


@pytest.mark.parametrize(
    "total, reserve", [(200 * MIB, 20 * MIB), (4 * GIB, 4 * GIB // 10), (10 * GIB, GIB), (1000 * GIB, 50 * GIB)]
)
def test_the_reserve_fits_the_disk(total: int, reserve: int) -> None:
    assert budget_of(CacheOptions("x"), space(total, total), Held()).reserve_bytes == reserve


def test_half_of_what_is_free_counting_what_it_holds_itself() -> None:
    first = budget_of(CacheOptions("x"), space(100 * GIB, 60 * GIB), Held())
    later = budget_of(CacheOptions("x"), space(100 * GIB, 40 * GIB), Held(20 * GIB, 100))
    assert first.num_bytes == later.num_bytes == 30 * GIB


def test_inodes_are_bounded_where_the_disk_bounds_them() -> None:
    assert budget_of(CacheOptions("x"), space(GIB, GIB), Held()).num_files == 250
    assert budget_of(CacheOptions("x"), space(GIB, GIB, 0), Held()).num_files > 1e6
    assert budget_of(CacheOptions("x", max_files=7), space(GIB, GIB), Held()).num_files == 7


def test_more_than_the_disk_has_is_refused_with_what_would_do() -> None:
    options = CacheOptions("/nvme/x", disk_bytes=200 * MIB)
    with pytest.raises(
        SpecError, match=r"/nvme/x cannot get disk_bytes=209,715,200: .* at most 188,743,680, or a folder"
    ):
        budget_of(options, space(200 * MIB, 200 * MIB), Held())


def test_shortage_is_of_the_budget_or_of_the_disk() -> None:
    budget = Budget(100, 3, 50)
    assert shortage(10, budget, Held(80, 2), 1000) == (-10, 0)
    assert shortage(30, budget, Held(80, 3), 1000) == (10, 1)
    assert shortage(30, budget, Held(50, 1, 20), 80) == (20, -1)


@pytest.mark.parametrize("wrong", [{"folder": ""}, {"disk_bytes": 0}, {"ram_bytes": -1}, {"max_files": 0.5}])
def test_options_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError, match=f"CacheOptions.{next(iter(wrong))}"):
        CacheOptions(**wrong)  # type: ignore[arg-type]
