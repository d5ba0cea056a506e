"""Where the samples of a pipeline are kept decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker.errors import SpecError
from stoker.ops.functions import FunctionOp
from stoker.ops.op import Op
from stoker.secret_names import is_secret
from stoker.spec import spec

AUTO = "auto"


@spec
class Cache(Op):
    """Keep what the ops before this one make, so that later epochs, jobs and workers run the ops behind it only.

    It changes no batch: neither the random numbers of other ops nor the pipeline's fingerprint know of it. It stands
    before the first op that draws random numbers, and what stands before it is made whole: a ``DecodeImage`` decodes
    whole pictures, where a random crop behind it would decode the window alone.

    * ``place``: a folder or the URL of a bucket's folder, for always; ``"auto"`` measures some samples first and keeps
      decoded ones only where that makes loading faster: in the loader's ``cache`` folder or ``$XDG_CACHE_HOME/stoker``.
    * ``max_bytes``: what lies in the place at most, of all pipelines; None is half of what is free on a disk, and
      anything in a bucket. What no longer fits is decoded each time.
    * ``storage_options``: for a bucket, as in :func:`stoker.tar`.
    * ``version``: to be raised when a function's results change and its own code does not, as by what it calls.
    """

    place: str = AUTO
    max_bytes: int | None = None
    storage_options: dict[str, str] | None = None
    version: int = 0

    def __post_init__(self) -> None:
        if not self.place:
            raise SpecError('Cache: place is empty; give a folder, a URL, or "auto"')
        if self.max_bytes is not None and self.max_bytes < 1:
            raise SpecError(f"Cache: max_bytes is {self.max_bytes}; it must be at least 1, or None")

    def to_json(self) -> dict[str, Any]:
        """As for every op, without those storage options that look secret: who reads it needs its own."""
        options = self.storage_options
        shown = None if options is None else {name: value for name, value in options.items() if not is_secret(name)}
        return super().to_json() | {"storage_options": shown}

    def __repr__(self) -> str:
        options = self.storage_options or {}
        shown = {name: "***" if is_secret(name) else value for name, value in options.items()}
        return f"Cache({self.place!r}, max_bytes={self.max_bytes}, storage_options={shown}, version={self.version})"


def without_cache(ops: Sequence[Op]) -> tuple[Op, ...]:
    """The ops that make samples: what identity and random numbers are counted by."""
    return tuple(op for op in ops if not isinstance(op, Cache))


def prefix_length(ops: Sequence[Op]) -> int | None:
    """How many ops stand before the cache; None without one."""
    return next((index for index, op in enumerate(ops) if isinstance(op, Cache)), None)


def check_cache(ops: Sequence[Op]) -> None:
    """Raise SpecError for a second cache, or one that nothing or something random stands before."""
    length = prefix_length(ops)
    if length is None:
        return
    if sum(isinstance(op, Cache) for op in ops) > 1:
        raise SpecError("a pipeline has one Cache at most; keep the last one that stands before any random op")
    if length == 0:
        raise SpecError("Cache stands first, where nothing is decoded yet; put it after DecodeImage(…)")
    for op in ops[:length]:
        if op.num_uniforms and isinstance(op, FunctionOp) and not op.takes_rng:
            raise SpecError(
                f"Cache stands after {op.label}, which may draw random numbers; if it draws none, say so: "
                f"{type(op).__name__}(…, seed_globals=False); else put Cache before it"
            )
        if op.num_uniforms:
            raise SpecError(
                f"Cache stands after {op.label}, which draws random numbers: each epoch would get the same ones; put "
                "Cache before it"
            )
