"""Worker processes of a pipeline's loader: their end, their death, their silence."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import ClosedError, DataError, SpecError, StallError, WorkerError
from stoker.testing import keys_of
from support.crashes import is_worker
from support.loading import load
from support.process_programs import is_alive, noting_pids, pids_in, start, wait_until
from support.programs import DEADLINE_S, in_time, texts
from support.shards import make_shards

STALL_S = 5.0
"""Longer than workers take to start on a busy machine."""


@pytest.fixture
def shards(tmp_path: Path) -> str:
    make_shards(tmp_path / "shards", (20, 20, 20), images=False)
    return f"{tmp_path}/shards/shard-*.tar"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notes"
    made.mkdir()
    return made


def in_order(shards: str, *steps: Any, **settings: Any) -> stoker.Pipeline:
    """Four samples to a batch, in the order of the shards, all batches of one lane: dealt to the workers in turn."""
    return stoker.Pipeline(stoker.tar(shards), [ops.Label("cls"), *steps], **{"batch_size": 4, "lanes": 1, **settings})


def stuck_at(number: int) -> Any:
    """A function that never comes back from one sample."""

    def stay(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["txt"] == f"text {number}".encode():
            threading.Event().wait()
        return sample

    return ops.Map(stay, seed_globals=False)


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_a_function_that_cannot_be_sent_is_refused_by_the_part_in_the_way(shards: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:

        def write(sample: dict[str, Any]) -> dict[str, Any]:
            log.write("x")
            return sample

        with pytest.raises(SpecError, match=r"pipeline.*log"):
            load(texts(shards, ops.Map(write)), num_workers=1)


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "auto"])
def test_a_number_of_workers_that_is_none_is_refused(shards: str, wrong: Any) -> None:
    with pytest.raises(SpecError, match="num_workers is"):
        load(texts(shards), num_workers=wrong)


def test_a_service_has_its_own_workers(shards: str) -> None:
    with pytest.raises(SpecError, match="num_workers=2"):
        load(texts(shards), num_workers=2, service="stoker://127.0.0.1:1")


# -- what they do ------------------------------------------------------------------------------------------------------


def test_all_workers_work_and_their_counters_are_summed(shards: str, folder: Path) -> None:
    with load(texts(shards, ops.Map(noting_pids(folder))), num_workers=3, num_threads=3) as loader:
        list(loader)
        stats = loader.stats()
    assert len(pids_in(folder) - {os.getpid()}) == len(pids_in(folder)) == 3
    assert stats["batches"] == 15
    assert stats["samples"] == 60
    assert stats["reads"] > 0
    assert stats["bytes_read"] > 0
    assert stats["bytes_made"] > 0
    assert stats["decode_s"] > 0
    assert stats["start_s"] > 0
    assert stats["retries"] == stats["throttled"] == 0
    assert stats["limited_by"] in ("storage", "decode", "trainer")


def test_no_more_is_made_ahead_than_is_asked_for(shards: str, folder: Path) -> None:
    """Without room for batches ahead, each worker may make one."""

    def note(sample: dict[str, Any]) -> dict[str, Any]:
        (folder / sample["txt"].decode()).touch()
        return sample

    pipeline = in_order(shards, ops.Map(note))
    with load(pipeline, num_workers=2, prefetch_bytes=0) as loader:
        for step, _ in enumerate(loader, start=1):
            if step <= 12:
                wait_until(lambda: len(list(folder.iterdir())) >= (step + 2) * 4)  # noqa: B023  # called here
                assert len(list(folder.iterdir())) == (step + 2) * 4


def test_other_data_in_the_place_of_the_old_are_noticed(shards: str, tmp_path: Path, folder: Path) -> None:
    pipeline = in_order(shards, ops.Map(noting_pids(folder)))
    with load(pipeline, num_workers=1) as loader:
        next(iter(loader))
        make_shards(tmp_path / "shards", (10, 3), images=False)
        (pid,) = pids_in(folder)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(DataError, match="other data"):
            list(loader)


def test_an_error_of_a_start_is_raised(shards: str, tmp_path: Path) -> None:
    """What was there when the loader was made is gone when its workers open it."""
    with load(in_order(shards), num_workers=2) as loader:
        for shard in (tmp_path / "shards").iterdir():
            shard.unlink()
        for _ in range(2):
            with pytest.raises(stoker.errors.StorageError, match="shard-"):
                next(iter(loader))
            loader.load_state_dict(loader.state_dict())


# -- their death -------------------------------------------------------------------------------------------------------


def test_a_batch_that_kills_two_workers_is_named(shards: str) -> None:
    """The child in which its samples are tried shows nothing; if it did, the sample would be a bad one."""

    def die(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["txt"] == b"text 17" and is_worker():  # of batch 4
            os.kill(os.getpid(), signal.SIGKILL)
        return sample

    with load(in_order(shards, ops.Map(die)), num_workers=2) as loader:
        batches = iter(loader)
        assert len([next(batches) for _ in range(4)]) == 4
        with pytest.raises(WorkerError, match=r"worker 0 of 2 .*SIGKILL.* batch 4 of epoch 0"):
            next(batches)
        loader.skip(1)
        assert len(list(loader)) == 10


def test_a_worker_that_leaves_is_named_by_its_exit_code(shards: str) -> None:
    def leave(sample: dict[str, Any]) -> dict[str, Any]:
        if is_worker():
            os._exit(3)
        return sample

    with (
        load(in_order(shards, ops.Map(leave)), num_workers=1) as loader,
        pytest.raises(WorkerError, match=r"exited with code 3.* batch 0 of epoch 0"),
    ):
        next(iter(loader))


def test_a_worker_that_dies_when_all_is_made_is_followed_by_one_that_goes_on(shards: str, folder: Path) -> None:
    """It had made this epoch and the next; the batch that its successor begins with is two epochs on."""
    made = folder / "made"

    def note(sample: dict[str, Any]) -> dict[str, Any]:
        with made.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return sample

    with load(in_order(shards)) as loader:
        expected = [keys_of(loader) for _ in range(4)]
    with load(in_order(shards, ops.Map(note)), num_workers=1, timeout_s=60) as loader:
        batches = iter(loader)
        found = keys_of([next(batches), next(batches)])
        wait_until(lambda: len(made.read_text().splitlines()) == 2 * 60)
        os.kill(int(made.read_text().splitlines()[0]), signal.SIGKILL)
        assert [found + keys_of(batches), *(keys_of(loader) for _ in range(3))] == expected


def test_workers_that_die_at_their_start_are_told(shards: str) -> None:
    """Those of a function whose parts end the process that loads them."""

    class Deadly:
        def __reduce__(self) -> Any:
            return os._exit, (7,)

        def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
            return sample

    with (
        load(in_order(shards, ops.Map(Deadly())), num_workers=1) as loader,
        pytest.raises(WorkerError, match=r"exited with code 7 before it had opened the data"),
    ):
        next(iter(loader))


# -- their silence -----------------------------------------------------------------------------------------------------


def test_a_stall_names_stage_sample_and_worker(shards: str) -> None:
    with load(in_order(shards, stuck_at(4)), num_workers=2, timeout_s=STALL_S) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(StallError, match=r"(?s)decode: .*s00-0004.*; in worker 1 of 2 \(process \d+\)"):
            next(batches)
        loader.skip(1)
        next(iter(loader))


def test_a_stopped_worker_is_told_from_a_slow_one(shards: str, folder: Path) -> None:
    pipeline = in_order(shards, ops.Map(noting_pids(folder)))
    with load(pipeline, num_workers=1, timeout_s=STALL_S, prefetch_bytes=0) as loader:
        batches = iter(loader)
        next(batches)
        (pid,) = pids_in(folder)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StallError, match=r"worker 0 of 1 \(process \d+\) does not answer; it is stopped"):
                list(batches)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert len(keys_of(loader)) == 60


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["new", "half way", "epoch ended", "stuck"])
def test_close_ends_the_workers(shards: str, folder: Path, state: str) -> None:
    stuck = [stuck_at(19)] if state == "stuck" else []
    loader = load(in_order(shards, ops.Map(noting_pids(folder)), *stuck), num_workers=2)
    batches = iter(()) if state == "new" else iter(loader)
    for _ in zip(range({"half way": 3, "stuck": 3}.get(state, 100)), batches, strict=False):
        pass
    with in_time():
        loader.close()
    assert not any(map(is_alive, pids_in(folder)))
    with in_time():
        loader.close()
    with pytest.raises(ClosedError):
        iter(loader)


def test_close_wakes_who_waits_for_a_batch(shards: str, folder: Path) -> None:
    loader = load(in_order(shards, ops.Map(noting_pids(folder)), stuck_at(0)), num_workers=2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: next(iter(loader)))
        wait_until(lambda: len(pids_in(folder)) == 2)
        with in_time():
            loader.close()
            with pytest.raises(ClosedError):
                waiting.result(DEADLINE_S)
    assert not any(map(is_alive, pids_in(folder)))


@pytest.mark.parametrize("name", ["break_out", "forgotten"])
def test_a_program_leaves_no_worker(shards: str, folder: Path, name: str) -> None:
    with start(name, shards, str(folder)) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == '"leaving"\n'
        with in_time():
            _, errors = program.communicate(timeout=DEADLINE_S)
    assert (program.returncode, errors) == (0, "")
    assert len(pids_in(folder)) == 2
    wait_until(lambda: not any(map(is_alive, pids_in(folder))))


def test_a_fork_has_workers_of_its_own(shards: str, folder: Path) -> None:
    with start("fork_reads_on", shards, str(folder)) as program:
        output, errors = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 0, errors
    assert output.splitlines() == ['["child", true]', '["parent", true, true]'], errors


def test_ctrl_c_does_not_break_the_loader(shards: str, folder: Path) -> None:
    with start("interrupted", shards, str(folder)) as program:
        wait_until((folder / "entered").exists)
        program.send_signal(signal.SIGINT)
        output, errors = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 0, errors
    assert output.splitlines() == ['"interrupted"', '"leaving"']
