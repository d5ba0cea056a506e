"""Some fields of a sample, without the others."""

from __future__ import annotations

from typing import Any, Self

from stoker.errors import SpecError
from stoker.ops.absent import Missing
from stoker.ops.op import Op
from stoker.spec import spec


@spec
class _Select(Op):
    fields: tuple[str, ...]
    missing: Missing = "error"


class Select(_Select):
    """Keep these fields, in this order, and drop all others.

    A sample that lacks one is bad; with ``missing="skip"`` it goes without. Fields that are dropped are not decoded if
    nothing made their pixels before.
    """

    def __init__(self, *fields: str, missing: Missing = "error") -> None:
        super().__init__(fields, missing)
        if not fields or len(set(fields)) != len(fields):
            raise SpecError(f"Select: expected different fields, at least one, found {fields!r}")

    @property
    def reads(self) -> tuple[str, ...]:
        return self.fields

    @property
    def writes(self) -> tuple[str, ...]:
        return self.fields

    @classmethod
    def from_json(cls, arguments: dict[str, Any], *, allow_code: bool) -> Self:
        """Make the op from what ``to_json`` gave."""
        del allow_code  # it carries none
        others = dict(arguments)
        return cls(*others.pop("fields", ()), **others)
