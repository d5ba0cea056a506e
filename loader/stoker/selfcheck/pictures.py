"""Pictures of the awkward kinds that real data sets hold, made anew each time, always the same."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stoker.backends.cpu.packages import need

WIDTH, HEIGHT = 64, 48


def pixels(seed: int = 0, width: int = WIDTH, height: int = HEIGHT) -> NDArray[np.uint8]:
    """Return smooth RGB pixels, height × width × 3, that differ from seed to seed."""
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, 7], dtype=np.uint64)))
    phases, frequencies = rng.uniform(0, 6.28, (3, 2)), rng.uniform(1, 3, (3, 2))
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = [
        np.sin(fy * 6.28 * y + py) + np.sin(fx * 6.28 * x + px)
        for (py, px), (fy, fx) in zip(phases, frequencies, strict=True)
    ]
    return np.asarray(127.5 + 60 * np.stack(waves, axis=-1), dtype=np.uint8)


def jpeg(seed: int = 0, width: int = WIDTH, height: int = HEIGHT, *, quality: int = 90, **options: Any) -> bytes:
    """Return a JPEG file; ``options`` go to Pillow (``subsampling``, ``progressive``, ``exif``…)."""
    return encode(pixels(seed, width, height), "JPEG", quality=quality, **options)


def png(seed: int = 0, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    """Return a PNG file with the same pixels as :func:`pixels`."""
    return encode(pixels(seed, width, height), "PNG")


def encode(image: NDArray[Any] | Image.Image, file_format: str, **options: Any) -> bytes:
    """Encode an array or a Pillow image as a file of this format."""
    out = io.BytesIO()
    made = image if isinstance(image, Image.Image) else Image.fromarray(image)
    made.save(out, file_format, **options)
    return out.getvalue()


def grey_jpeg(seed: int = 0) -> bytes:
    """Return a JPEG file with one channel."""
    return encode(Image.fromarray(pixels(seed)).convert("L"), "JPEG", quality=95)


def jpeg_with_orientation(seed: int = 0, orientation: int = 6) -> bytes:
    """Return a JPEG file whose EXIF block asks for a rotation or mirroring (1 to 8)."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(seed, exif=exif)


def cmyk_jpeg(seed: int = 0) -> bytes:
    """Return a JPEG file of four inverted channels with Adobe's marker (transform 0), as Photoshop writes."""
    return encode(Image.fromarray(pixels(seed)).convert("CMYK"), "JPEG", quality=95)


def ycck_jpeg(seed: int = 0) -> bytes:
    """Return the same picture as :func:`cmyk_jpeg`, stored as YCCK (Adobe's marker, transform 2).

    Pillow cannot write YCCK: the channels are turned by hand, written as if they were CMYK, and the marker is changed.
    """
    cmyk = np.asarray(Image.fromarray(pixels(seed)).convert("CMYK"))
    luma_chroma = np.asarray(Image.fromarray(cmyk[..., :3]).convert("YCbCr"))
    # Pillow inverts what it stores; a reader of YCCK turns YCC to RGB and takes 255 - RGB as the stored CMY.
    stored = np.concatenate([luma_chroma, 255 - cmyk[..., 3:]], axis=-1)
    as_cmyk = Image.frombytes("CMYK", (stored.shape[1], stored.shape[0]), (255 - stored).tobytes())
    written = encode(as_cmyk, "JPEG", quality=95)
    marker = written.index(b"Adobe")
    return written[: marker + 11] + b"\x02" + written[marker + 12 :]


def four_channel_jpeg(seed: int = 0) -> bytes:
    """Return a JPEG file of four channels without Adobe's marker."""
    written = cmyk_jpeg(seed)
    start = written.index(b"Adobe") - 4
    (length,) = struct.unpack(">H", written[start + 2 : start + 4])
    return written[:start] + written[start + 2 + length :]


def grey16_png(width: int = 256, height: int = 16) -> bytes:
    """Return a 16 bit grey PNG: a gradient from 0 to 65,535 along the width."""
    gradient = np.linspace(0, 65535, width).astype(np.uint16)
    return encode(np.tile(gradient, (height, 1)), "PNG")


def rgb16_png(width: int = 256, height: int = 16) -> bytes:
    """Return a 16 bit RGB PNG, which Pillow cannot write: a gradient per channel, red up, green down, blue half."""
    up = np.linspace(0, 65535, width)
    rows = np.stack([up, up[::-1], np.full(width, 32768)], axis=-1).astype(">u2").tobytes()
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    body = zlib.compress((b"\0" + rows) * height)
    chunks = [(b"IHDR", header), (b"IDAT", body), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", zlib.crc32(kind + payload))
        for kind, payload in chunks
    )


def grey_alpha_png(seed: int = 0) -> bytes:
    """Return a PNG with grey and alpha; the left half is transparent."""
    image = Image.fromarray(pixels(seed)).convert("LA")
    image.putalpha(_left_half_transparent())
    return encode(image, "PNG")


def rgba_png(seed: int = 0) -> bytes:
    """Return a PNG with colour and alpha; the left half is transparent."""
    image = Image.fromarray(pixels(seed)).convert("RGBA")
    image.putalpha(_left_half_transparent())
    return encode(image, "PNG")


def palette_png(seed: int = 0) -> bytes:
    """Return a PNG with a palette of 16 colours, the first of them transparent."""
    return encode(Image.fromarray(pixels(seed)).quantize(16), "PNG", transparency=0)


# Pillow's transpose that makes, of an upright picture, the one that EXIF orientation n turns upright again
_STORED_AS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def turned_jpeg(seed: int = 0, orientation: int = 6, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    """Return a JPEG file that shows :func:`pixels`, stored turned, with the EXIF orientation that says so (1 to 8)."""
    upright = Image.fromarray(pixels(seed, width, height))
    stored = upright if orientation == 1 else upright.transpose(_STORED_AS[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(stored, "JPEG", quality=97, subsampling=0, exif=exif)


def subsampled_jpeg(seed: int, subsampling: Literal["444", "422", "440", "420", "411"]) -> bytes:
    """Return a JPEG file with this subsampling of colours; Pillow can write but three of them."""
    return bytes(need("simplejpeg").encode_jpeg(pixels(seed, 100, 75), 90, "RGB", subsampling))


def noise_and_edges(seed: int = 5, width: int = 1000, height: int = 750) -> bytes:
    """Return a JPEG file with smooth parts, noise and hard edges, which show what a resize does."""
    image = pixels(seed, width, height).astype(np.int16)
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, 8], dtype=np.uint64)))
    noisy, striped, lined = (slice(width * k // 10, width * (k + 2) // 10) for k in (3, 5, 8))
    image[:, noisy] += rng.integers(-60, 61, image[:, noisy].shape, dtype=np.int16)
    image[::9, striped] = 0
    image[height // 4 : height // 2 : 2, lined] = 255
    return encode(np.clip(image, 0, 255).astype(np.uint8), "JPEG", quality=92)


def damaged_scan(seed: int = 0) -> bytes:
    """Return a JPEG file with 200 wrong bytes in its pixels: libjpeg warns, fills in what it can, and goes on."""
    good = jpeg(seed)
    scan = good.index(b"\xff\xda") + 14
    return good[:scan] + bytes(byte ^ 0x5A for byte in good[scan : scan + 200]) + good[scan + 200 :]


def awkward() -> dict[str, bytes]:
    """Return pictures that every back-end must decode, by name (pains 37, 38 and 39)."""
    sizes = [(1, 1), (2, 3), (17, 31), (20_000, 10)]
    return {
        **{f"orientation-{number}.jpg": turned_jpeg(3, number, 60, 40) for number in range(1, 9)},
        **{f"{kind}.jpg": subsampled_jpeg(4, kind) for kind in ("444", "422", "440", "420", "411")},
        **{f"{width}x{height}.jpg": jpeg(6, width, height) for width, height in sizes},
        "noise-and-edges.jpg": noise_and_edges(),
        "progressive.jpg": jpeg(1, 100, 75, progressive=True),
        "grey.jpg": grey_jpeg(1),
        "cmyk.jpg": cmyk_jpeg(1),
        "ycck.jpg": ycck_jpeg(1),
        "four-channels.jpg": four_channel_jpeg(1),
        "png-named.jpg": png(1),
        "gzip-wrapped.jpg": gzip.compress(jpeg(1), mtime=0),
        "grey16.png": grey16_png(),
        "rgb16.png": rgb16_png(),
        "grey-alpha.png": grey_alpha_png(1),
        "rgba.png": rgba_png(1),
        "palette.png": palette_png(1),
    }


def broken(seed: int = 0) -> dict[str, bytes]:
    """Return files that are no whole pictures (pain 35)."""
    good = jpeg(seed)
    table = good.index(b"\xff\xc4") + 5
    return {
        "cut-at-half.jpg": good[: len(good) // 2],
        "empty.jpg": b"",
        "zero-bytes.jpg": bytes(len(good)),
        "text.jpg": b"<html><body>404 Not Found</body></html>",
        "wrong-huffman.jpg": good[:table] + b"\xff" * 16 + good[table + 16 :],
    }


def _left_half_transparent() -> Image.Image:
    alpha = np.full((HEIGHT, WIDTH), 255, dtype=np.uint8)
    alpha[:, : WIDTH // 2] = 0
    return Image.fromarray(alpha)
