"""A value out of JSON text."""

from __future__ import annotations

from typing import Any

from stoker.ops.absent import UNSET, FieldOp, Missing
from stoker.spec import spec


@spec
class DecodeJson(FieldOp):
    """Read a field as JSON: dicts, lists, strings, numbers, bools, None.

    A dict becomes nested columns if all samples have its keys; give ``collate={"json": "list"}`` to keep it whole.
    ``default`` is the value for samples without the field; ``missing="skip"`` leaves the field out.
    """

    field: str
    to: str | None = None
    default: Any = UNSET
    missing: Missing = "error"

    def __post_init__(self) -> None:
        self._check_absent()
