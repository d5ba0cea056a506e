"""Rectangles of pictures, as whole numbers of pixels."""

from __future__ import annotations

from typing import NamedTuple

from stoker.errors import SpecError

Size = int | tuple[int, int]
"""One side of a square, or (height, width)."""


class Window(NamedTuple):
    """A rectangle of a picture; ``top`` and ``left`` count from 0."""

    top: int
    left: int
    height: int
    width: int

    @property
    def bottom(self) -> int:
        """The first row below the window."""
        return self.top + self.height

    @property
    def right(self) -> int:
        """The first column right of the window."""
        return self.left + self.width

    def inside(self, outer: Window) -> Window:
        """This window, counted from the corner of ``outer``, in the coordinates that ``outer`` is in."""
        return Window(outer.top + self.top, outer.left + self.left, self.height, self.width)

    def mirrored(self, height: int, width: int, *, horizontal: bool, vertical: bool) -> Window:
        """Where the window lies once a picture of ``height`` × ``width`` is mirrored left-right or top-bottom."""
        top = height - self.bottom if vertical else self.top
        left = width - self.right if horizontal else self.left
        return Window(top, left, self.height, self.width)

    def transposed(self) -> Window:
        """Where the window lies once rows and columns of the picture change places."""
        return Window(self.left, self.top, self.width, self.height)


def whole(height: int, width: int) -> Window:
    """The window that shows everything."""
    return Window(0, 0, height, width)


def pair(size: Size) -> tuple[int, int]:
    """Return (height, width) of a size of which a whole number means a square."""
    return (size, size) if isinstance(size, int) else size


def check_size(owner: str, size: Size) -> None:
    """Raise SpecError unless both sides are positive."""
    if min(pair(size)) < 1:
        raise SpecError(f"{owner}: size is {size}; expected one side of a square or (height, width), each at least 1")
