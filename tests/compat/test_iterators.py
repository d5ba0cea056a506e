"""Iterators: several at once, left, made again, failing in the middle; side by side with torch's loader."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from support.side_by_side import assert_same, epochs, is_ours, under_test
from support.torch_datasets import (
    Asking,
    Blocked,
    Breaking,
    Failing,
    Fields,
    Numbers,
    OddError,
    as_list,
    failing_collate,
    failing_init,
    mark,
)

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])
PERSISTENT = pytest.mark.parametrize("num_workers, persistent", [(0, False), (2, False), (2, True)])


@PERSISTENT
def test_two_iterators_at_once(num_workers: int, persistent: bool) -> None:
    """``zip(loader, loader)``; with kept workers both are one iterator, as with torch."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(
            Numbers(10), batch_size=2, shuffle=True, num_workers=num_workers, persistent_workers=persistent
        )
        return list(zip(loader, loader, strict=False)), (iter(loader) is iter(loader)) == persistent

    assert_same(use)


@PERSISTENT
def test_left_and_begun_again(num_workers: int, persistent: bool) -> None:
    """``break``, ``next(iter(loader))``, then whole epochs."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(12), batch_size=2, num_workers=num_workers, persistent_workers=persistent)
        answer: list[Any] = []
        for batch in loader:
            answer.append(batch)
            break
        answer += [next(iter(loader)), next(iter(loader))]
        return answer + epochs(loader, 2)

    assert_same(use)


@PERSISTENT
def test_the_end_is_the_end(num_workers: int, persistent: bool) -> None:
    """After StopIteration there is StopIteration; the iterator is its own iterator, and has a length."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(3), num_workers=num_workers, persistent_workers=persistent)
        batches = iter(loader)
        return len(batches), iter(batches) is batches, list(batches), [next(batches, "end") for _ in range(3)]

    assert_same(use)


def outcomes(batches: Any, count: int) -> list[Any]:
    """What ``count`` calls of ``next`` give: batches, and types of errors with what of the text is the user's."""
    answer: list[Any] = []
    for _ in range(count):
        try:
            answer.append(next(batches))
        except Exception as error:  # noqa: BLE001  # any: both classes are asked which
            answer.append([type(error).__qualname__, [word for word in WORDS if word in str(error)]])
            # torch's frames are a cycle with their error; workers of an iterator inside of one take 5 s each to end.
            error.__traceback__ = None
    return answer


WORDS = ("the user's text", "code 7", "cannot collate", "cannot start", "the stream broke", "16")


@PERSISTENT
def test_going_on_after_an_error(num_workers: int, persistent: bool) -> None:
    """The batches before, the error of each bad one in its place, and the rest."""
    errors: dict[int, BaseException] = {
        3: ValueError("the user's text"),
        4: KeyError("the user's text"),
        9: OSError(16, "the user's text"),
    }

    def use(loader_class: Any) -> Any:
        loader = loader_class(Failing(14, errors), 2, num_workers=num_workers, persistent_workers=persistent)
        return outcomes(iter(loader), 9), outcomes(iter(loader), 3)

    assert_same(use)


@WORKERS
def test_errors_keep_their_type(num_workers: int) -> None:
    """Each has the user's type, or one below it, and the user's text."""
    errors: list[BaseException] = [
        ValueError("the user's text"),
        FileNotFoundError(2, "the user's text"),
        IndexError("the user's text"),
        RuntimeError("the user's text"),
        TypeError("the user's text"),
        AssertionError("the user's text"),
        NotImplementedError("the user's text"),
        UnicodeDecodeError("utf8", b"x", 0, 1, "the user's text"),
    ]

    def use(loader_class: Any) -> Any:
        dataset = Failing(len(errors), dict(enumerate(errors)))
        found = outcomes(iter(loader_class(dataset, num_workers=num_workers)), len(errors))
        return [[name if name != "UnicodeDecodeError" else "RuntimeError", words] for name, words in found]

    assert_same(use)


def test_an_error_that_torch_cannot_build_again_keeps_its_type() -> None:
    """torch makes a RuntimeError of what needs two arguments; ours is the user's own, attributes and all."""
    loader = under_test()(Failing(3, {1: OddError("the user's text", 7)}), num_workers=1)
    batches = iter(loader)
    next(batches)
    with pytest.raises(
        OddError if is_ours(type(loader)) else RuntimeError, match=r"the user's text \(code 7\)"
    ) as caught:
        next(batches)
    if isinstance(caught.value, OddError):
        assert (caught.value.reason, caught.value.code) == ("the user's text", 7)
        notes = "\n".join(caught.value.__notes__)
        assert "index 1" in notes
        assert "torch_datasets.py" in notes
    assert next(batches).tolist() == [2]
    caught.value.__traceback__ = None  # as in outcomes


@WORKERS
def test_errors_of_functions(num_workers: int) -> None:
    """collate_fn fails on each batch; worker_init_fn once, on that worker's first; a stream in the middle."""

    def use(loader_class: Any) -> Any:
        failing = loader_class(Numbers(6), 2, collate_fn=failing_collate, num_workers=num_workers)
        answer = outcomes(iter(failing), 4)
        if num_workers:
            answer += outcomes(iter(loader_class(Numbers(4), num_workers=2, worker_init_fn=failing_init)), 2)
            answer += outcomes(iter(loader_class(Breaking(9), 2, num_workers=1)), 4)
        return answer

    assert_same(use)


@WORKERS
def test_errors_of_torchs_own_collate(num_workers: int) -> None:
    """Sizes that do not fit: torch's type; the text is another test's (tests/pains)."""
    import torch

    from support.torch_datasets import Valued

    def use(loader_class: Any) -> Any:
        answer = []
        for values in ([torch.ones(2), torch.ones(3)], [object(), object()], [[1], [1, 2]]):
            answer += outcomes(iter(loader_class(Valued(values), 2, num_workers=num_workers)), 2)
        return answer

    assert_same(use)


def test_a_timeout_that_passes(tmp_path: Path) -> None:
    """A RuntimeError, as torch's; the batches before it came."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    batches = iter(under_test()(Blocked(8, pipe, 3), num_workers=2, timeout=2))
    for number in range(3):
        assert next(batches).tolist() == [number]
    with pytest.raises(RuntimeError, match="timed out after 2 seconds") as caught:
        next(batches)
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # lets the worker end by itself
    caught.value.__traceback__ = None  # as in outcomes


def test_worker_info() -> None:
    """id, num_workers and seed, and the worker's own dataset, over epochs and after worker_init_fn."""
    several: list[dict[str, Any]] = [{}, {"worker_init_fn": mark}, {"worker_init_fn": mark, "persistent_workers": True}]

    def use(loader_class: Any) -> Any:
        answer = epochs(loader_class(Asking(3), 2, collate_fn=as_list))
        for settings in several:
            answer += epochs(loader_class(Asking(6), 2, num_workers=2, collate_fn=as_list, **settings), 2)
        return answer

    assert_same(use)


def test_workers_are_processes_with_one_thread() -> None:
    """All fields of the info, one thread for torch, torch's own seed; as many processes as workers."""

    def use(loader_class: Any) -> Any:
        samples = list(itertools.chain(*loader_class(Fields(8), 2, num_workers=2, collate_fn=as_list)))
        pids = {sample.pop("pid") for sample in samples}
        return samples, len(pids), os.getpid() in pids

    assert_same(use)


def repickled(loader: Any) -> Any:
    """A copy by pickle."""
    return pickle.loads(pickle.dumps(loader))


@WORKERS
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, repickled])
def test_copies_of_a_loader(num_workers: int, copied: Any) -> None:
    """Libraries copy loaders, before they are used and after; a copy gives the same epochs."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(6), 4, num_workers=num_workers)
        return epochs(copied(loader)) + epochs(loader) + epochs(copied(loader), 2) + epochs(loader)

    assert_same(use)


def test_an_iterator_cannot_be_pickled() -> None:
    """As torch."""
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iter(under_test()(Numbers(3))))
