"""Fields under other names."""

from __future__ import annotations

from stoker.errors import SpecError
from stoker.ops.absent import Missing
from stoker.ops.op import Op
from stoker.spec import spec


@spec
class Rename(Op):
    """Give fields other names: ``Rename({"cls": "label"})``; all at once, so that two may change places.

    A sample that lacks one is bad; with ``missing="skip"`` it goes without. So is one that has a field of the new name
    already.
    """

    names: dict[str, str]
    missing: Missing = "error"

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names.values())) != len(self.names):
            raise SpecError(f"Rename: expected different new names, at least one, found {self.names!r}")

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(self.names)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(self.names.values())

    @property
    def drops(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.names.values())
