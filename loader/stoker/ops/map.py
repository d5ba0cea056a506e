"""A user's function on each sample."""

from __future__ import annotations

from typing import ClassVar

from stoker.ops.functions import Function, FunctionOp
from stoker.spec import spec


@spec
class Map(FunctionOp):
    """Replace the fields of each sample by ``fn(fields)``: a dict in, a dict out, which may be the same one.

    Pictures are arrays and raw fields bytes from the moment the function looks at them. An exception of the function
    makes the sample a bad one. See :class:`stoker.ops.functions.FunctionOp` for ``rng`` and ``seed_globals``.
    """

    is_code: ClassVar[bool] = True
    fn: Function
    seed_globals: bool = True
