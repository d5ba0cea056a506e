"""A loader that is closed, or forgotten, leaves no thread behind, in any state (DESIGN §9; pain 26)."""

from __future__ import annotations

import gc
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import ClosedError
from support.faulty_http import Stall, run_faulty_http
from support.loading import load
from support.programs import DEADLINE_S, in_time, stoker_threads, texts, threads_left
from support.servers import Bucket
from support.shards import make_shards, picture, tar_bytes


@pytest.fixture
def shards(tmp_path: Path) -> str:
    make_shards(tmp_path, (20, 20, 20), images=False)
    return f"{tmp_path}/shard-*.tar"


@pytest.mark.parametrize("state", ["new", "iterator made", "half way", "epoch ended", "closed"])
def test_close_leaves_no_thread(shards: str, state: str) -> None:
    """Pain 26: ``close`` ends all threads within 2 s in any state, may be called again, and later use says so."""
    loader = load(texts(shards), num_threads=3)
    batches = iter(()) if state == "new" else iter(loader)
    for _ in itertools.islice(batches, {"half way": 3, "epoch ended": 100, "closed": 3}.get(state, 0)):
        pass
    if state == "closed":
        loader.close()
    with in_time():
        loader.close()
    assert stoker_threads() == []
    for use in (lambda: iter(loader), lambda: loader.set_epoch(0), lambda: loader.load_state_dict({})):
        with pytest.raises(ClosedError):
            use()
    assert loader.state_dict()["position"]["num_consumed"] == {"half way": 3, "closed": 3, "epoch ended": 15}.get(
        state, 0
    )


def test_close_wakes_who_waits_for_a_batch(shards: str) -> None:
    """Pain 26: a thread that waits for a batch gets ClosedError when another closes the loader."""
    entered, release = threading.Event(), threading.Event()

    def hold(sample: dict[str, Any]) -> dict[str, Any]:
        entered.set()
        release.wait(DEADLINE_S)
        return sample

    loader = load(texts(shards, ops.Map(hold)), num_threads=1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: next(iter(loader)))
        entered.wait(DEADLINE_S)
        with in_time():
            loader.close()
            with pytest.raises(ClosedError):
                waiting.result()
    release.set()
    _ended()


def _ended() -> None:
    """Threads that had something in hand end with it."""
    for thread in threading.enumerate():
        if thread.name.startswith("stoker"):
            thread.join(DEADLINE_S)
    assert stoker_threads() == []


def test_close_does_not_wait_for_a_store_that_stalls(tmp_path: Path) -> None:
    """Pain 26: ``close`` returns within 2 s while a read hangs in the store."""
    with run_faulty_http() as server:
        samples = [(f"{number:03d}", {"cls": b"1", "txt": bytes(2000)}) for number in range(100)]
        url = server.put("a.tar", tar_bytes(samples))
        loader = load(stoker.Pipeline(stoker.tar(url, manifest=str(tmp_path / "index")), [ops.Label("cls")], 4))
        server.scripts["/a.tar"].extend([Stall()] * 20)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: next(iter(loader)))
            assert server.stalling.wait(DEADLINE_S)
            with in_time():
                loader.close()
                with pytest.raises(ClosedError):
                    waiting.result()
    _ended()  # the server is gone, and nobody tries again


def test_close_leaves_no_thread_of_a_folder_in_a_bucket(s3_bucket: Bucket) -> None:
    """Pain 26: single files of a bucket are read by threads of their own, which are gone too."""
    s3_bucket.put_many({f"pictures/a/{number}.jpg": picture(number) for number in range(20)})
    source = stoker.files(f"{s3_bucket.url}/pictures/", storage_options=dict(s3_bucket.storage_options))
    loader = load(stoker.Pipeline(source, [ops.DecodeImage("jpg", to="image")], batch_size=4))
    assert len(next(iter(loader))["image"]) == 4
    with in_time():
        loader.close()
        _ended()


def test_a_forgotten_loader_ends_its_threads(shards: str) -> None:
    """Pain 26: a loader that nobody holds any more ends its threads, and so do many in a row."""
    for _ in range(5):
        next(iter(load(texts(shards))))
        gc.collect()
    assert threads_left() == []


def test_an_exception_in_the_loop_closes_the_loader(shards: str) -> None:
    """Pain 26: an exception leaves the ``with`` block as it is, and no thread behind."""

    def train() -> None:
        with load(texts(shards)) as loader:
            for _ in loader:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train()
    assert stoker_threads() == []


def test_a_loader_that_is_collected_in_its_own_thread_ends(shards: str) -> None:
    """Pain 26: the collector may find a forgotten loader in one of its engine's threads, which cannot join itself."""
    collected: list[int] = []

    def collect(sample: dict[str, Any]) -> dict[str, Any]:
        collected.append(gc.collect())
        return sample

    gc.disable()
    try:
        for _ in range(3):
            loader = load(texts(shards, ops.Map(collect)), num_threads=1)
            held: list[Any] = [loader, iter(loader)]
            next(held[1])
            held.append(held)  # a cycle, which only the collector undoes
            del loader, held
    finally:
        gc.enable()
    assert any(collected)
    assert threads_left() == []
