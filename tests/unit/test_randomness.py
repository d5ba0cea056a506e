"""The generator is the published one; every number is named by seed, epoch, sample and op alone."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker import randomness
from stoker.randomness import key64, keyed_permutation, permutation_index, philox4x32, uniforms

KNOWN_ANSWERS = [  # "philox4x32 10" of Random123's kat_vectors: counter, key, words
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def textbook_philox(counter: list[int], key: list[int], bits: int) -> list[int]:
    """Philox-4xN-10 as the paper prints it, for N = 32 and N = 64."""
    constants = {
        32: ((0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)),
        64: ((0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)),
    }
    (m0, m1), (w0, w1) = constants[bits]
    mask = 2**bits - 1
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        high0, low0 = divmod(c[0] * m0, 2**bits)
        high1, low1 = divmod(c[2] * m1, 2**bits)
        c = [high1 ^ c[1] ^ k0, low1, high0 ^ c[3] ^ k1, low0]
        k0, k1 = (k0 + w0) & mask, (k1 + w1) & mask
    return c


def chi_square_z(counts: np.ndarray, expected: np.ndarray | float) -> float:
    """How many standard deviations the chi-square statistic lies above its mean."""
    statistic = float((((counts - expected) ** 2) / expected).sum())
    freedom = len(counts) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("counter, key, words", KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter: str, key: str, words: str) -> None:
    column = np.array([int(word, 16) for word in counter.split()], np.uint64)[:, None]
    low, high = (int(word, 16) for word in key.split())
    expected = [int(word, 16) for word in words.split()]
    assert philox4x32(column, low | high << 32)[:, 0].tolist() == expected
    assert list(randomness._philox4x32_once(tuple(column[:, 0].tolist()), low | high << 32)) == expected


def test_the_textbook_form_agrees_with_numpy_where_numpy_has_the_width() -> None:
    # numpy.random.Philox is Philox4x64-10, counts before it draws, and so shows block 1 first.
    numpy_words = np.random.Philox(counter=0, key=12345).random_raw(4).tolist()
    assert textbook_philox([1, 0, 0, 0], [12345, 0], 64) == numpy_words


def test_many_counters_agree_with_the_textbook_form() -> None:
    rng = np.random.default_rng(3)
    counters = rng.integers(0, 2**32, (4, 5000), dtype=np.uint64)  # more than one block of work
    words = philox4x32(counters, 0x0123456789ABCDEF)
    for column in (0, 1, 4095, 4096, 4999):
        expected = textbook_philox(counters[:, column].tolist(), [0x89ABCDEF, 0x01234567], 32)
        assert words[:, column].tolist() == expected


def test_uniforms_are_pinned() -> None:
    # These values are part of the promise of repeatability: they change with a major version only.
    pinned = [[0.8254589988921995, 0.8568513921965946]]
    assert uniforms(0, 0, np.array([0]), 0, 2).tolist() == pinned
    assert key64(0, 0, 0, 0) == 8370207871590518766
    assert keyed_permutation(5, 1).tolist() == [2, 0, 4, 3, 1]
    assert permutation_index(np.arange(4), 10**6, 1).tolist() == [653256, 370472, 878590, 864932]


def test_a_uniform_is_the_upper_53_bits_of_two_words() -> None:
    key = randomness.seed_key(7)
    sample, epoch, op = 2**40 + 5, 3, 9
    counter = [sample & 0xFFFFFFFF, sample >> 32 | op << 16, epoch, 1]  # block 1 holds numbers 2 and 3
    words = textbook_philox(counter, [key & 0xFFFFFFFF, key >> 32], 32)
    found = uniforms(7, epoch, np.array([sample]), op, 4)[0]
    assert found[2] == ((words[0] << 32 | words[1]) >> 11) / 2**53
    assert found[3] == ((words[2] << 32 | words[3]) >> 11) / 2**53


def test_a_row_depends_on_its_own_sample_only() -> None:
    together = uniforms(1, 2, np.array([9, 4, 9, 2**47]), 5, 7)
    for row, sample in enumerate((9, 4, 9, 2**47)):
        assert np.array_equal(together[row], uniforms(1, 2, np.array([sample]), 5, 7)[0])
    assert np.array_equal(together[:, :3], uniforms(1, 2, np.array([9, 4, 9, 2**47]), 5, 3))


def test_every_part_of_the_name_matters() -> None:
    names = [(0, 0, 0, 0), (1, 0, 0, 0), (-1, 0, 0, 0), (2**64, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    names += [
        (0, 0, 2**32, 0),
        (0, 2**31, 0, 0),
        (0, 0, 0, 2**15 - 1),
        (0, 0, 0, -1),
        (0, 0, 0, -(2**15)),
        (10**40, 0, 0, 0),
    ]
    drawn = {uniforms(seed, epoch, np.array([sample]), op, 1).item() for seed, epoch, sample, op in names}
    keys = {key64(*name) for name in names}
    assert len(drawn) == len(keys) == len(names)


@pytest.mark.parametrize("num_samples", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_shapes_and_dtype(num_samples: int, count: int) -> None:
    drawn = uniforms(0, 0, np.arange(num_samples), 0, count)
    assert drawn.shape == (num_samples, count)
    assert drawn.dtype == np.float64
    assert drawn.flags.c_contiguous


def test_uniforms_are_uniform() -> None:
    drawn = uniforms(11, 0, np.arange(20_000), 3, 5)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    for column in range(5):
        counts = np.bincount((drawn[:, column] * 256).astype(int), minlength=256)
        assert abs(chi_square_z(counts, len(drawn) / 256)) < 4
    correlation = np.asarray(np.corrcoef(drawn.T))[np.triu_indices(5, 1)]
    assert np.abs(correlation).max() < 4 / math.sqrt(len(drawn))


@pytest.mark.parametrize(
    "arguments, name",
    [
        ((0, -1, [0], 0, 1), "epoch"),
        ((0, 2**32, [0], 0, 1), "epoch"),
        ((0, 0, [-1], 0, 1), "samples"),
        ((0, 0, [2**48], 0, 1), "samples"),
        ((0, 0, [0], 2**15, 1), "op_index"),
        ((0, 0, [0], -(2**15) - 1, 1), "op_index"),
        ((0, 0, [0], 0, -1), "count"),
    ],
)
def test_what_the_counter_cannot_hold_is_refused(arguments: tuple[int, int, list[int], int, int], name: str) -> None:
    seed, epoch, samples, op_index, count = arguments
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        uniforms(seed, epoch, np.array(samples), op_index, count)


@settings(max_examples=150, deadline=None)
@given(size=st.integers(0, 5000), key=st.integers(0, 2**64 - 1))
def test_keyed_permutation_is_a_bijection(size: int, key: int) -> None:
    assert np.array_equal(np.sort(keyed_permutation(size, key)), np.arange(size))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.integers(1, 40_000), key=st.integers(0, 2**64 - 1))
def test_any_positions_agree_with_the_whole_permutation(data: st.DataObject, size: int, key: int) -> None:
    positions = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    found = permutation_index(np.array(positions, np.int64), size, key)
    assert found.tolist() == keyed_permutation(size, key)[positions].tolist()


@settings(max_examples=60, deadline=None)
@given(size=st.integers(2**30, 2**48), start=st.integers(0, 2**30 - 3000), key=st.integers(0, 2**64 - 1))
def test_huge_ranges_stay_injective_and_inside(size: int, start: int, key: int) -> None:
    found = permutation_index(np.arange(start, start + 3000), size, key)
    assert found.min() >= 0
    assert found.max() < size
    assert len(np.unique(found)) == 3000


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_small_ranges_reach_every_permutation_equally(size: int) -> None:
    num_keys = 400 * math.factorial(size)
    seen = Counter(tuple(keyed_permutation(size, key64(5, 0, k, 0)).tolist()) for k in range(num_keys))
    assert len(seen) == math.factorial(size)
    if size > 1:
        assert abs(chi_square_z(np.array(list(seen.values())), 400.0)) < 4


@pytest.mark.parametrize("size", [1025, 3001])
def test_the_network_mixes_as_well_as_a_random_permutation(size: int) -> None:
    permutations = np.array([keyed_permutation(size, key64(7, 0, k, 0)) for k in range(2000)])
    expected = np.bincount(np.arange(size) * 32 // size) * (2000 / size)
    for position in (0, 1, size // 2, size - 1):
        assert abs(chi_square_z(np.bincount(permutations[:, position] * 32 // size, minlength=32), expected)) < 4
    steps = (permutations[:, 1] - permutations[:, 0]) % size
    assert abs(chi_square_z(np.bincount(steps * 32 // size, minlength=32), expected)) < 4
    fixed_points = (permutations == np.arange(size)).sum()
    assert abs(fixed_points - 2000) < 4 * math.sqrt(2000)


@pytest.mark.parametrize("positions", [[-1], [10]])
def test_positions_outside_the_range_are_refused(positions: list[int]) -> None:
    with pytest.raises(ValueError, match=r"positions: expected 0\.\.9"):
        permutation_index(np.array(positions), 10, 0)


def test_sizes_outside_the_range_are_refused() -> None:
    with pytest.raises(ValueError, match="size: expected"):
        permutation_index(np.array([], np.int64), 2**48 + 1, 0)


def test_a_table_handed_out_cannot_spoil_the_next() -> None:
    first = keyed_permutation(10, 3)
    first[:] = 0
    assert np.array_equal(np.sort(keyed_permutation(10, 3)), np.arange(10))
