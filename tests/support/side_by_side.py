"""Two loader classes side by side: what each gives, says and leaves behind, as plain values that can be compared.

The class under test is ``stoker.compat.DataLoader``. ``STOKER_UNDER_TEST=torch.utils.data.DataLoader`` puts torch's own
in its place, which shows that the suite asks for nothing that torch does not do.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import importlib
import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader as TorchLoader

NAME_UNDER_TEST = os.environ.get("STOKER_UNDER_TEST", "stoker.compat.DataLoader")
SEED = 20261130

Use = Callable[[Any], Any]
"""What is done with a loader class; its answer is compared."""


def under_test() -> Any:
    """The loader class that is compared with torch's."""
    module, _, name = NAME_UNDER_TEST.rpartition(".")
    return getattr(importlib.import_module(module), name)


def is_ours(loader_class: Any) -> bool:
    """Whether it takes the arguments that torch's does not have."""
    return str(loader_class.__module__).startswith("stoker")


def flags(loader_class: Any, **ours: Any) -> dict[str, Any]:
    """Arguments that only our loader takes."""
    return ours if is_ours(loader_class) else {}


@dataclass(frozen=True, slots=True)
class Seen:
    """What one loader class showed. ``chance``: digests of the global generators behind it."""

    answer: Any
    error: tuple[str, str] | None
    warnings: tuple[tuple[str, str], ...]
    chance: tuple[str, str, str]


def seen(loader_class: Any, use: Use, seed: int = SEED) -> Seen:
    """Use a loader class, with the global generators seeded before and put back behind."""
    answer, error = None, None
    gc.freeze()  # so that collecting is quick: only what comes from here on is looked through
    torch.set_warn_always(True)  # lest a warning of torch's C++ comes for the first class only
    with _chance(seed), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = described(use(loader_class))
        except Exception as raised:  # noqa: BLE001  # whatever it is, the other class must raise it as well
            error = kind_of(raised), str(raised)
            raised.__traceback__ = None  # lest the iterator is part of a cycle, in which torch's takes 5 s to end
        gc.collect()  # an iterator that was left ends now, not while the other class is looked at
        chance = _chance_now()
    torch.set_warn_always(False)
    gc.unfreeze()
    return Seen(answer, error, tuple((kind_of(one.message), str(one.message)) for one in caught), chance)


def assert_same(use: Use, loader_class: Any = None, *, may_fail: bool = False) -> Any:
    """Both classes must show the same; returns what that is. An error must be expected, lest nothing is compared."""
    theirs = seen(TorchLoader, use)
    assert may_fail or theirs.error is None, theirs.error
    _compare(seen(loader_class or under_test(), use), theirs)
    return theirs.answer


def assert_same_error(use: Use) -> tuple[str, str]:
    """Both classes must raise the same error, with the same text; returns its type's name and text."""
    theirs = seen(TorchLoader, use)
    assert theirs.error is not None, "torch raises nothing here"
    _compare(seen(under_test(), use), theirs)
    return theirs.error


def epochs(loader: Any, count: int = 1) -> list[list[Any]]:
    """All batches of some epochs."""
    return [list(loader) for _ in range(count)]


def named(settings: Any) -> str:
    """A test's name from its settings, the same in every process."""
    if isinstance(settings, dict):
        return ",".join(f"{key}={getattr(value, '__name__', value)}" for key, value in settings.items()) or "defaults"
    return str(getattr(settings, "__name__", settings))


def kind_of(value: object) -> str:
    """A type's full name."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _compare(ours: Seen, theirs: Seen) -> None:
    for name in ("error", "answer", "warnings", "chance"):
        difference = first_difference(getattr(ours, name), getattr(theirs, name), name)
        assert difference is None, difference
    assert ours == theirs


def first_difference(ours: Any, theirs: Any, where: str) -> str | None:
    """Where two descriptions differ first, for people; None if they do not."""
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        found = (
            first_difference(*pair, f"{where}[{index}]") for index, pair in enumerate(zip(ours, theirs, strict=True))
        )
        return next((difference for difference in found if difference), None)
    return None if ours == theirs else f"{where}: {str(ours)[:2000]}\nand with torch's: {str(theirs)[:2000]}"


@contextmanager
def _chance(seed: int) -> Iterator[None]:
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002  # what users' code draws from
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # the same
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002  # the same
        torch.set_rng_state(kept[2])


def _chance_now() -> tuple[str, str, str]:
    states = repr(random.getstate()), repr(np.random.get_state()), repr(torch.get_rng_state().tolist())  # noqa: NPY002
    python, numpy, pytorch = (hashlib.sha256(state.encode()).hexdigest()[:16] for state in states)
    return python, numpy, pytorch


# -- values ------------------------------------------------------------------------------------------------------------


def described(value: Any) -> Any:  # noqa: PLR0911  # a case a line reads best
    """A value as plain lists, names and bytes: equal exactly when container types, dtypes, strides and bits are."""
    match value:
        case torch.Tensor():
            return _tensor(value)
        case np.ndarray() | np.generic():
            dtype, strides = value.dtype.str, getattr(value, "strides", ())
            return [kind_of(value), dtype, value.shape, strides, repr(value.tolist()), value.tobytes()]
        case float() | complex():
            return [kind_of(value), repr(value)]
        case Mapping():
            return [kind_of(value), [[described(key), described(item)] for key, item in value.items()]]
        case str() | bytes() | int() | None:
            return [kind_of(value), value]
        case list() | tuple():
            return [kind_of(value), [described(item) for item in value]]
        case set() | frozenset():
            return [kind_of(value), sorted(map(repr, value))]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return [kind_of(value), [[field.name, described(getattr(value, field.name))] for field in fields]]
        case _ if hasattr(value, "__dict__") and not callable(value):
            return [kind_of(value), described(vars(value))]
        case _:
            return [kind_of(value), repr(value)]


def _tensor(value: torch.Tensor) -> Any:
    named = [kind_of(value), str(value.dtype), str(value.layout), list(value.shape), value.requires_grad]
    if value.layout != torch.strided:
        value = value.detach().coalesce()
        return [*named, described(value.indices()), described(value.values())]
    raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [*named, list(value.stride()), repr(value.tolist()), raw]
