"""Numbers in another dtype."""

from __future__ import annotations

from typing import Literal

from stoker.ops.op import Op
from stoker.spec import spec


@spec
class Cast(Op):
    """Change the dtype of an array or picture; the values stay as they are, rounded to the nearest that it has.

    Whole numbers are cut off towards zero; what lies outside their range is undefined. Nothing is scaled: see
    Normalize.
    """

    field: str
    dtype: Literal["float16", "bfloat16", "float32", "float64", "int32", "int64"]

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.field,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.field,)
