"""Kernels that call a user's function."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random.mtrand import get_bit_generator, set_bit_generator
from numpy.typing import NDArray

from stoker.backends.program import Filtered, Kernel
from stoker.backends.registry import implements
from stoker.errors import DeviceLostError, SampleError
from stoker.ops.filter import Filter
from stoker.ops.functions import FunctionOp, describe
from stoker.ops.map import Map
from stoker.sample import Deferred, Sample

_ABSENT = object()
_globals_lock = threading.Lock()


@implements(Map)
def map_fields(op: Map) -> Kernel:
    """The function's dict takes the place of the fields."""
    call = _caller(op)

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        made = call(sample, uniforms)
        if not isinstance(made, Mapping):
            hint = "; does the function lack a return?" if made is None else ""
            raise SampleError(f"expected the function to return a dict of fields, found {type(made).__name__}{hint}")
        for name in made:
            if not isinstance(name, str):
                raise SampleError(f"expected field names that are strings, found {name!r}")
        sample.fields = made.untouched() if isinstance(made, _Fields) else dict(made)

    return kernel


@implements(Filter)
def filter_fields(op: Filter) -> Kernel:
    """Stops the sample where the function is false."""
    call = _caller(op)

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        try:
            wanted = bool(call(sample, uniforms))
        except ValueError as error:  # an array has no truth
            raise SampleError(f"expected the function to return True or False: {error}") from error
        if not wanted:
            raise Filtered(op)

    return kernel


def _caller(op: FunctionOp) -> Callable[[Sample, NDArray[np.float64]], Any]:
    """Return what calls the function of an op under the randomness that it asks for."""
    fn, takes_rng = op.fn, op.takes_rng

    def call(sample: Sample, uniforms: NDArray[np.float64]) -> Any:
        try:
            fields = _Fields(sample.fields)
            if takes_rng:
                return fn(fields, rng=np.random.Generator(np.random.Philox(key=_key(uniforms))))
            if not op.seed_globals:
                return fn(fields)
            with _seeded_globals(_key(uniforms)):
                return fn(fields)
        except (SampleError, DeviceLostError):
            raise
        except Exception as error:  # whatever a user's function raises is the sample's fault
            raise SampleError(f"{describe(fn)} raised {type(error).__name__}: {error}") from error

    return call


def _key(uniforms: NDArray[np.float64]) -> int:
    """Turn two uniform numbers, of 53 bits each, into a key of 106 bits."""
    high, low = uniforms.tolist()
    return int(high * 2**53) << 53 | int(low * 2**53)


@contextmanager
def _seeded_globals(key: int) -> Iterator[None]:
    """Seed the generators that all of the process shares, and put them back: we are a guest here.

    One caller at a time. A thread that is not ours and draws at this moment sees the seeded generators. All three are
    the same generator underneath, so they get different seeds; torch's takes no more than 32 bits.
    """
    words = [key >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
    with _globals_lock, _seeded_python(key), _seeded_numpy([*words, 1]), _seeded_torch(words[1]):
        yield


@contextmanager
def _seeded_python(key: int) -> Iterator[None]:
    state = random.getstate()
    random.seed(key)
    try:
        yield
    finally:
        random.setstate(state)


@contextmanager
def _seeded_numpy(words: list[int]) -> Iterator[None]:
    """Lend NumPy another bit generator; cheaper than writing 2.5 KB back, and the user's own is never touched."""
    state = np.random.get_state(legacy=False)  # noqa: NPY002  # the shared generator is what this is about
    assert isinstance(state, dict)
    own = get_bit_generator()
    set_bit_generator(_spare_numpy())
    np.random.seed(words)  # noqa: NPY002
    try:
        yield
    finally:
        set_bit_generator(own)
        if state["has_gauss"]:  # half of a pair of normal numbers waits outside the bit generator
            np.random.set_state(state)  # noqa: NPY002


@lru_cache(maxsize=1)
def _spare_numpy() -> np.random.MT19937:
    return np.random.MT19937(0)


@contextmanager
def _seeded_torch(seed: int) -> Iterator[None]:
    torch = sys.modules.get("torch")
    generator = getattr(torch, "default_generator", None)  # None too while another thread is importing it
    if generator is None:
        yield
        return
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)


class _Fields(dict[str, Any]):
    """The fields as a function sees them: made when they are looked at, so that what it ignores stays unmade."""

    def untouched(self) -> dict[str, Any]:
        """The fields as they are now, without making any."""
        return dict(super().items())

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, memoryview):
            value = self[name] = bytes(value)
        elif isinstance(value, np.ndarray):
            if not value.flags.writeable:  # it lies in the bytes it was read with
                value = self[name] = value.copy()
        elif not isinstance(value, _PLAIN) and isinstance(value, Deferred):
            value = self[name] = value.array()
        return value

    def __iter__(self) -> Iterator[str]:  # its presence keeps dict(fields) and {**fields} from passing by __getitem__
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401  # this is what get() is

    def pop(self, name: str, default: Any = _ABSENT) -> Any:
        if name not in self and default is not _ABSENT:
            return default
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self))
        return name, self.pop(name)

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()


_PLAIN = (np.generic, bytes, str, int, float, dict, list)
