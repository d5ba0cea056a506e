"""How bad samples are replaced or left out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.settle import settle

ROWS = 6


def all_good() -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.ones(ROWS, np.bool_)


def test_a_good_batch_stays_as_it_is() -> None:
    settled = settle(all_good(), replaced=[], dropped=[])
    assert settled.rows is not None
    assert settled.rows.tolist() == list(range(ROWS))
    assert settled.mask.all()


def test_a_bad_row_shows_the_next_good_one_going_round_at_the_end() -> None:
    settled = settle(all_good(), replaced=[1, 2, 5], dropped=[])
    assert settled.rows is not None
    assert settled.rows.tolist() == [0, 3, 3, 3, 4, 0]
    assert settled.mask.tolist() == [True, False, False, True, True, False]


def test_dropped_rows_are_left_out() -> None:
    settled = settle(all_good(), replaced=[], dropped=[0, 4])
    assert settled.rows is not None
    assert settled.rows.tolist() == [1, 2, 3, 5]
    assert settled.mask.all()


def test_filler_stays_masked() -> None:
    mask = all_good()
    mask[4:] = False
    settled = settle(mask, replaced=[0], dropped=[])
    assert settled.mask.tolist() == [False, True, True, True, False, False]


def test_without_a_good_row_there_is_only_filler() -> None:
    settled = settle(all_good(), replaced=range(ROWS), dropped=[])
    assert settled.rows is None
    assert settled.mask.tolist() == [False] * ROWS


def test_dropping_all_leaves_an_empty_batch() -> None:
    settled = settle(all_good(), replaced=[], dropped=range(ROWS))
    assert settled.rows is not None
    assert len(settled.rows) == len(settled.mask) == 0


@given(st.sets(st.integers(0, ROWS - 1)), st.sets(st.integers(0, ROWS - 1)))
def test_only_good_rows_are_shown(replaced: set[int], dropped: set[int]) -> None:
    replaced -= dropped
    settled = settle(all_good(), replaced=replaced, dropped=dropped)
    if settled.rows is None:
        assert replaced | dropped == set(range(ROWS))
    else:
        assert not set(settled.rows.tolist()) & (replaced | dropped)
        assert len(settled.rows) == ROWS - len(dropped)
