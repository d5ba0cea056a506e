"""PNG, WebP, BMP and TIFF files become pixels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.convert import Model
from stoker.backends.cpu.orientation import by_number, upright, without_orientation
from stoker.backends.cpu.packages import need
from stoker.errors import SampleError

_FORMATS = ("PNG", "WEBP", "BMP", "TIFF")
_ORIENTATION = 0x0112
_TIFF_BITS = 0x0102
_BY_NUM_CHANNELS: dict[int, Model] = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_AS_THEY_ARE: dict[str, Model] = {"L": "L", "LA": "LA", "RGB": "RGB", "RGBA": "RGBA", "CMYK": "CMYK"}
_WITH_TRANSPARENCY: dict[str, Model] = {"L": "LA", "P": "RGBA", "RGB": "RGBA"}
_CONVERTED: dict[str, Model] = {
    "1": "L", "P": "RGB", "PA": "RGBA", "La": "LA", "RGBa": "RGBA", "RGBX": "RGB", "YCbCr": "RGB", "LAB": "RGB",
}  # fmt: skip


def decode(file: bytes | memoryview, max_pixels: int) -> tuple[NDArray[Any], Model]:
    """Decode the first picture of a file, as seen: height × width × channels, uint8 or uint16.

    Raises SampleError for a file of another kind, a damaged one, or one with more than ``max_pixels`` pixels.
    """
    module = need("PIL.Image")
    try:
        with module.open(io.BytesIO(file), formats=_FORMATS) as image:
            check_pixels(image.height, image.width, max_pixels)
            is_deep, number = _is_deep(image, file), image.getexif().get(_ORIENTATION, 1)
            image.load()  # finds damage, also where another library makes the pixels
            if is_deep and image.mode not in ("I;16", "I;16B", "I"):
                return _by_opencv(without_orientation(bytes(file)), number)
            return _pixels(need("PIL.ImageOps").exif_transpose(image))
    except module.UnidentifiedImageError:
        found = f"{len(file)} bytes that begin with {bytes(file[:12])!r}"
        raise SampleError(f"expected a JPEG, PNG, WebP, BMP or TIFF picture, found {found}") from None
    except (OSError, SyntaxError, ValueError, module.DecompressionBombError) as error:
        raise SampleError(str(error)) from error


def check_pixels(height: int, width: int, max_pixels: int) -> None:
    """Raise SampleError if the picture is too large."""
    if height * width > max_pixels:
        raise SampleError(f"the picture has {height} × {width} pixels, more than max_pixels={max_pixels} allows")


def _is_deep(image: Any, file: bytes | memoryview) -> bool:
    """Whether channels have 16 bits in the file, which Pillow's mode does not always tell."""
    if image.format == "PNG":
        return file[24] == 16
    bits = image.tag_v2.get(_TIFF_BITS, 8) if image.format == "TIFF" else 8
    return 16 in (bits if isinstance(bits, tuple) else (bits,))


def _by_opencv(file: bytes, number: int) -> tuple[NDArray[Any], Model]:
    """Decode 16 bit channels, more than one of which Pillow would cut to 8 bits.

    OpenCV turns some formats by itself and others not: ``file`` must not say that it is turned.
    """
    cv2 = need("cv2")
    pixels = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.dtype != np.uint16:
        raise SampleError("OpenCV cannot read this picture of 16 bits per channel")
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    if pixels.shape[2] >= 3:
        pixels = pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]
    return upright(pixels, by_number(number)), _BY_NUM_CHANNELS[pixels.shape[2]]


def _pixels(image: Any) -> tuple[NDArray[Any], Model]:
    if image.mode in ("I;16", "I;16B", "I"):
        return _whole_numbers(image), "L"
    if "transparency" in image.info and image.mode in _WITH_TRANSPARENCY:
        model = _WITH_TRANSPARENCY[image.mode]
        return _array(image.convert(model)), model
    if image.mode in _AS_THEY_ARE:
        return _array(image), _AS_THEY_ARE[image.mode]
    if image.mode in _CONVERTED:
        model = _CONVERTED[image.mode]
        return _array(image.convert(model)), model
    raise SampleError(f"pictures of Pillow's mode {image.mode!r} have no 8 or 16 bit channels")


def _whole_numbers(image: Any) -> NDArray[Any]:
    """Return one channel of 16 bits. Raises SampleError if the numbers do not fit."""
    wide = np.asarray(image)
    if wide.min() < 0 or wide.max() > 65535:
        raise SampleError(f"pixels of {wide.min()} to {wide.max()} do not fit 16 bits")
    return wide.astype(np.uint16)[..., None]


def _array(image: Any) -> NDArray[Any]:
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)
