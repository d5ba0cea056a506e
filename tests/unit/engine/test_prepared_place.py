"""Folders and buckets of entries: found whole or not at all, within a budget, whatever others do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.engine.prepared_entry import EntryError, entry_bytes
from stoker.engine.prepared_place import SUFFIX, BucketPlace, FolderPlace, Place
from stoker.errors import StorageError
from support.servers import Bucket

IDENTITY = bytes(range(16))
ROWS = [b"first" * 100, b"second" * 100]
ENTRY = entry_bytes(IDENTITY, ["a", "b"], ROWS)

Open = Callable[..., Place]


@pytest.fixture(params=["folder", "bucket"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same place again and again."""
    if request.param == "folder":
        return lambda set_name="set", max_bytes=None: FolderPlace(tmp_path, set_name, max_bytes)
    bucket: Bucket = request.getfixturevalue("s3_bucket")
    return lambda set_name="set", max_bytes=None: BucketPlace(
        f"{bucket.url}/cache", set_name, max_bytes, bucket.storage_options
    )


def test_what_was_written_is_found_by_all(opened: Open) -> None:
    first, second = opened(), opened()
    assert not first.has_entries()
    assert first.find("x", IDENTITY, 0) is None
    assert first.write("x", ENTRY)
    for place in (first, second, opened()):
        found = place.find("x", IDENTITY, 1)
        assert found is not None
        assert [found.row(row) for row in range(2)] == ROWS
        assert found.index.keys == ("a", "b")
        assert place.has("x")
        assert place.has_entries()


def test_sets_do_not_see_each_other(opened: Open) -> None:
    opened("one").write("x", ENTRY)
    assert opened("other").find("x", IDENTITY, 0) is None


def test_the_budget_is_kept(opened: Open) -> None:
    place = opened(max_bytes=2 * len(ENTRY))
    assert [place.write(name, ENTRY) for name in ("x", "y", "x", "z")] == [True, True, True, False]
    assert place.find("z", IDENTITY, 1) is None


def test_an_entry_of_something_else_is_an_error_and_can_be_dropped(opened: Open) -> None:
    place = opened()
    place.write("x", ENTRY)
    with pytest.raises(EntryError):
        place.find("x", bytes(16), 0)
    place.drop("x")
    assert place.find("x", IDENTITY, 0) is None
    assert place.write("x", ENTRY)


def test_the_rate_is_measured(opened: Open) -> None:
    place = opened()
    assert place.rate(b"x" * 100_000) > 0
    assert not place.has_entries()
    assert place.room() > 0


def test_several_loaders_share_one_budget_in_a_folder(tmp_path: Path) -> None:
    places = [FolderPlace(tmp_path, name, 3 * len(ENTRY)) for name in ("one", "one", "other")]
    written = [place.write(f"{index}-{number}", ENTRY) for index, place in enumerate(places) for number in range(2)]
    assert written == [True, True, True, False, False, False]
    assert sum(path.stat().st_size for path in tmp_path.rglob(f"*{SUFFIX}")) == 3 * len(ENTRY)


def test_a_set_that_nobody_holds_gives_way(tmp_path: Path) -> None:
    old, held = FolderPlace(tmp_path, "old", 2 * len(ENTRY)), FolderPlace(tmp_path, "held", 2 * len(ENTRY))
    assert old.write("x", ENTRY)
    assert held.write("x", ENTRY)
    old.close()
    new = FolderPlace(tmp_path, "new", 2 * len(ENTRY))
    assert new.write("x", ENTRY)
    assert held.has("x")
    assert old.find("x", IDENTITY, 0) is None


def test_only_what_it_made_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "decoded" / "theirs").mkdir(parents=True)
    theirs = tmp_path / "decoded" / "theirs" / f"important{SUFFIX}"
    theirs.write_bytes(b"x" * 10 * len(ENTRY))
    FolderPlace(tmp_path, "new", len(ENTRY))
    assert theirs.exists()


def test_what_a_killed_writer_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    FolderPlace(tmp_path, "set", None).close()
    old, young = (tmp_path / "decoded" / "set" / f".stoker-{name}.tmp" for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    FolderPlace(tmp_path, "set", None)
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize("damage", [lambda body: body[:-1], lambda body: body + b"x", lambda body: b""])
def test_a_file_of_another_length_is_an_error(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    place = FolderPlace(tmp_path, "set", None)
    place.write("x", ENTRY)
    path = tmp_path / "decoded" / "set" / f"x{SUFFIX}"
    path.write_bytes(damage(ENTRY))
    with pytest.raises(EntryError):
        place.find("x", IDENTITY, 0)


def test_an_entry_that_goes_away_while_it_is_used_is_an_error(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path, "set", None)
    place.write("x", ENTRY)
    found = place.find("x", IDENTITY, 0)
    assert found is not None
    place.drop("x")
    with pytest.raises(FileNotFoundError):
        found.row(0)


def test_a_write_that_fails_takes_nothing_of_the_budget(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path, "set", len(ENTRY))
    folder = tmp_path / "decoded" / "set"
    shutil.rmtree(folder)
    folder.write_bytes(b"a file in the way")
    with pytest.raises(StorageError):
        place.write("x", ENTRY)
    folder.unlink()
    assert place.write("x", ENTRY)


KILLED = """
import os, sys
from pathlib import Path
from stoker.engine.prepared_place import FolderPlace
from stoker.storage import files

class Dying(files.FileStore):
    def write(self, url, payload):
        real = os.replace
        files.os.replace = lambda *names: os._exit(9)
        super().write(url, payload)

place = FolderPlace(Path(sys.argv[1]), "set", None)
place._store = Dying()
place.write("x", b"payload" * 1000)
"""


def test_a_kill_in_the_middle_of_writing_leaves_no_entry(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == 9
    place = FolderPlace(tmp_path, "set", None)
    assert place.find("x", IDENTITY, 0) is None
    assert place.write("x", ENTRY)
