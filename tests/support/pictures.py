"""Small pictures for tests, most of them those of ``stoker selfcheck``; odd ones that must decode."""

from __future__ import annotations

import gzip

from stoker.selfcheck.pictures import (
    HEIGHT,
    WIDTH,
    broken,
    cmyk_jpeg,
    damaged_scan,
    encode,
    four_channel_jpeg,
    grey16_png,
    grey_alpha_png,
    grey_jpeg,
    jpeg,
    jpeg_with_orientation,
    noise_and_edges,
    palette_png,
    pixels,
    png,
    rgb16_png,
    rgba_png,
    turned_jpeg,
    ycck_jpeg,
)

__all__ = [
    "HEIGHT",
    "WIDTH",
    "broken",
    "cmyk_jpeg",
    "damaged_scan",
    "encode",
    "four_channel_jpeg",
    "grey16_png",
    "grey_alpha_png",
    "grey_jpeg",
    "jpeg",
    "jpeg_with_orientation",
    "noise_and_edges",
    "odd",
    "palette_png",
    "pixels",
    "png",
    "rgb16_png",
    "rgba_png",
    "turned_jpeg",
    "ycck_jpeg",
]


def odd(seed: int = 0) -> dict[str, bytes]:
    """Return pictures of the rare kinds that real data sets hold; every one must decode (pains 37 and 38)."""
    return {
        "progressive.jpg": jpeg(seed, progressive=True),
        "exif6.jpg": jpeg_with_orientation(seed, 6),
        "grey.jpg": grey_jpeg(seed),
        "cmyk.jpg": cmyk_jpeg(seed),
        "ycck.jpg": ycck_jpeg(seed),
        "four-channels.jpg": four_channel_jpeg(seed),
        "png-named.jpg": png(seed),
        "gzip-wrapped.jpg": gzip.compress(jpeg(seed), mtime=0),
        "grey16.png": grey16_png(),
        "rgb16.png": rgb16_png(),
        "grey-alpha.png": grey_alpha_png(seed),
        "rgba.png": rgba_png(seed),
        "palette.png": palette_png(seed),
        "one-pixel.jpg": jpeg(seed, 1, 1),
        "long.jpg": jpeg(seed, 20_000, 10),
    }
