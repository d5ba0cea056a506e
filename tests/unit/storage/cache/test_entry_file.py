"""A file is whole and of its range, or it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.storage.cache.entry_file import HEADER_BYTES, read_entry, write_entry

DIGEST = bytes(range(32))
PAYLOAD = memoryview(os.urandom(1000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_entry(str(tmp_path / "entry"), DIGEST, PAYLOAD)
    return tmp_path / "entry"


def test_what_was_written_is_read(path: Path) -> None:
    assert read_entry(str(path), DIGEST, 1000) == PAYLOAD
    assert path.stat().st_size == HEADER_BYTES + 1000 == 1064


def test_each_flipped_bit_is_seen(path: Path) -> None:
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        assert read_entry(str(path), DIGEST, 1000) is None, place


@pytest.mark.parametrize("length", [0, 1, 63, 64, 1063, 1065])
def test_another_length_is_seen(path: Path, length: int) -> None:
    path.write_bytes((path.read_bytes() + b"x")[:length])
    assert read_entry(str(path), DIGEST, 1000) is None


def test_another_range_is_seen(path: Path) -> None:
    assert read_entry(str(path), DIGEST[::-1], 1000) is None
    assert read_entry(str(path), DIGEST, 999) is None


def test_links_and_pipes_are_not_followed(tmp_path: Path, path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="symbolic"):
        read_entry(str(tmp_path / "link"), DIGEST, 1000)
    assert read_entry(str(tmp_path / "pipe"), DIGEST, 1000) is None


def test_what_lies_there_is_not_overwritten(path: Path) -> None:
    with pytest.raises(FileExistsError):
        write_entry(str(path), DIGEST, PAYLOAD)


def test_payloads_of_any_form_are_written_as_bytes(tmp_path: Path) -> None:
    write_entry(str(tmp_path / "x"), DIGEST, memoryview(bytes(range(80))).cast("I"))
    assert bytes(read_entry(str(tmp_path / "x"), DIGEST, 80) or b"") == bytes(range(80))
