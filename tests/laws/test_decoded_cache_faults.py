"""What must hold of a decoded cache whose entries or place are damaged, and whose process forks or is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stoker import ops
from stoker.engine.prepared_place import SUFFIX
from stoker.testing import assert_equal_batches
from support.decoded_cache import CROP, RESIZE, ROWS, epochs, flush, pipeline
from support.loading import load
from support.shards import make_shards


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pictures")
    make_shards(folder, ROWS)
    return f"{folder}/shard-*.tar"


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "place")


def damage(path: Path, how: str) -> None:
    body = bytearray(path.read_bytes())
    if how == "flipped":
        body[len(body) * 3 // 4] ^= 0x40
    elif how == "cut":
        del body[len(body) // 2 :]
    elif how == "zeros":
        body[:] = bytes(len(body))
    path.write_bytes(bytes(body))


@pytest.mark.parametrize("how", ["flipped", "cut", "zeros"])
def test_damaged_entries_are_left_out_and_made_again(shards: str, place: str, how: str) -> None:
    cached = pipeline(shards, *RESIZE, ops.Cache(place), *CROP)
    expected = epochs(cached)
    for path in Path(place).rglob(f"*{SUFFIX}"):
        damage(path, how)
    with load(cached) as loader:
        found = list(loader)
        flush(loader)
        found += [batch for _ in range(2) for batch in loader]
        assert loader.stats()["decoded_cache"]["errors"] > 0
        flush(loader)
    assert_equal_batches(found, expected)
    with load(cached) as loader:
        assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
        assert loader.stats()["decoded_cache"]["errors"] == 0


def test_entries_that_vanish_while_they_are_used_cost_a_decode(shards: str, place: str) -> None:
    cached = pipeline(shards, *RESIZE, ops.Cache(place), *CROP, window=64, lanes=1)
    expected = epochs(cached, 1)
    with load(cached, num_threads=1) as loader:
        batches = iter(loader)
        found = [next(batches)]
        for path in Path(place).rglob(f"*{SUFFIX}"):
            path.unlink()
        found += batches
    assert_equal_batches(found, expected)


def test_a_place_that_breaks_is_asked_no_more(shards: str, place: str) -> None:
    expected = epochs(pipeline(shards, *RESIZE, *CROP))
    cached = pipeline(shards, *RESIZE, ops.Cache(place), *CROP)
    epochs(cached, 1)
    with load(cached) as loader:
        (folder,) = (path for path in (Path(place) / "decoded").iterdir() if path.is_dir())
        shutil.rmtree(folder)
        folder.write_text("in the way")
        assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
        stats = loader.stats()["decoded_cache"]
    assert "decoded cache off" in stats["decision"]
    assert stats["errors"] >= 3


def test_a_place_that_cannot_be_used_is_only_slower(
    shards: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cached = pipeline(shards, *RESIZE, ops.Cache(str(blocked)), *CROP)
    assert_equal_batches(epochs(cached), epochs(pipeline(shards, *RESIZE, *CROP)))
    assert "decoded cache off" in caplog.text
    with load(cached) as loader:
        assert "off" in loader.stats()["decoded_cache"]["decision"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_has_a_cache_of_its_own(shards: str, place: str) -> None:
    expected = epochs(pipeline(shards, *RESIZE, *CROP), 2)
    with load(pipeline(shards, *RESIZE, ops.Cache(place), *CROP)) as loader:
        first = list(loader)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                assert_equal_batches([*first, *loader], expected)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert_equal_batches([*first, *loader], expected)


KILLED = """
import os, signal, sys
import stoker
from stoker import ops

steps = [ops.DecodeImage("jpg", to="image"), ops.Resize("image", 40), ops.Label("cls"), ops.Cache(sys.argv[2])]
steps += [ops.RandomResizedCrop("image", 24), ops.RandomHorizontalFlip("image")]
source = stoker.tar(sys.argv[1], chunk_bytes=8192)
pipeline = stoker.Pipeline(source, steps, batch_size=4, shuffle=True, window=3)
left = int(sys.argv[3])
loader = stoker.DataLoader(pipeline, rank=0, world_size=1, output="numpy")
for _ in range(3):
    for batch in loader:
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("num_batches", [1, 9, 20])
def test_a_kill_at_any_time_leaves_whole_entries(shards: str, place: str, num_batches: int) -> None:
    command = [sys.executable, "-c", KILLED, shards, place, str(num_batches)]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL
    cached = pipeline(shards, *RESIZE, ops.Cache(place), *CROP)
    with load(cached) as loader:
        assert_equal_batches([batch for _ in range(3) for batch in loader], epochs(pipeline(shards, *RESIZE, *CROP)))
        assert loader.stats()["decoded_cache"]["errors"] == 0
