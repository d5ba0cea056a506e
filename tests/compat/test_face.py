"""What libraries look at: signature, attributes, type, errors of arguments; side by side with torch's loader."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import multiprocessing
from torch.utils.data import DataLoader as TorchLoader

from support.side_by_side import assert_same, assert_same_error, epochs, named, seen, under_test
from support.torch_datasets import Numbers, SizedStream, Stream, as_list, mark
from support.torch_samplers import Backwards

EVERYTHING: dict[str, Any] = {
    "batch_size": 3,
    "shuffle": True,
    "num_workers": 2,
    "collate_fn": as_list,
    "drop_last": True,
    "timeout": 17.5,
    "worker_init_fn": mark,
    "multiprocessing_context": "fork",
    "prefetch_factor": 4,
    "persistent_workers": True,
    "in_order": False,
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"batch_size": None},
    {"num_workers": 2},
    {"pin_memory": True, "pin_memory_device": "cuda"},
    {"sampler": [1, 2]},
    {"batch_sampler": [[1], [2]]},
    EVERYTHING,
]


def test_signature() -> None:
    """All of torch's parameters, in its order, of its kinds and with its defaults; what is ours is by keyword."""
    theirs = inspect.signature(TorchLoader.__init__).parameters
    ours = inspect.signature(type(under_test()(Numbers(1))).__init__).parameters
    assert [name for name in ours if name in theirs] == list(theirs)
    for name, parameter in theirs.items():
        assert (ours[name].kind, ours[name].default) == (parameter.kind, parameter.default), name
    added = [parameter for name, parameter in ours.items() if name not in theirs]
    assert {parameter.kind for parameter in added} <= {inspect.Parameter.KEYWORD_ONLY}
    assert inspect.Parameter.empty not in [parameter.default for parameter in added]


def test_arguments_by_position() -> None:
    """The thirteen that torch takes by position."""
    arguments = (2, None, None, None, 0, as_list, False, False, 0, None, None, None)
    assert_same(lambda loader_class: epochs(loader_class(Numbers(5), *arguments)))
    assert_same(lambda loader_class: epochs(loader_class(Numbers(5), 2, False, Backwards(5), None, 1, as_list)))


@pytest.mark.parametrize("settings", SETTINGS, ids=named)
def test_attributes(settings: dict[str, Any]) -> None:
    """All public attributes, by name and value."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(9), **settings)
        names = [name for name in dir(TorchLoader(Numbers(1))) if not name.startswith("_")]
        answer: list[Any] = []
        for name in names:
            value = getattr(loader, name)
            named = value if isinstance(value, int | float | str | None) else type(value).__qualname__
            answer.append([name, "method" if inspect.ismethod(value) else named])
        return answer, [loader.dataset is loader.dataset, loader._auto_collation, loader._dataset_kind]

    assert_same(use)


def test_private_attributes() -> None:
    """Lightning, Accelerate and others read some of torch's private ones: they are all there."""
    loader = under_test()(Numbers(3), num_workers=1)
    theirs = TorchLoader(Numbers(3), num_workers=1)
    assert set(vars(theirs)) <= set(vars(loader))
    assert [name for name in dir(theirs) if not hasattr(loader, name)] == []


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers", "num_workers"]
)
def test_setting_an_attribute(name: str) -> None:
    """What torch forbids to set raises the same; what it allows is allowed."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(5))
        setattr(loader, name, getattr(loader, name))

    theirs = seen(TorchLoader, use)
    assert (theirs.error is None) == (name == "num_workers")
    assert seen(under_test(), use) == theirs


def test_type() -> None:
    """isinstance against torch's class and against ours holds; type arguments and subclasses work."""
    loader_class = under_test()
    loader = loader_class(Numbers(5), batch_size=2)
    assert isinstance(loader, TorchLoader)
    assert isinstance(loader, loader_class)
    assert isinstance(loader_class[int](Numbers(5)), TorchLoader)
    assert isinstance(iter(loader), torch.utils.data.dataloader._BaseDataLoaderIter)


def test_subclass() -> None:
    """A class of the user's own on top: further arguments, its own ``__iter__`` and ``__len__``."""

    def use(loader_class: Any) -> Any:
        class Doubled(loader_class):  # type: ignore[misc]
            def __init__(self, dataset: Any, extra: int, **settings: Any) -> None:
                super().__init__(dataset, **settings)
                self.extra = extra

            def __iter__(self) -> Any:
                for batch in super().__iter__():
                    yield batch, self.extra

            def __len__(self) -> int:
                return 10 * int(super().__len__())

        loader = Doubled(Numbers(7), 5, batch_size=2, num_workers=1)
        return len(loader), epochs(loader, 2), type(loader).__name__, loader.extra, isinstance(loader, TorchLoader)

    assert_same(use)


BAD: list[dict[str, Any]] = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"prefetch_factor": -1, "num_workers": 1},
    {"persistent_workers": True},
    {"sampler": [1], "shuffle": True},
    {"batch_sampler": [[1]], "batch_size": 2},
    {"batch_sampler": [[1]], "shuffle": True},
    {"batch_sampler": [[1]], "sampler": [1]},
    {"batch_sampler": [[1]], "drop_last": True},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
    {"batch_size": -3},
    {"batch_size": 2.5},
    {"batch_size": True},
    {"drop_last": "yes"},
    {"multiprocessing_context": "fork"},
    {"multiprocessing_context": "threads", "num_workers": 1},
    {"multiprocessing_context": 3, "num_workers": 1},
    {"nonsense": 1},
    {"num_workers": "two"},
    {"num_workers": 1, "worker_init_fn": None, "prefetch_factor": "two"},
]


@pytest.mark.parametrize("settings", BAD, ids=named)
def test_bad_arguments(settings: dict[str, Any]) -> None:
    """torch's error, with its text."""
    if "nonsense" in settings:
        with pytest.raises(TypeError, match="nonsense"):
            under_test()(Numbers(5), **settings)
    else:
        assert_same_error(lambda loader_class: loader_class(Numbers(5), **settings))


@pytest.mark.parametrize("settings", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}], ids=named)
def test_bad_arguments_of_streams(settings: dict[str, Any]) -> None:
    """The same for iterable datasets."""
    assert_same_error(lambda loader_class: loader_class(Stream(5), **settings))
    assert_same_error(lambda loader_class: len(loader_class(Stream(5))))


def test_bad_arguments_that_show_late() -> None:
    """What torch finds out when it is iterated, or asked its length."""
    assert_same_error(lambda loader_class: len(loader_class(Numbers(5), sampler=iter([1, 2]), batch_size=None)))
    assert_same_error(lambda loader_class: list(loader_class(Numbers(5), sampler=3)))
    assert_same_error(lambda loader_class: list(loader_class(Numbers(5), sampler=[7])))
    assert_same_error(lambda loader_class: list(loader_class(5, sampler=[7])))


def test_samplers_without_length() -> None:
    """A generator as sampler gives one epoch, then none."""
    assert_same(lambda loader_class: epochs(loader_class(Numbers(5), 2, sampler=iter([3, 1, 4])), 2))
    assert_same(
        lambda loader_class: epochs(loader_class(Numbers(5), batch_sampler=iter([[3, 1], [4]]), num_workers=1), 2)
    )


def test_contexts() -> None:
    """The attribute is a context, whatever was given; None stays None."""
    loader_class = under_test()
    for given in ("spawn", multiprocessing.get_context("spawn")):
        loader = loader_class(Numbers(5), num_workers=1, multiprocessing_context=given)
        assert loader.multiprocessing_context.get_start_method() == "spawn"
    assert loader_class(Numbers(5), num_workers=1).multiprocessing_context is None


def test_lengths() -> None:
    """``len`` for each way of batching, map-style and iterable."""
    settings: list[dict[str, Any]] = [{"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}]
    datasets = [Numbers(11), SizedStream(11, 11), Numbers(0), Numbers(8)]
    assert_same(lambda loader_class: [len(loader_class(dataset, **each)) for dataset in datasets for each in settings])
