"""DataLoader(device=…): the same batches, state and errors as without, one batch ahead. The device is the CPU here."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker import ops
from stoker.errors import ClosedError, SampleError, SpecError, StallError, TooManyBadSamplesError
from support.loading import load, numbered, tar_of
from support.shards import make_shards

NORMALIZE = ops.Normalize("image", (0.5, 0.4, 0.3), (0.2, 0.2, 0.3))
DEVICE_OPS = (NORMALIZE, ops.ToLayout("image", "NCHW"), ops.Cast("image", "float16"))
WAIT_S = 20.0


def on_device(pipeline: stoker.Pipeline, **options: Any) -> stoker.DataLoader:
    return load(pipeline, **{"output": "torch", "device": "cpu", **options})


def pictures(folder: Path, *more: Any, **settings: Any) -> stoker.Pipeline:
    steps = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 24), ops.Label("cls"), *more]
    source = stoker.tar(folder / "*.tar", chunk_bytes=8192)
    return stoker.Pipeline(source, steps, **{"batch_size": 4, "shuffle": True, **settings})


def texts(url: str, *more: Any, **settings: Any) -> stoker.Pipeline:
    return stoker.Pipeline(
        stoker.tar(url, chunk_bytes=2048), [*more, ops.Label("cls")], **{"batch_size": 4, **settings}
    )


def labels(batches: Any) -> list[list[int]]:
    return [batch["cls"].tolist() for batch in batches]


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "stoker-device"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_shards(tmp_path, [13, 14])
    return tmp_path


@pytest.fixture
def url(tmp_path: Path) -> str:
    return numbered(tmp_path / "a.tar", 40)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    for thread in threads():
        thread.join(WAIT_S)
    assert not threads()


# -- the same as without -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_and_states_are_those_without_a_device(folder: Path, num_workers: int) -> None:
    whole = pictures(folder, *DEVICE_OPS)
    with (
        load(whole, output="torch") as expected,
        on_device(pictures(folder), device_ops=DEVICE_OPS, num_workers=num_workers) as loader,
    ):
        for _ in range(2):
            assert loader.state_dict() == expected.state_dict()
            for theirs, ours in zip(expected, loader, strict=True):
                assert list(ours) == list(theirs)
                assert ours["__key__"] == theirs["__key__"]
                assert ours["image"].is_contiguous()
                for name in ("image", "cls"):
                    assert torch.equal(ours[name], theirs[name])
                    assert ours[name].dtype == theirs[name].dtype
                assert loader.state_dict() == expected.state_dict()
        theirs, ours = expected.stats(), loader.stats()
    for name in ("batches", "samples", "bad_samples"):
        assert ours[name] == theirs[name]
    assert ours["device_copies"] == ours["batches"]
    assert ours["device_bytes"] > 0
    assert "device_copies" not in theirs


def test_device_ops_are_not_in_the_state(folder: Path) -> None:
    with on_device(pictures(folder), device_ops=DEVICE_OPS) as first, load(pictures(folder)) as second:
        next(iter(first))
        second.load_state_dict(first.state_dict())
        keys = [batch["__key__"] for batch in first.__class__.__iter__(second)]
        first.load_state_dict(first.state_dict())
        assert [batch["__key__"] for batch in first] == keys


def test_jumps_drop_what_is_ahead(url: str) -> None:
    def jumping(loader: stoker.DataLoader) -> list[Any]:
        batches = iter(loader)
        found = labels([next(batches), next(batches)])
        state = loader.state_dict()
        loader.skip(3)
        found += labels(loader)
        loader.load_state_dict(state)
        found += labels(loader)
        loader.set_epoch(5)
        found += labels([next(iter(loader))])
        found += labels(loader)
        return [*found, loader.state_dict()]

    with load(texts(url)) as plain, on_device(texts(url)) as loader:
        assert jumping(loader) == jumping(plain)


def test_the_next_batch_is_fetched_while_the_trainer_works_and_none_beyond(url: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()

    def note(sample: dict[str, Any]) -> dict[str, Any]:
        (made / sample["cls"].decode()).touch()
        return sample

    with on_device(texts(url, ops.Map(note)), prefetch_bytes=0, num_threads=1) as loader:
        next(iter(loader))
        until = time.monotonic() + WAIT_S
        while len(list(made.iterdir())) < 16 and time.monotonic() < until:
            threading.Event().wait(0.01)
        assert 12 <= len(list(made.iterdir())) <= 16  # handed out, ahead, and the two that the engine may make
        stats = loader.stats()
        assert (stats["batches"], stats["samples"]) == (1, 4)


def test_nested_fields_ragged_ones_and_texts(tmp_path: Path) -> None:
    url = numbered(tmp_path / "a.tar", 6)

    def more(sample: dict[str, Any]) -> dict[str, Any]:
        number = int(sample["cls"])
        return {
            "ids": np.arange(number + 1),
            "parts": np.ones(number),
            "meta": {"a": number, "b": (np.ones(2), f"t{number}")},
        }

    pipeline = stoker.Pipeline(
        stoker.tar(url), [ops.Map(more)], batch_size=3, collate={"ids": "ragged", "parts": "list"}
    )
    with load(pipeline, output="torch") as plain, on_device(pipeline) as loader:
        assert [repr(batch) for batch in loader] == [repr(batch) for batch in plain]


# -- errors and what is counted ----------------------------------------------------------------------------------------


def broken(tmp_path: Path, **settings: Any) -> stoker.Pipeline:
    """Eight samples, the sixth and the seventh bad."""
    content = {f"{row}": {"cls": b"x" if row in (5, 6) else str(row).encode()} for row in range(8)}
    source = stoker.tar(tar_of(tmp_path / "a.tar", content))
    return stoker.Pipeline(source, [ops.Label("cls")], **{"batch_size": 2, "shuffle": False, "lanes": 1, **settings})


def test_an_error_comes_at_its_own_batch_and_again(tmp_path: Path) -> None:
    with on_device(broken(tmp_path, on_error="raise")) as loader:
        batches = iter(loader)
        assert labels([next(batches), next(batches)]) == [[0, 1], [2, 3]]
        state = loader.state_dict()
        for _ in range(2):
            with pytest.raises(SampleError, match="row 5"):
                next(batches)
            assert loader.state_dict() == state
            loader.load_state_dict(state)
            batches = iter(loader)


def test_bad_samples_count_when_they_are_handed_out(tmp_path: Path) -> None:
    quarantine = tmp_path / "bad.jsonl"
    with on_device(broken(tmp_path, on_error="drop", max_bad=1), quarantine=quarantine) as loader:
        batches = iter(loader)
        assert labels([next(batches), next(batches)]) == [[0, 1], [2, 3]]
        while loader._supply.stats()["batches"] < 3:  # the next one, with the first bad one, is ahead
            threading.Event().wait(0.005)
        assert loader.stats()["bad_samples"] == 0
        assert not quarantine.exists()
        assert labels([next(batches)]) == [[4]]
        assert loader.stats()["bad_samples"] == 1
        assert len(quarantine.read_text().splitlines()) == 1
        with pytest.raises(TooManyBadSamplesError, match="2 bad samples"):
            next(batches)


def test_a_field_that_does_not_fit_is_said_at_the_first_batch(url: str) -> None:
    with (
        on_device(texts(url), device_ops=[ops.Cast("label", "int32")]) as loader,
        pytest.raises(SpecError, match=r"field 'label' is not in the batch, which has '__key__', .*'cls'"),
    ):
        next(iter(loader))


@pytest.mark.parametrize(
    "options, match",
    [
        ({"device": "meta"}, "device is 'meta'"),
        ({"device": "gpu"}, "device is 'gpu'; expected cpu, cuda"),
        ({"device": None, "device_ops": DEVICE_OPS}, "device_ops are carried out on a device; give device="),
        ({"device_ops": [ops.CenterCrop("image", 3)]}, "CenterCrop.*is not done on a device"),
        ({"output": "numpy"}, "pin_memory and device go with output"),
    ],
    ids=["meta", "unknown", "none", "op", "numpy"],
)
def test_arguments_that_cannot_be_are_refused_at_once(url: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(SpecError, match=match):
        on_device(texts(url), **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said_at_once(url: str) -> None:
    with pytest.raises(SpecError, match="torch finds no CUDA device"):
        on_device(texts(url), device="cuda")


def slowly(sample: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.01)
    return sample


def test_slow_samples_are_called_so(url: str) -> None:
    with on_device(texts(url, ops.Map(slowly)), num_threads=1) as loader:
        list(loader)
        stats = loader.stats()
    assert stats["limited_by"] == "decode", stats
    assert stats["start_s"] > 0


def test_a_slow_trainer_is_called_so(url: str) -> None:
    with on_device(texts(url)) as loader:
        for _ in loader:
            time.sleep(0.1)
        stats = loader.stats()
    assert stats["limited_by"] == "trainer", stats


# -- ends --------------------------------------------------------------------------------------------------------------


def held(release: threading.Event, first: int) -> Any:
    """A function that holds samples from a number on."""

    def hold(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["cls"]) >= first:
            assert release.wait(WAIT_S)
        return sample

    return ops.Map(hold)


def test_the_deadline_of_a_batch_holds(url: str) -> None:
    release = threading.Event()
    with on_device(texts(url, held(release, 8), shuffle=False, lanes=1), timeout_s=1.5) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        with pytest.raises(StallError, match=r"no batch within 1\.5 s"):
            next(batches)
        release.set()


def test_a_deadline_that_passed_while_the_trainer_was_busy_is_none(url: str) -> None:
    release = threading.Event()
    with on_device(texts(url, held(release, 4), shuffle=False, lanes=1), timeout_s=1.5) as loader:
        batches = iter(loader)
        next(batches)
        ahead: Any = loader._ahead
        until = time.monotonic() + WAIT_S
        while ahead._asked.answer.empty() and time.monotonic() < until:
            threading.Event().wait(0.01)
        release.set()
        assert labels([next(batches)]) == [[4, 5, 6, 7]]


def test_closing_ends_what_is_ahead_and_whoever_waits(url: str) -> None:
    release = threading.Event()
    loader = on_device(texts(url, held(release, 4), shuffle=False, lanes=1), num_threads=1)
    batches, caught = iter(loader), []
    next(batches)

    def wait() -> None:
        try:
            next(batches)
        except ClosedError as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    begun_s = time.monotonic()
    loader.close()
    assert time.monotonic() - begun_s < 2.5
    waiting.join(WAIT_S)
    release.set()
    assert len(caught) == 1
    loader.close()
    with pytest.raises(ClosedError):
        next(iter(loader))


def test_ctrl_c_while_a_batch_is_waited_for_loses_none(url: str) -> None:
    with load(texts(url)) as plain:
        expected = labels(plain)
    entered, release = threading.Event(), threading.Event()

    def hold(sample: dict[str, Any]) -> dict[str, Any]:
        entered.set()
        assert release.wait(WAIT_S)
        return sample

    def interrupt() -> None:
        if entered.wait(WAIT_S):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with on_device(texts(url, ops.Map(hold))) as loader:
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        state = loader.state_dict()
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
        interrupting.join()
        release.set()
        loader.load_state_dict(state)
        assert labels(loader) == expected


def test_a_loader_that_was_never_iterated_can_be_closed(url: str) -> None:
    loader = on_device(texts(url))
    loader.close()
    assert not threads()


def test_a_forgotten_loader_closes_itself(url: str) -> None:
    loader = on_device(texts(url))
    batches = iter(loader)
    next(batches)
    assert len(threads()) == 1
    del loader, batches
    gc.collect()  # the fixture sees the thread end


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_goes_on_by_itself(url: str) -> None:
    with load(texts(url)) as plain:
        expected = labels(plain)
    with on_device(texts(url)) as loader:
        batches = iter(loader)
        found = labels([next(batches), next(batches)])
        pid = os.fork()
        if not pid:
            try:
                ok = found + labels(batches) == expected
                loader.close()
            finally:
                os._exit(0 if ok else 1)
        found += labels(batches)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert found == expected
