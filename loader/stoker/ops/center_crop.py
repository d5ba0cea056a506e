"""The middle of a picture."""

from __future__ import annotations

from stoker.ops.geometry import Size, Window, check_size, pair
from stoker.ops.image_op import ImageOp
from stoker.spec import spec


@spec
class CenterCrop(ImageOp):
    """Cut out the middle (torchvision's op). What is smaller than ``size`` is padded with zeros first."""

    field: str
    size: Size

    def __post_init__(self) -> None:
        check_size("CenterCrop", self.size)

    def padding(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return how much is added left, top, right and bottom."""
        missing_height, missing_width = (
            max(0, new - old) for new, old in zip(pair(self.size), (height, width), strict=True)
        )
        return missing_width // 2, missing_height // 2, (missing_width + 1) // 2, (missing_height + 1) // 2

    def window(self, height: int, width: int) -> Window:
        """Return the window of a picture that is at least as large."""
        new_height, new_width = pair(self.size)
        return Window(round((height - new_height) / 2), round((width - new_width) / 2), new_height, new_width)
