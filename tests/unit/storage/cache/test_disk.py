"""A folder that is shared, broken, full, or left behind by the dead."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.errors import SpecError
from stoker.storage.cache.disk import DiskTier
from stoker.storage.cache.faults import PAUSE_S
from stoker.storage.cache.folder import Folder
from stoker.storage.cache.options import CacheOptions
from stoker.storage.use import Use
from support.cache_process import full_disk
from support.caching import Clock

PAYLOAD = memoryview(b"x" * 936)  # 1000 with its header


def name(number: int) -> bytes:
    return bytes([number]) * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def tier(folder: Path, num_entries: int = 10, clock: Callable[[], float] | None = None) -> DiskTier:
    options = CacheOptions(str(folder), disk_bytes=1000 * num_entries, reserve_bytes=0)
    return DiskTier(options, str(folder), clock or Clock())


def keep(disk: DiskTier, number: int, ahead: float = 1.0) -> bool:
    disk.note([(name(number), Use("a", 0.0, ahead))])
    return disk.offer(name(number), PAYLOAD)


def test_what_one_keeps_the_other_reads(folder: Path) -> None:
    one, other = tier(folder), tier(folder)
    assert keep(one, 1)
    assert other.read(name(1), 936) == PAYLOAD
    assert one.held() == other.held()
    assert one.held().num_bytes == 1000
    one.close()
    other.close()


def test_two_share_one_budget(folder: Path) -> None:
    one, other = tier(folder, 2), tier(folder, 2)
    assert keep(one, 1, 0.1)
    assert keep(other, 2, 0.3)
    assert not keep(one, 3, 0.4)
    assert keep(one, 4, 0.2)
    assert [number for number in range(5) if other.read(name(number), 936)] == [1, 4]
    assert one.evicted == 1
    one.close()
    other.close()


def test_a_smaller_budget_makes_the_folder_smaller(folder: Path) -> None:
    one = tier(folder, 5)
    assert all(keep(one, number, number / 10) for number in range(1, 6))
    other = tier(folder, 2)
    assert [number for number in range(1, 6) if one.read(name(number), 936)] == [1, 2]
    one.close()
    other.close()


def test_what_others_need_of_the_disk_is_given_back(folder: Path) -> None:
    one = tier(folder)
    assert keep(one, 1)
    assert keep(one, 2)
    free = shutil.disk_usage(folder).free
    options = CacheOptions(str(folder), disk_bytes=10_000, reserve_bytes=free + (1 << 30))
    other = DiskTier(options, str(folder), Clock())
    assert one.held().num_files == 0
    assert not keep(other, 1)
    one.close()
    other.close()


@pytest.mark.parametrize("garbage", [None, b"", b"garbage" * 10_000])
def test_a_broken_ledger_is_made_anew_from_the_files(folder: Path, garbage: bytes | None) -> None:
    one, other = tier(folder, 3), tier(folder, 3)
    assert keep(one, 1)
    assert keep(other, 2)
    ledger = folder / "ledger.sqlite"
    ledger.unlink()
    if garbage is not None:
        ledger.write_bytes(garbage)
    for disk in (one, other):
        disk.held()
        assert disk.held().num_bytes == 2000
    assert keep(other, 3)
    assert keep(one, 4)  # what was known of uses is lost
    one.close()
    other.close()
    again = tier(folder, 3)
    assert again.held().num_files == 3
    assert again.faults.errors == 0
    again.close()


def test_what_the_dead_reserved_is_found_and_freed(folder: Path) -> None:
    disk = tier(folder, 2)
    dead = 12345
    files = Folder(str(folder))
    Path(files.part(name(1), dead)).write_bytes(b"half")
    Path(files.part(name(2), dead)).write_bytes(b"half")
    with sqlite3.connect(files.ledger) as connection:
        connection.execute("INSERT INTO entries VALUES(?, 1500, ?, -1, 0)", (name(1), dead))
    connection.close()
    assert disk.held().reserved_bytes == 1500
    assert keep(disk, 3)
    assert keep(disk, 4)
    assert disk.held().num_bytes == 2000
    disk.close()
    tier(folder).close()
    assert not list((folder / "parts").iterdir())


def test_what_the_living_reserved_stays_reserved(folder: Path) -> None:
    one, other = tier(folder, 2), tier(folder, 2)
    assert one._opened is not None
    with one._opened.ledger.transaction(0.0) as ledger:
        ledger.add(name(1), 1500, one._opened.owner)
    assert not keep(other, 2)
    assert not keep(other, 1)
    one.close()
    assert keep(other, 2)
    other.close()


def test_a_torn_file_is_a_miss_and_is_removed(folder: Path) -> None:
    disk = tier(folder)
    keep(disk, 1)
    path = Path(Folder(str(folder)).entry(name(1)))
    path.write_bytes(path.read_bytes()[:500])
    assert disk.read(name(1), 936) is None
    assert not path.exists()
    assert disk.held().num_files == 0
    assert disk.faults.errors == 1
    disk.close()


def test_a_full_disk_gives_the_room_back_and_is_tried_again_later(folder: Path) -> None:
    clock = Clock()
    disk = tier(folder, 300, clock)
    with full_disk(150_000):  # enough for the ledger
        assert not disk.offer(name(1), memoryview(bytes(200_000)))
    assert not list((folder / "parts").iterdir())
    assert disk.held().num_bytes == 0
    assert not keep(disk, 1)
    clock.at_s += PAUSE_S
    assert keep(disk, 1)
    assert disk.held().num_bytes == 1000
    disk.close()


def test_a_file_that_is_not_in_the_ledger_counts_after_a_rebuild_and_one_that_is_gone_does_not(folder: Path) -> None:
    disk = tier(folder, 2)
    assert keep(disk, 1)
    Path(Folder(str(folder)).entry(name(1))).unlink()
    assert disk.read(name(1), 936) is None
    assert keep(disk, 1)
    assert disk.held().num_files == 1
    disk.close()


def test_a_folder_that_cannot_be_made_is_only_slower(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    disk = tier(tmp_path / "file" / "below")
    assert not keep(disk, 1)
    assert disk.read(name(1), 936) is None
    assert disk.try_lock(name(1))
    assert disk.queue() is None
    assert disk.faults.errors == 1
    disk.close()


def test_a_file_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SpecError, match="is a file: give the path of a folder"):
        tier(tmp_path / "file")


def test_a_disks_own_root_may_be_the_folder(folder: Path) -> None:
    (folder / "lost+found").mkdir(parents=True)
    disk = tier(folder)
    assert keep(disk, 1)
    disk.close()


def test_a_folder_that_is_lost_later_is_only_slower(folder: Path) -> None:
    disk = tier(folder)
    assert keep(disk, 1)
    folder.rename(folder.with_name("elsewhere"))
    assert disk.read(name(1), 936) is None
    assert not keep(disk, 2)
    assert disk.faults.errors > 0
    disk.close()
