from __future__ import annotations

import gzip
import random

import pytest

from stoker.errors import ShardError
from stoker.formats.compressed import inflate, is_gzip

NOISE = random.Random(0).randbytes(3 << 20)
ZEROS = bytes(5 << 20)  # one step of input gives many of output


@pytest.mark.parametrize("content", [b"", b"x", NOISE, ZEROS, NOISE + ZEROS])
def test_whole(content: bytes) -> None:
    found, is_whole = inflate("u", memoryview(gzip.compress(content, 1)))
    assert bytes(found) == content
    assert is_whole


@pytest.mark.parametrize("padding", [b"", bytes(700)])
def test_several_members_with_zeros_behind(padding: bytes) -> None:
    packed = gzip.compress(b"one ") + gzip.compress(NOISE) + gzip.compress(b" three") + padding
    found, is_whole = inflate("u", memoryview(packed))
    assert bytes(found) == b"one " + NOISE + b" three"
    assert is_whole


def test_cut_gives_what_was_there() -> None:
    packed = gzip.compress(NOISE, 1)
    found, is_whole = inflate("u", memoryview(packed)[: len(packed) // 2])
    assert not is_whole
    assert len(found) > len(NOISE) // 3
    assert NOISE.startswith(bytes(found))


def test_damaged_gives_what_was_before() -> None:
    packed = bytearray(gzip.compress(NOISE, 1))
    packed[-8] ^= 1  # the stream's checksum
    assert not inflate("u", memoryview(packed))[1]


def test_above_the_limit_says_what_to_do() -> None:
    with pytest.raises(ShardError, match=r"s3://b/x.tgz decompresses to more than 1000 bytes.*gunzip"):
        inflate("s3://b/x.tgz", memoryview(gzip.compress(ZEROS)), limit=1000)


def test_sniff() -> None:
    assert is_gzip(memoryview(gzip.compress(b"")))
    assert not is_gzip(memoryview(b"a.txt"))
    assert not is_gzip(memoryview(b""))
