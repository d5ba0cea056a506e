"""What to load: a pipeline as a frozen value that is data, not code.

The words that are used everywhere:

* *sample*: one record, addressed by (shard, row). *shard*: one object in storage. *chunk*: a run of neighbouring rows
  of one shard that is read with one request.
* *manifest*: the ordered shards with row counts, sizes and offsets, and the fingerprint of it all.
* *order*: the permutation of samples for (seed, epoch): chunks permuted over the whole data set, samples mixed inside
  a *window* of chunks that follow one another in that order.
* *lane*: one of ``lanes`` contiguous parts of the order, read front to back. *batch*: consecutive samples of one lane.
  *step*: one batch for each rank.
* *position*: how far an epoch is consumed. *state*: epoch, position and what is needed to continue.
* *pipeline*: source, ops, batching, shuffling. *worker*, *dispatcher*, *client*, *job*: the parts of the service.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import StrictBool

from stoker import ops as all_ops
from stoker.errors import SpecError
from stoker.formats import source as sources
from stoker.formats.source import Source
from stoker.ops.cache import check_cache, without_cache
from stoker.ops.op import Op
from stoker.plan.steps import Tail
from stoker.spec import spec

FORMAT_VERSION = 1

OnError = Literal["raise", "replace", "drop"]
Collate = Literal["stack", "pad", "ragged", "list"]


@spec
class Pipeline:
    """A source of samples, the ops on each, and how batches are made of them.

    Args:
        source: what :func:`stoker.tar` or :func:`stoker.files` gives.
        ops: the steps of one sample, in order, from ``stoker.ops``.
        batch_size: rows of one batch of one rank.
        shuffle: ``False`` keeps the order of the manifest; ``True`` mixes chunks over the whole data set and samples
            inside windows of ``window`` chunks; ``"full"`` is one window over everything, for data on a local disk.
        seed: with the epoch, decides order and augmentation; nothing else does.
        drop_last: short for ``tail="drop"``.
        on_error: ``"raise"``; ``"replace"`` a bad sample by a good one of its batch and mark it in ``"__mask__"``;
            ``"drop"`` it, so that its batch has fewer rows.
        max_bad: how many samples of an epoch may be bad on one rank, as a count, or below 1.0 as a fraction.
        tail: what becomes of samples that do not fill a step: ``"drop"``, ``"pad"`` (filler, masked), ``"repeat"``
            (filler, unmasked), ``"short"`` (the last batch is short; one rank only). Unless told otherwise: ``"drop"``
            with ``drop_last``, else ``"short"`` with one rank and ``"pad"`` with several.
        window: chunks that are mixed with one another.
        lanes: parts of the order that can be read independently.
        collate: for fields whose samples differ in shape, by name: ``"pad"``, ``"ragged"`` or ``"list"``.

    Raises SpecError if an argument is wrong, or an op needs a picture that no op before it makes.
    """

    source: Source
    ops: Sequence[Op]
    batch_size: int
    shuffle: StrictBool | Literal["full"] = False
    seed: int = 0
    drop_last: bool = False
    on_error: OnError = "raise"
    max_bad: int | float | None = None
    tail: Tail | None = None
    window: int = 64
    lanes: int = 8
    collate: Mapping[str, Collate] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", tuple(self.ops))  # a list is welcome, and what is kept cannot change
        for name in ("batch_size", "window", "lanes"):
            if getattr(self, name) < 1:
                raise SpecError(f"Pipeline: {name} is {getattr(self, name)}; it must be at least 1")
        if self.max_bad is not None and self.max_bad < 0:
            raise SpecError(f"Pipeline: max_bad is {self.max_bad}; give a count, or a fraction below 1.0, or None")
        if self.drop_last and self.tail not in (None, "drop"):
            raise SpecError(f"Pipeline: drop_last=True and tail={self.tail!r} contradict each other; give one of them")
        if self.shuffle == "full" and isinstance(self.source, sources.Parquet):
            raise SpecError(
                'Pipeline: shuffle="full" needs samples that can be read one by one, Parquet is read by row groups; '
                "take shuffle=True, with a larger window if need be"
            )
        _check_pictures(self.ops)
        check_cache(self.ops)

    def tail_for(self, world_size: int) -> Tail:
        """The tail policy for so many ranks. Raises SpecError for ``"short"`` with several."""
        if self.tail == "short" and world_size > 1:
            raise SpecError(f'tail="short" would leave some of {world_size} ranks without a last batch; use "pad"')
        if self.tail is not None:
            return self.tail
        if self.drop_last:
            return "drop"
        return "short" if world_size == 1 else "pad"

    def to_json(self) -> str:
        """The pipeline as JSON. Raises SpecError if it holds a function that cannot be named."""
        return json.dumps(
            {
                "stoker": FORMAT_VERSION,
                "source": sources.to_json(self.source),
                "ops": [op.to_json() for op in self.ops],
                **self._settings(),
            }
        )

    @classmethod
    def from_json(cls, text: str, *, allow_code: bool = False) -> Pipeline:
        """Read what :meth:`to_json` wrote. ``allow_code`` permits importing the user functions it names."""
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise SpecError(f"not a pipeline: {error}") from None
        if not isinstance(found, dict) or found.get("stoker") != FORMAT_VERSION:
            raise SpecError(f'not a pipeline of this version: expected an object with "stoker": {FORMAT_VERSION}')
        settings = {name: value for name, value in found.items() if name not in ("stoker", "source", "ops")}
        settings["collate"] = settings.get("collate") or None
        ops = tuple(_op_from_json(step, allow_code=allow_code) for step in found["ops"])
        return cls(sources.from_json(found["source"]), ops, **settings)

    @property
    def fingerprint(self) -> str:
        """Identity of what the pipeline makes of given data: equal ones make equal batches. 32 hex digits."""
        identity = {
            "source": sources.to_json(self.source),
            "ops": [op.identity() for op in without_cache(self.ops)],
            **self._settings(),
        }
        return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16).hexdigest()

    @classmethod
    def preset(cls, name: str, source: Source | str | Sequence[str], **settings: Any) -> Pipeline:
        """A common pipeline by name; see :mod:`stoker.presets` for the names and their settings."""
        from stoker.presets import make  # presets build pipelines, so this module cannot import them above

        return make(name, source, **settings)

    def _settings(self) -> dict[str, Any]:
        names = ("batch_size", "shuffle", "seed", "drop_last", "on_error", "max_bad", "tail", "window", "lanes")
        return {name: getattr(self, name) for name in names} | {"collate": dict(self.collate or {})}


def _op_from_json(step: dict[str, Any], *, allow_code: bool) -> Op:
    arguments = dict(step)
    name = arguments.pop("op", None)
    if name not in all_ops.__all__:
        raise SpecError(f"no op is named {name!r}; known: {', '.join(all_ops.__all__)}")
    op_type: type[Op] = getattr(all_ops, name)
    return op_type.from_json(arguments, allow_code=allow_code)


def _check_pictures(ops: Sequence[Op]) -> None:
    made: set[str] = set()
    has_code = False
    for op in ops:
        for field in op.needs_image:
            if field not in made and not has_code:
                known = f"pictures made so far: {', '.join(sorted(made))}" if made else "no op before it makes one"
                raise SpecError(
                    f"{op.label} needs a picture {field!r}; {known}; put DecodeImage(…, to={field!r}) first"
                )
        made = (made - set(op.drops)) | set(op.writes)
        has_code = has_code or op.is_code
