"""What becomes of a sample that lacks the field an op reads."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Literal

from stoker.errors import SpecError
from stoker.ops.op import Op


class Unset(Enum):
    """The type of :data:`UNSET`, which stands for an argument that was not given where None would be a value."""

    UNSET = "unset"


UNSET = Unset.UNSET

Missing = Literal["error", "skip"]
"""``"error"``: the sample is bad. ``"skip"``: the op does nothing."""


class FieldOp(Op):
    """An op that makes ``to`` (or ``field`` itself) of ``field``, which a sample may lack.

    The raw field is dropped when ``to`` is another. With a ``default``, a sample without the field gets that.
    """

    field: str
    to: str | None
    default: Any
    missing: Missing

    @property
    def target(self) -> str:
        """The field that holds the result."""
        return self.to or self.field

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.field,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def drops(self) -> tuple[str, ...]:
        return (self.field,) if self.target != self.field else ()

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_json().items() if value is not UNSET}

    def _check_absent(self) -> None:
        """Refuse a default that contradicts ``missing`` or is not JSON. For ``__post_init__``."""
        name = type(self).__name__
        if self.default is UNSET:
            return
        if self.missing == "skip":
            raise SpecError(f'{name}: missing="skip" and a default contradict each other; give one of them')
        try:
            json.dumps(self.default)
        except (TypeError, ValueError) as error:
            raise SpecError(f"{name}: default must be a JSON value, found {self.default!r}: {error}") from None
