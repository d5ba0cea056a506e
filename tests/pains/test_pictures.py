"""Pictures come out as a viewer shows them, as near to Pillow as is promised (pains 37, 38, 39), on each back-end."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torchvision.transforms import v2

import stoker
from stoker import ops
from stoker.errors import SampleError
from stoker.randomness import uniforms
from support import pictures
from support.loading import batches_of, load, tar_of

pytestmark = pytest.mark.usefixtures("backend")

EXACT_MEAN, FAST_MEAN = 1.5, 4.0
"""Mean absolute differences to Pillow, of 255, that the presets promise; plain bilinear is another filter."""

Pixels = NDArray[Any]


def decoded(folder: Path, files: dict[str, bytes], *steps: Any, **options: Any) -> dict[str, Pixels]:
    """The pictures of one tar, by key, in batches of one."""
    path = tar_of(folder / "a.tar", {key: {"jpg": content} for key, content in files.items()})
    chain = [ops.DecodeImage("jpg", to="image", **options), *steps]
    batches = batches_of(stoker.Pipeline(stoker.tar(path), chain, batch_size=1))
    return {batch["__key__"][0]: batch["image"][0] for batch in batches}


def difference(found: Pixels, expected: Pixels) -> float:
    """Mean absolute difference, of 255."""
    assert found.shape == expected.shape
    return float(np.abs(found.astype(np.float64) - expected).mean())


def turned(orientation: int) -> bytes:
    """A JPEG that shows the same 60 × 40 picture as the others, stored turned, with the tag that says so."""
    return pictures.turned_jpeg(3, orientation, 60, 40)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int) -> None:
    """Pain 37: each of the eight orientations comes out as a viewer shows it."""
    found = decoded(tmp_path, {"a": turned(orientation)})["a"]
    assert difference(found, pictures.pixels(3, 60, 40)) < 2


@pytest.mark.parametrize("orientation", range(2, 9))
def test_crops_lie_in_the_upright_picture(tmp_path: Path, orientation: int) -> None:
    """Pain 37: a random crop of a turned file shows the same part as that of the upright one, in every epoch."""
    upright, other = (_crops(tmp_path / str(number), turned(number)) for number in (1, orientation))
    assert len(upright) == 8
    assert all(difference(crop, same) < 2 for crop, same in zip(other, upright, strict=True))
    assert difference(upright[0], upright[1]) > 4


def _crops(folder: Path, content: bytes) -> list[Pixels]:
    path = tar_of(folder / "a.tar", {"a": {"jpg": content}})
    steps = [
        ops.DecodeImage("jpg", to="image"),
        ops.RandomResizedCrop("image", (20, 30)),
        ops.RandomHorizontalFlip("image"),
    ]
    with load(stoker.Pipeline(stoker.tar(path), steps, batch_size=1)) as loader:
        return [batch["image"][0] for _ in range(8) for batch in loader]


def as_pillow(content: bytes, mode: str = "RGB") -> Pixels:
    """What Pillow makes of a picture it can read."""
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert(mode))


def test_every_odd_picture_is_decoded(tmp_path: Path) -> None:
    """Pain 38: each of the rare kinds in real data sets comes out in the mode that was asked for; none is lost."""
    odd = pictures.odd(2)
    found = decoded(tmp_path, {name.partition(".")[0]: content for name, content in odd.items()})
    assert len(found) == len(odd)
    assert all(image.dtype == np.uint8 and image.shape[2] == 3 for image in found.values())
    for name in ("progressive", "exif6", "grey", "cmyk", "png-named", "gzip-wrapped", "rgba", "grey-alpha", "palette"):
        content = next(content for file, content in odd.items() if file.startswith(f"{name}."))
        assert difference(found[name], as_pillow(content)) < 1.5, name
    assert found["one-pixel"].shape == (1, 1, 3)
    assert found["long"].shape == (10, 20_000, 3)


def test_four_channel_jpegs_agree(tmp_path: Path) -> None:
    """Pain 38: a picture stored as CMYK, YCCK, or four channels without Adobe's marker has the colours of Pillow."""
    files = {
        "cmyk": pictures.cmyk_jpeg(2),
        "ycck": pictures.ycck_jpeg(2),
        "bare": pictures.four_channel_jpeg(2),
    }
    found = decoded(tmp_path, files)
    for key, content in files.items():
        assert difference(found[key], as_pillow(content)) < 1.5, key
    assert difference(found["cmyk"], pictures.pixels(2)) < 6
    assert difference(found["ycck"], pictures.pixels(2)) < 6


def test_16_bits_are_kept_or_scaled(tmp_path: Path) -> None:
    """Pain 38: 16 bit pictures stay 16 bit when asked, and are scaled, not clamped, to 8."""
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)
    files = {"grey": pictures.grey16_png(), "rgb": pictures.rgb16_png()}
    kept = decoded(tmp_path / "16", files, mode="RGB", dtype="uint16")
    assert kept["grey"].dtype == np.uint16
    np.testing.assert_array_equal(kept["grey"][0, :, 0], ramp)
    np.testing.assert_array_equal(kept["rgb"][0, :, 0], ramp)
    np.testing.assert_array_equal(kept["rgb"][0, ::-1, 1], ramp)
    scaled = decoded(tmp_path / "8", files)
    for key in files:
        assert difference(scaled[key][0, :, 0], ramp / 257) <= 1
        assert scaled[key][0, :, 0].max() == 255


@pytest.mark.parametrize("mode, channels", [("L", 1), ("RGB", 3), ("RGBA", 4)])
def test_pictures_of_all_kinds_share_a_batch(tmp_path: Path, mode: Any, channels: int) -> None:
    """Pain 38: once they are of one size, odd pictures stand in one batch, whatever mode is asked for."""
    odd = pictures.odd(2)
    path = tar_of(tmp_path / "a.tar", {str(index): {"jpg": content} for index, content in enumerate(odd.values())})
    steps = [ops.DecodeImage("jpg", to="image", mode=mode), ops.Resize("image", (8, 8))]
    (batch,) = batches_of(stoker.Pipeline(stoker.tar(path), steps, batch_size=len(odd)))
    assert batch["image"].shape == (len(odd), 8, 8, channels)


def test_conversions_are_counted(tmp_path: Path) -> None:
    """Pain 38: what had other colours or depths than asked for is counted by kind; what needed no change is not."""
    odd = {name.replace(".", "-"): {"jpg": file} for name, file in pictures.odd().items()}
    content = {**odd, "plain": {"jpg": pictures.jpeg(1)}}
    chain = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 8)]
    pipeline = stoker.Pipeline(stoker.tar(tar_of(tmp_path / "a.tar", content)), chain, batch_size=4)
    with load(pipeline) as loader:
        assert sum(len(batch["__key__"]) for batch in loader) == len(content)
        counted = loader.stats()["conversions"]
    assert counted == {
        "L to RGB": 1,
        "CMYK to RGB": 3,
        "L to RGB, uint16 to uint8": 1,
        "uint16 to uint8": 1,
        "LA to RGB": 1,
        "RGBA to RGB": 2,
    }


def test_a_picture_that_is_too_large_is_refused_before_decoding(tmp_path: Path) -> None:
    """Pain 38: a limit on pixels gives an error with the size that was found."""
    with pytest.raises(SampleError, match=r"20.?000.*10"):
        decoded(tmp_path, {"long": pictures.jpeg(0, 20_000, 10)}, max_pixels=100_000)


def preset(folder: Path, name: str, **settings: Any) -> list[Pixels]:
    """Three epochs of one picture through a preset."""
    path = tar_of(folder / "a.tar", {"a": {"jpg": pictures.noise_and_edges(), "cls": b"1"}})
    with load(stoker.Pipeline.preset(name, path, batch_size=1, **settings)) as loader:
        return [batch["image"][0] for _ in range(3) for batch in loader]


@pytest.mark.parametrize("fast, limit", [(False, EXACT_MEAN), (True, FAST_MEAN)])
def test_the_eval_preset_matches_torchvision(tmp_path: Path, fast: bool, limit: float) -> None:
    """Pain 39: ``imagenet_eval`` gives torchvision's pixels on Pillow images, within its tolerance."""
    transform = v2.Compose([v2.Resize(256), v2.CenterCrop(224)])
    plain = v2.Compose([v2.PILToTensor(), v2.Resize(256, antialias=False), v2.CenterCrop(224)])
    image = Image.open(io.BytesIO(pictures.noise_and_edges()))
    expected = np.asarray(plain(image)).transpose(1, 2, 0) if fast else np.asarray(transform(image))
    for found in preset(tmp_path, "imagenet_eval", fast=fast):
        assert difference(found, expected) <= limit


@pytest.mark.parametrize("fast, limit", [(False, EXACT_MEAN), (True, FAST_MEAN)])
def test_the_train_preset_matches_torchvision(tmp_path: Path, fast: bool, limit: float) -> None:
    """Pain 39: ``imagenet_train`` gives, in its own windows, the pixels of torchvision's ``resized_crop``."""
    image = v2.functional.pil_to_tensor(Image.open(io.BytesIO(pictures.noise_and_edges())))
    crop = ops.RandomResizedCrop("image", 224)
    sample = np.array([0])
    for epoch, found in enumerate(preset(tmp_path, "imagenet_train", fast=fast, drop_last=False)):
        window = crop.window(750, 1000, uniforms(0, epoch, sample, 1, crop.num_uniforms)[0].tolist())
        resized = v2.functional.resized_crop(image, *window, [224, 224], antialias=not fast)
        if uniforms(0, epoch, sample, 2, 1)[0, 0] < 0.5:
            resized = v2.functional.horizontal_flip(resized)
        assert difference(found, resized.permute(1, 2, 0).numpy()) <= limit
