"""Pictures made smaller or encoded anew."""

from __future__ import annotations

import io
from typing import Any

from stoker.backends.cpu.packages import need
from stoker.convert.fields import Content
from stoker.convert.options import ConvertOptions
from stoker.errors import SampleError

EXTENSIONS = frozenset({"bmp", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp"})
_FORMATS = {"jpeg": ("JPEG", "jpg"), "webp": ("WEBP", "webp")}
_SAME = {"JPEG": ("JPEG", "jpg"), "WEBP": ("WEBP", "webp")}
_LOSSLESS = ("PNG", "png")
_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB", "LAB": "RGB"}
_KEPT_MODES = {"JPEG": ("L", "RGB"), "WEBP": ("RGB", "RGBA"), "PNG": ("L", "LA", "RGB", "RGBA")}


def transform(fields: dict[str, Content], options: ConvertOptions) -> dict[str, Content]:
    """The fields with pictures as the options want them. Raises SampleError for one that cannot be decoded.

    A picture that is small enough, and is to keep its format, keeps its bytes.
    """
    if not options.changes_pictures:
        return fields
    wanted = EXTENSIONS if options.pictures is None else frozenset(options.pictures)
    found: dict[str, Content] = {}
    for name, content in fields.items():
        field, made = _transformed(name, content, options) if name in wanted else (name, content)
        if field in found or (field != name and field in fields):
            raise SampleError(f"{name!r} becomes {field!r}, and the record has such a field already")
        found[field] = made
    return found


def _transformed(name: str, content: Content, options: ConvertOptions) -> tuple[str, Content]:
    module = need("PIL.Image")
    try:
        with module.open(io.BytesIO(content)) as image:
            image.load()
            size = _size(image.width, image.height, options.shorter_side)
            if options.encode is None and size == image.size:
                return name, content
            kind, extension = (
                _FORMATS[options.encode] if options.encode is not None else _SAME.get(image.format, _LOSSLESS)
            )
            made = _encoded(_resized(_plain(image, kind), options.shorter_side), kind, options.quality)
        with module.open(io.BytesIO(made)) as again:  # what was made must be a picture of the same size
            again.load()
            seen = again.size
    except module.UnidentifiedImageError:
        found = f"{len(content)} bytes that begin with {bytes(content[:12])!r}"
        raise SampleError(f"expected a picture in {name!r}, found {found}") from None
    except (OSError, SyntaxError, ValueError, module.DecompressionBombError) as error:
        raise SampleError(f"the picture in {name!r} cannot be made anew: {error}") from error
    if sorted(seen) != sorted(size):
        raise SampleError(
            f"the picture in {name!r} was encoded as {seen[0]} × {seen[1]}, expected {size[0]} × {size[1]}"
        )
    stem = name.rpartition(".")[0]
    return (f"{stem}.{extension}" if stem else extension), made


def _size(width: int, height: int, shorter_side: int | None) -> tuple[int, int]:
    """Width and height with this shorter side; the same if it is shorter already."""
    shorter = min(width, height)
    if shorter_side is None or shorter <= shorter_side:
        return width, height
    return max(1, round(width * shorter_side / shorter)), max(1, round(height * shorter_side / shorter))


def _plain(image: Any, kind: str) -> Any:
    """The picture as a viewer shows it (EXIF orientation), in a mode that the format has."""
    turned = need("PIL.ImageOps").exif_transpose(image)
    if image.mode not in _MODES and image.mode not in ("L", "LA", "RGB", "RGBA"):
        raise ValueError(f"pixels of mode {image.mode!r} would lose depth; leave the field out with --pictures")
    mode = _MODES.get(turned.mode, turned.mode)
    if "transparency" in turned.info:
        mode = "RGBA"
    kept = _KEPT_MODES[kind]
    if mode not in kept:
        mode = "L" if mode == "LA" and "L" in kept else "RGBA" if mode == "LA" and "RGBA" in kept else "RGB"
    return turned if turned.mode == mode else turned.convert(mode)


def _resized(image: Any, shorter_side: int | None) -> Any:
    size = _size(image.width, image.height, shorter_side)
    return image if size == image.size else image.resize(size, need("PIL.Image").Resampling.LANCZOS)


def _encoded(image: Any, kind: str, quality: int) -> bytes:
    sink = io.BytesIO()
    options: dict[str, Any] = {} if kind == "PNG" else {"quality": quality}
    if profile := image.info.get("icc_profile"):
        options["icc_profile"] = profile  # without it the numbers would mean other colours
    image.save(sink, format=kind, **options)
    return sink.getvalue()
