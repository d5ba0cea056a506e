"""A user's verdict on each sample."""

from __future__ import annotations

from typing import ClassVar, Literal

from stoker.ops.functions import Function, FunctionOp
from stoker.spec import spec


@spec
class Filter(FunctionOp):
    """Leave out samples for which ``fn(fields)`` is false; the fields are as for :class:`Map`.

    The number of batches stays what it was: ``on_false="replace"`` puts another sample of the batch in the place and
    marks it in ``__mask__``; ``"drop"`` makes the batch shorter; None replaces where the pipeline's ``on_error`` is
    ``"replace"`` and drops otherwise.
    """

    is_code: ClassVar[bool] = True
    fn: Function
    on_false: Literal["replace", "drop"] | None = None
    seed_globals: bool = True
