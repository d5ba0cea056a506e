"""Local files: few descriptors, whole writes, the system's errors in our words."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import ChangedError, NotFoundError, StorageError
from stoker.storage.files import FileStore


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_reads_keep_no_descriptor_open(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    before = open_descriptors()
    kept = [FileStore().read(str(path), 0, 10) for _ in range(300)]
    assert open_descriptors() <= before, "fewer: what other tests left was collected meanwhile"
    assert all(bytes(view) == b"0123456789" for view in kept)


def test_many_reads_under_a_low_limit_of_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        for number in range(200):
            (tmp_path / str(number)).write_bytes(b"x")
        views = [FileStore().read(str(tmp_path / str(number)), 0, 1) for number in range(200)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(views) == 200


def test_a_replaced_file_is_seen_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x"
    store = FileStore()
    store.write(str(path), b"old")
    store.read(str(path), 0, 3)
    store.write(str(path), b"new")
    assert bytes(store.read(str(path), 0, 3)) == b"new"


def test_short_system_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(range(100)))
    whole_read = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: whole_read(fd, min(count, 7), at))
    assert bytes(FileStore().read(str(path), 10, 90)) == bytes(range(10, 90))


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_read_is_a_slice(tmp_path_factory: pytest.TempPathFactory, start: int, length: int) -> None:
    path = tmp_path_factory.getbasetemp() / "slice"
    path.write_bytes(bytes(range(50)))
    assert bytes(FileStore().read(str(path), start, start + length)) == bytes(range(50))[start : start + length]


def test_written_files_have_the_users_usual_rights(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        FileStore().write(f"{tmp_path}/x", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="folder"):
        FileStore().write(f"{tmp_path}/folder", b"x")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_half_written_file_of_a_dead_process_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".stoker-0123.tmp").write_bytes(b"half")
    (tmp_path / "x").write_bytes(b"")
    assert [found.url for found in FileStore().list(f"{tmp_path}/")] == [f"file://{tmp_path}/x"]


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"12")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "up").symlink_to("..")
    (tmp_path / "broken").symlink_to("nowhere")
    found = {item.url.removeprefix(f"file://{tmp_path}/"): item.size_bytes for item in FileStore().list(f"{tmp_path}/")}
    assert found == {"real/x": 2, "link/x": 2}


def test_a_listing_does_not_enter_folders_that_cannot_match(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "x").write_bytes(b"")
    (tmp_path / "other").chmod(0)
    try:
        assert [found.url for found in FileStore().list(f"{tmp_path}/tr")] == [f"file://{tmp_path}/train/x"]
    finally:
        (tmp_path / "other").chmod(0o700)


def test_a_shallow_listing_does_not_enter_folders(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    for folder in [tmp_path, tmp_path / "deep", tmp_path / "deep" / "deeper"]:
        (folder / "x").write_bytes(b"")

    def listed(depth: int) -> list[str]:
        prefix = f"file://{tmp_path}/"
        return [found.url.removeprefix(prefix) for found in FileStore().list(prefix, max_depth=depth)]

    assert listed(0) == ["x"]
    assert listed(1) == ["deep/x", "x"]


def test_pipes_and_folders_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="not a file"):
        FileStore().head(f"{tmp_path}/pipe")
    with pytest.raises(StorageError, match="folder"):
        FileStore().read(str(tmp_path), 0, 1)
    assert list(FileStore().list(f"{tmp_path}/")) == []


def test_a_path_below_a_file_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(NotFoundError, match=r"x/y"):
        FileStore().read(f"{tmp_path}/x/y", 0, 1)


def test_a_file_that_was_changed_since_is_an_error_with_both_times(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"one")
    store = FileStore()
    before = store.head(str(path)).version
    assert bytes(store.read(str(path), 0, 3, before)) == b"one"
    os.utime(path, ns=(1, int(before) + 1))
    with pytest.raises(
        ChangedError, match=rf"{path} was changed: .*{before} ns .*{int(before) + 1} ns.*Index it again"
    ):
        store.read(str(path), 0, 3, before)
    assert bytes(store.read(str(path), 0, 3)) == b"one"


def test_a_version_of_another_kind_cannot_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"one")
    assert bytes(FileStore().read(str(path), 0, 3, "d41d8cd98f00b204e9800998ecf8427e-2")) == b"one"
