"""Where the rank comes from."""

from __future__ import annotations

import pytest

from stoker.errors import SpecError
from stoker.ranks import Rank, find


def test_what_is_given_wins() -> None:
    assert find(1, 4, {"RANK": "0", "WORLD_SIZE": "2"}) == Rank(1, 4)


def test_the_launchers_variables_are_read() -> None:
    assert find(None, None, {"RANK": "3", "WORLD_SIZE": "8"}) == Rank(3, 8)
    assert find(None, None, {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}) == Rank(1, 2)


def test_alone_it_is_rank_0_of_1() -> None:
    assert find(None, None, {}) == Rank(0, 1)


@pytest.mark.parametrize("rank, world_size", [(4, 4), (-1, 2), (0, 0)])
def test_an_impossible_rank_is_refused(rank: int, world_size: int) -> None:
    with pytest.raises(SpecError, match="0 <= rank < world_size"):
        find(rank, world_size, {})


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_half_of_the_launchers_variables_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=f"has {name} but not"):
        find(None, None, {name: "1"})


def test_half_of_it_is_refused() -> None:
    with pytest.raises(SpecError, match="both of them or neither"):
        find(0, None, {})


def test_a_rank_that_is_no_number_is_refused() -> None:
    with pytest.raises(SpecError, match="RANK='x'"):
        find(None, None, {"RANK": "x", "WORLD_SIZE": "8"})
