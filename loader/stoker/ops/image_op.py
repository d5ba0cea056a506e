"""What ops on pictures share."""

from __future__ import annotations

from stoker.ops.op import Op


class ImageOp(Op):
    """An op that changes the picture in one field. A subclass declares ``field`` first."""

    field: str

    @property
    def needs_image(self) -> tuple[str, ...]:
        return (self.field,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.field,)
