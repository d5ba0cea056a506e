"""Bytes of a picture file become a picture."""

from __future__ import annotations

from typing import Literal

from stoker.errors import SpecError
from stoker.ops.op import Op
from stoker.spec import spec

Mode = Literal["RGB", "L", "RGBA", "unchanged"]


@spec
class DecodeImage(Op):
    """Decode JPEG, PNG, WebP, BMP or TIFF, told apart by content; a gzip wrapping is taken off.

    The picture is rotated as its EXIF orientation says, always and before all else, so that crops lie where a viewer
    sees them. The result is height × width × channels.

    * ``mode``: ``"RGB"``, ``"L"`` (one channel), ``"RGBA"`` (opaque where the file has no alpha), or ``"unchanged"``:
      the channels of the file, with palettes resolved and CMYK as ink (0 is none). Conversions are Pillow's.
    * ``background``: ``None`` leaves alpha off when the mode has none, as torchvision does; a colour (R, G, B), each
      0..255, is what transparent parts are laid on.
    * ``dtype``: 16 bit files are scaled to the full range of ``"uint8"``, never clamped; ``"uint16"`` keeps them, and
      scales 8 bit files up.
    * ``strict``: any damage of a JPEG is an error, wherever it lies. ``False`` reads what Pillow reads: wrong bytes
      between the markers pass, a file that is cut short does not. Either way the outcome does not depend on a crop.
    * ``max_pixels``: a larger picture is an error before it is decoded.

    ``source`` may name alternatives (``"jpg;jpeg;png"`` or a tuple); the first that a sample has is taken, and ``to``
    is needed. Without ``to`` the picture takes the field's place, else the raw field is dropped.
    """

    source: str | tuple[str, ...]
    to: str | None = None
    mode: Mode = "RGB"
    dtype: Literal["uint8", "uint16"] = "uint8"
    background: tuple[int, int, int] | None = None
    strict: bool = True
    max_pixels: int = 178_956_970

    def __post_init__(self) -> None:
        if not self.sources:
            raise SpecError("DecodeImage: source names no field")
        if self.to is None and len(self.sources) > 1:
            raise SpecError(f"DecodeImage: several alternatives {self.sources} need one name: to='image'")
        if self.background is not None and not all(0 <= value <= 255 for value in self.background):
            raise SpecError(f"DecodeImage: background is {self.background}; expected (R, G, B), each 0..255")

    @property
    def sources(self) -> tuple[str, ...]:
        """The fields to look for, in order."""
        names = self.source.split(";") if isinstance(self.source, str) else self.source
        return tuple(name.strip() for name in names if name.strip())

    @property
    def target(self) -> str:
        """The field that holds the picture."""
        return self.to or self.sources[0]

    @property
    def reads(self) -> tuple[str, ...]:
        return self.sources if len(self.sources) == 1 else ()

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def drops(self) -> tuple[str, ...]:
        return tuple(name for name in self.sources if name != self.target)

    @property
    def label(self) -> str:
        return f"DecodeImage({';'.join(self.sources)!r})"
