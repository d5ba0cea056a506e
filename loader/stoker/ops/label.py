"""A class number out of text."""

from __future__ import annotations

from typing import Any

from stoker.errors import SpecError
from stoker.ops.absent import UNSET, FieldOp, Missing
from stoker.spec import spec


@spec
class Label(FieldOp):
    """Read a field (bytes or text such as ``b"7\\n"``, or an integer) as an int64 number.

    * ``classes``: the field holds a class's name instead; its number is its place in the list, or what the dict says.
    * ``default``: the number for samples without the field. ``missing="skip"`` leaves the field out.
    """

    field: str
    to: str | None = None
    classes: tuple[str, ...] | dict[str, int] | None = None
    default: Any = UNSET
    missing: Missing = "error"

    def __post_init__(self) -> None:
        self._check_absent()
        if self.default is not UNSET and (isinstance(self.default, bool) or not isinstance(self.default, int)):
            raise SpecError(f"Label: default must be an integer, found {self.default!r}")
        if self.classes is not None and len(set(self.classes)) != len(self.classes):
            raise SpecError("Label: classes names a class twice")

    @property
    def numbers(self) -> dict[str, int] | None:
        """The number of each class."""
        if self.classes is None or isinstance(self.classes, dict):
            return self.classes
        return {name: number for number, name in enumerate(self.classes)}
