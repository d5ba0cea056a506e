"""Random numbers that are a pure function of seed, epoch, sample and op.

The generator is Philox4x32-10 (J. Salmon, M. Moraes, R. Dror, D. Shaw: "Parallel random numbers: as easy as 1, 2, 3",
SC 2011): ten rounds turn a 128-bit counter and a 64-bit key into four random words, so any number can be had without
those before it. The seed is the key. The counter names what the numbers are for, injectively, low word first::

    word 0  sample, bits 0..31
    word 1  sample, bits 32..47, then op_index (16 bits; negative ones are for what is not an op, such as the order)
    word 2  epoch (32 bits)
    word 3  block (28 bits), then what the block is used for (4 bits)

The stream is part of Stoker's promise of repeatability: it may change only with a major version.
"""

from __future__ import annotations

import hashlib
import math
import operator
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]
"""Words of 32 bits, each in a uint64, so that a product of two fits."""

MAX_SAMPLES = 2**48
MAX_OPS = 2**15
MAX_EPOCHS = 2**32
MAX_UNIFORMS = 2**28

_MASK16 = 0xFFFF
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MULTIPLIERS = np.array([[_M0], [_M1]], np.uint64)
_LOW32, _SHIFT32 = np.uint64(_MASK32), np.uint64(32)
_MIX0, _MIX1 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_NUM_ROUNDS = 10

_FOR_UNIFORMS = 0
_FOR_KEYS = 1
_FOR_TABLES = 2
_FOR_FEISTEL = 3

_BLOCKS_AT_ONCE = 4096  # 64 KiB per array: the working set stays in a core's own cache
_POSITIONS_AT_ONCE = 8192
_MAX_TABLE = 1024
_FEISTEL_ROUNDS = 8


def uniforms(seed: int, epoch: int, samples: NDArray[np.int64], op_index: int, count: int) -> NDArray[np.float64]:
    """Return ``count`` numbers in [0, 1) for each sample: float64 of shape (len(samples), count), 53 random bits each.

    A row depends on its own sample number only, and a longer row begins with the shorter one.
    """
    _check(epoch, op_index)
    if not 0 <= count <= MAX_UNIFORMS:
        raise ValueError(f"count: expected 0..{MAX_UNIFORMS}, found {count}")
    samples = np.asarray(samples, dtype=np.int64)
    if samples.size and not (samples.min() >= 0 and samples.max() < MAX_SAMPLES):
        raise ValueError(f"samples: expected 0..{MAX_SAMPLES - 1}, found {samples.min()}..{samples.max()}")
    num_blocks = -(-count // 2)
    wide = samples.astype(np.uint64)[:, None]
    counter = np.empty((4, len(samples), num_blocks), np.uint64)
    counter[0] = wide & _LOW32
    counter[1] = wide >> _SHIFT32 | np.uint64((op_index & _MASK16) << 16)
    counter[2] = epoch
    counter[3] = np.arange(num_blocks, dtype=np.uint64) | np.uint64(_FOR_UNIFORMS << 28)
    words = philox4x32(counter.reshape(4, -1), seed_key(seed))
    wide_words = _joined(words).reshape(len(samples), 2 * num_blocks)[:, :count]
    return (wide_words >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)


def key64(seed: int, epoch: int, sample: int, op_index: int) -> int:
    """Return the 64-bit key of a generator for one sample and op; never a number that :func:`uniforms` uses."""
    _check(epoch, op_index)
    if not 0 <= sample < MAX_SAMPLES:
        raise ValueError(f"sample: expected 0..{MAX_SAMPLES - 1}, found {sample}")
    counter = (sample & _MASK32, sample >> 32 | (op_index & _MASK16) << 16, epoch, _FOR_KEYS << 28)
    words = _philox4x32_once(counter, seed_key(seed))
    return words[0] << 32 | words[1]


def _check(epoch: int, op_index: int) -> None:
    if not 0 <= epoch < MAX_EPOCHS:
        raise ValueError(f"epoch: expected 0..{MAX_EPOCHS - 1}, found {epoch}")
    if not -MAX_OPS <= op_index < MAX_OPS:
        raise ValueError(f"op_index: expected {-MAX_OPS}..{MAX_OPS - 1}, found {op_index}")


@lru_cache(maxsize=64)
def seed_key(seed: int) -> int:
    """Hash any integer, of any size and sign, to the 64-bit key that stands for it."""
    text = str(operator.index(seed)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def permutation_index(positions: NDArray[np.int64], size: int, key: int) -> NDArray[np.int64]:
    """Return where a keyed bijection of ``range(size)`` sends these positions; memory is that of the positions.

    Up to 1024 the bijection is a sort by random keys, so that every permutation is equally likely. Above, it is a
    generalised Feistel network, walked until it falls into the range (J. Black, P. Rogaway: "Ciphers with arbitrary
    finite domains", CT-RSA 2002).
    """
    if not 0 <= size <= MAX_SAMPLES:
        raise ValueError(f"size: expected 0..{MAX_SAMPLES}, found {size}")
    positions = np.asarray(positions, dtype=np.int64)
    if positions.size and not (positions.min() >= 0 and positions.max() < size):
        raise ValueError(f"positions: expected 0..{size - 1}, found {positions.min()}..{positions.max()}")
    if size <= _MAX_TABLE:
        return _table(size, key & _MASK64)[positions]
    flat = positions.reshape(-1)
    images = np.empty(len(flat), np.int64)
    network = _Feistel(size, key & _MASK64)
    for start in range(0, len(flat), _POSITIONS_AT_ONCE):
        block = slice(start, start + _POSITIONS_AT_ONCE)
        images[block] = network.walk(flat[block].astype(np.uint64)).view(np.int64)
    return images.reshape(positions.shape)


def keyed_permutation(size: int, key: int) -> NDArray[np.int64]:
    """Return the whole bijection of :func:`permutation_index` as an array of ``size`` numbers."""
    return permutation_index(np.arange(size, dtype=np.int64), size, key)


def philox4x32(counter: Words, key: int) -> Words:
    """Run Philox4x32-10 over counters of shape (4, n) under one 64-bit key; returns the words, of the same shape."""
    words = np.empty_like(counter)
    keys = np.array([_round_key(key, i) for i in range(_NUM_ROUNDS)], np.uint64)[:, :, None]
    for start in range(0, counter.shape[1], _BLOCKS_AT_ONCE):
        block = slice(start, start + _BLOCKS_AT_ONCE)
        words[0::2, block], words[1::2, block] = _rounds(counter[0::2, block], counter[1::2, block].copy(), keys)
    return words


def _rounds(even: Words, odd: Words, keys: Words) -> tuple[Words, Words]:
    """Run all rounds on words 0 and 2 (``even``) and 1 and 3 (``odd``, overwritten), both lanes in each NumPy call."""
    even, product = even.copy(), np.empty(even.shape, np.uint64)
    crossed = product[::-1]
    for key in keys:
        np.multiply(even, _MULTIPLIERS, out=product)
        np.right_shift(crossed, _SHIFT32, out=even)
        even ^= odd
        even ^= key
        np.bitwise_and(crossed, _LOW32, out=odd)
    return even, odd


def _philox4x32_once(counter: tuple[int, int, int, int], key: int) -> tuple[int, int, int, int]:
    """Run Philox4x32-10 on one counter; in Python's integers, which for one are faster than arrays."""
    a, b, c, d = counter
    for round_index in range(_NUM_ROUNDS):
        low_key, high_key = _round_key(key, round_index)
        product, other = a * _M0, c * _M1
        a, b, c, d = other >> 32 ^ b ^ low_key, other & _MASK32, product >> 32 ^ d ^ high_key, product & _MASK32
    return a, b, c, d


def _round_key(key: int, round_index: int) -> tuple[int, int]:
    """Return the two words that round ``round_index`` mixes in: a Weyl sequence that starts at the key."""
    return ((key & _MASK32) + round_index * _W0) & _MASK32, ((key >> 32) + round_index * _W1) & _MASK32


def _words_for(purpose: int, num_blocks: int, key: int) -> NDArray[np.uint64]:
    """Return 64-bit words of the stream that ``key`` opens for one purpose: two per block."""
    counter = np.zeros((4, num_blocks), np.uint64)
    counter[0] = np.arange(num_blocks, dtype=np.uint64)
    counter[3] = purpose << 28
    return _joined(philox4x32(counter, key))


def _joined(words: Words) -> NDArray[np.uint64]:
    """Return the words of each block as two numbers of 64 bits, block after block."""
    joined = np.empty((words.shape[1], 2), np.uint64)
    np.bitwise_or(words[0::2].T << _SHIFT32, words[1::2].T, out=joined)
    return joined.reshape(-1)


@lru_cache(maxsize=64)
def _table(size: int, key: int) -> NDArray[np.int64]:
    """Return a permutation of a small range: the order of random 54-bit numbers, ties (1 in 10**10) by position."""
    numbers = _words_for(_FOR_TABLES, -(-size // 2), key)[:size]
    tagged = numbers & np.uint64(_MASK64 - (_MAX_TABLE - 1)) | np.arange(size, dtype=np.uint64)
    table = (np.sort(tagged) & np.uint64(_MAX_TABLE - 1)).astype(np.int64)
    table.setflags(write=False)
    return table


class _Feistel:
    """A keyed bijection of ``range(size)``: a Feistel network on the coordinates of a nearly square grid.

    The grid has ``rows * columns >= size`` places, fewer than ``columns`` too many, so that walking is rare.
    """

    def __init__(self, size: int, key: int) -> None:
        rows = math.isqrt(size)
        self._size = np.uint64(size)
        self._rows = np.uint64(rows)
        self._columns = np.uint64(-(-size // rows))
        self._keys = _words_for(_FOR_FEISTEL, _FEISTEL_ROUNDS // 2, key)

    def walk(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Send each number through the network until it lies in the range."""
        images = self._once(numbers)
        outside = np.flatnonzero(images >= self._size)
        while len(outside):
            again = self._once(images[outside])
            images[outside] = again
            outside = outside[again >= self._size]
        return images

    def _once(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        row = numbers // self._columns
        column = numbers - row * self._columns
        spare = np.empty_like(numbers)
        for i in range(0, _FEISTEL_ROUNDS, 2):
            _shift(row, column, self._rows, self._keys[i], spare)
            _shift(column, row, self._columns, self._keys[i + 1], spare)
        row *= self._columns
        row += column
        return row


def _shift(
    moved: NDArray[np.uint64], other: NDArray[np.uint64], modulus: np.uint64, key: np.uint64, spare: NDArray[np.uint64]
) -> None:
    """Add, modulo ``modulus``, a keyed hash of ``other``: a multiplication on both sides of a fold (MurmurHash3)."""
    np.bitwise_xor(other, key, out=spare)
    spare *= _MIX0
    spare ^= spare >> _SHIFT32
    spare *= _MIX1
    spare >>= _SHIFT32
    spare *= modulus
    spare >>= _SHIFT32
    moved += spare
    np.subtract(moved, modulus, out=spare)  # wraps to a huge number where it must not be taken away
    np.minimum(moved, spare, out=moved)
