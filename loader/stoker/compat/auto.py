"""Threads or processes: which of them suits a dataset."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Literal

from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from stoker.compat import generators
from stoker.compat.generators import Generators

if TYPE_CHECKING:
    from stoker.compat.loader import DataLoader

MIN_GAIN: Final = 1.4
"""So many times the work of one thread must two do in the same time."""

_NUM_ROUNDS: Final = 3
_ROUND_S: Final = 0.1
_MAX_SAMPLES: Final = 64
_GIVES_INTS: Final = (
    SequentialSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    DistributedSampler,
)

_LOG: Final = logging.getLogger("stoker")


def choose(loader: DataLoader[Any]) -> Literal["thread", "multiprocessing"]:
    """Measure how much more two threads fetch than one, on a few samples; takes about half a second.

    Processes for what threads cannot do: iterable datasets, ``worker_init_fn``, ``seeding="sample"``, a context that
    was asked for, samplers whose keys are not known, and datasets that draw from the global generators, which threads
    would share. The generators are left as they were.
    """
    why_not = _why_not(loader)
    if why_not is None:
        with generators.kept() as before:
            try:
                gain = _gain(loader.dataset.__getitem__, _some_keys(len(loader.dataset)))  # type: ignore[arg-type]
            except Exception as error:  # noqa: BLE001  # users' code; the epoch will raise it, with the sample's name
                why_not = f"a sample raised {type(error).__name__}"
            else:
                if Generators.now() != before:
                    why_not = "the dataset draws from the global generators"
                elif gain < MIN_GAIN:
                    why_not = f"two threads fetch {gain:.1f} times what one does: it holds the interpreter's lock"
                else:
                    _LOG.info("threads fetch the samples: two of them do %.1f times what one does", gain)
    if why_not is None:
        return "thread"
    _LOG.info("processes fetch the samples: %s", why_not)
    return "multiprocessing"


def _why_not(loader: DataLoader[Any]) -> str | None:
    if loader._is_iterable:
        return "the dataset is iterable"
    if loader.worker_init_fn is not None or loader.seeding == "sample" or loader.multiprocessing_context is not None:
        return "worker_init_fn, seeding or multiprocessing_context asks for them"
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if type(sampler) not in _GIVES_INTS or not hasattr(loader.dataset, "__len__"):
        return "the sampler's keys are not known beforehand"
    return None


def _some_keys(num_samples: int) -> range:
    return range(0, num_samples, max(1, num_samples // _MAX_SAMPLES))


def _gain(fetch: Callable[[int], Any], keys: Sequence[int]) -> float:
    """The best of some rounds: other processes' work only makes a gain look smaller."""
    fetch(keys[0])  # what is opened or filled at the first use is not measured
    gains = []
    for _ in range(_NUM_ROUNDS):
        num_samples, alone_s = _timed(fetch, keys)
        gains.append(2 * alone_s / max(_together(fetch, keys[:num_samples]), 1e-9))
    return max(gains)


def _timed(fetch: Callable[[int], Any], keys: Sequence[int]) -> tuple[int, float]:
    begun_s = time.perf_counter()
    for num_samples, key in enumerate(keys, 1):
        fetch(key)
        if time.perf_counter() - begun_s >= _ROUND_S:
            return num_samples, time.perf_counter() - begun_s
    return len(keys), time.perf_counter() - begun_s


def _together(fetch: Callable[[int], Any], keys: Sequence[int]) -> float:
    errors: list[BaseException] = []

    def fetch_all() -> None:
        try:
            for key in keys:
                fetch(key)
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop; raised below
            errors.append(error)

    threads = [Thread(target=fetch_all, daemon=True) for _ in range(2)]
    begun_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return time.perf_counter() - begun_s
