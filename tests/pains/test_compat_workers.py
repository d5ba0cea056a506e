"""Workers of a torch dataset that die, stand still or are slow (pains 24, 61)."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from stoker.compat.loader import DataLoader
from stoker.errors import WorkerError, WorkerStallError
from support import programs
from support.torch_datasets import Blocked, Deadly, Fields, Relay, Stream, as_list


def marks(folder: Path, count: int) -> Path:
    """A folder with so many marks, each good for one death."""
    found = folder / "marks"
    found.mkdir()
    for number in range(count):
        (found / str(number)).touch()
    return found


@pytest.mark.parametrize("in_order", [True, False])
def test_a_killed_worker_is_replaced(tmp_path: Path, in_order: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Pain 24: a worker killed at a sample loses nothing and doubles nothing; the log names pid and signal."""
    dataset = Deadly(40, marks(tmp_path, 1), deadly=13)
    with caplog.at_level(logging.WARNING), DataLoader(dataset, 2, num_workers=2, in_order=in_order) as loader:
        batches = [batch.tolist() for batch in loader]
        assert [batch.tolist() for batch in DataLoader(dataset, 2)] == sorted(batches)
        assert len(list(loader)) == 20
    if in_order:
        assert batches == sorted(batches)
    (record,) = (record.getMessage() for record in caplog.records if record.name == "stoker")
    assert re.search(r"worker \d \(pid \d+\).*SIGKILL", record)
    assert "13" in record


def test_a_worker_that_others_kill(caplog: pytest.LogCaptureFixture) -> None:
    """Pain 24: the out-of-memory killer comes at any time, also twice for the same place."""
    with caplog.at_level(logging.WARNING), DataLoader(Fields(60), 1, num_workers=2, collate_fn=as_list) as loader:
        pids: set[int] = set()
        for number, (sample,) in enumerate(loader):
            pids.add(sample["pid"])
            if number in {10, 30}:
                os.kill(sample["pid"], signal.SIGKILL)
        assert number == 59
    assert len(pids) in {3, 4}  # a worker that had made all of its batches is not missed
    assert "SIGKILL" in caplog.text


def test_a_sample_that_kills_each_worker(tmp_path: Path) -> None:
    """Pain 24: a batch that costs two workers ends the iteration with an error that names worker, signal and sample."""
    loader = DataLoader(Deadly(40, marks(tmp_path, 5), deadly=13), 2, num_workers=2)
    with pytest.raises(WorkerError, match=r"(?s)worker \d \(pid \d+\).*SIGKILL.*samples 12, 13") as caught:
        list(loader)
    assert isinstance(caught.value, RuntimeError)  # which torch raises
    assert len(list((tmp_path / "marks").iterdir())) == 3


def test_a_stream_whose_worker_dies_says_so() -> None:
    """Pain 24: where nobody knows where an iterable dataset stood, there is an error, not a gap or a hang."""
    with DataLoader(Suicidal(20), 2, num_workers=1) as loader, pytest.raises(WorkerError, match="SIGSEGV"):
        list(loader)


class Suicidal(Stream):
    """Ends its process in the middle."""

    def __iter__(self) -> Any:
        yield from range(9)
        os.kill(os.getpid(), signal.SIGSEGV)


def test_a_stopped_worker_is_named(tmp_path: Path) -> None:
    """Pain 24: SIGSTOP: the time-out's error names worker, batch and cause; closing ends the worker all the same."""
    dataset = Deadly(40, marks(tmp_path, 1), deadly=3, number=signal.SIGSTOP)
    loader = DataLoader(dataset, num_workers=2, timeout=2)
    expected = r"(?s)timed out after 2 seconds.*batch 3.*worker 1 \(pid \d+\) is stopped"
    with pytest.raises(WorkerStallError, match=expected) as caught:
        list(loader)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, TimeoutError)
    with programs.in_time():
        loader.close()


def test_a_slow_sample_stops_no_other_batch(tmp_path: Path) -> None:
    """Pain 61: with in_order=False all other batches come while one is stuck, whoever has it in hand."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with DataLoader(Blocked(60, pipe, blocked=5), 2, num_workers=2, in_order=False, timeout=60) as loader:
        batches = iter(loader)
        numbers = [number for _ in range(29) for number in next(batches).tolist()]
        assert sorted([*numbers, 4, 5]) == list(range(60))
        threading.Thread(target=pipe.write_bytes, args=(b"",)).start()
        assert next(batches).tolist() == [4, 5]
        assert next(batches, None) is None


def test_a_slow_sample_hides_in_the_window(tmp_path: Path) -> None:
    """Pain 61: in order, all that prefetch_factor allows is made meanwhile: the last of it frees the first."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    settings: dict[str, Any] = {"num_workers": 2, "prefetch_factor": 8, "seeding": "sample", "timeout": 60}
    for opens in (14, 15):
        with DataLoader(Relay(40, pipe, waits=0, opens=opens), **settings) as loader:
            assert [int(batch) for batch in loader] == list(range(40))
