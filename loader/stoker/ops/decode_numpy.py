"""An array out of an ``.npy`` or ``.npz`` file."""

from __future__ import annotations

from typing import Any

from stoker.ops.absent import UNSET, FieldOp, Missing
from stoker.spec import spec


@spec
class DecodeNumpy(FieldOp):
    """Read a field as NumPy's file format: ``.npy`` as an array that must not be changed, ``.npz`` as a dict of arrays.

    Pickled objects are never read. ``default`` (a number, or nested lists of numbers) stands for the array of samples
    without the field; ``missing="skip"`` leaves the field out.
    """

    field: str
    to: str | None = None
    default: Any = UNSET
    missing: Missing = "error"

    def __post_init__(self) -> None:
        self._check_absent()
