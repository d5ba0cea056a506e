"""The self-check finds what is wrong, and finds nothing where nothing is."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest
from PIL import Image, ImageOps

from stoker import Backend, ops
from stoker.backends.registry import compile_ops
from stoker.backends.tolerances import TOLERANCES, Limit
from stoker.errors import SampleError
from stoker.selfcheck import Report, making, pictures, pillow, run
from stoker.selfcheck.chains import FIELD, LONG, chains
from stoker.selfcheck.compare import judge
from stoker.selfcheck.contestants import contestants

BY_NAME = {tolerance.chain: tolerance for tolerance in TOLERANCES}


@pytest.fixture(scope="module")
def report() -> Report:
    return run()


def test_what_is_installed_here_keeps_to_what_is_published(report: Report) -> None:
    assert report.is_good, [finding for finding in report.findings if not finding.is_good]
    compared = Counter((finding.backend, finding.reference) for finding in report.findings)
    num_pillow = sum(tolerance.pillow is not None for tolerance in TOLERANCES)
    assert compared == {("cpu", "Pillow"): num_pillow, ("dali, CPU", "cpu"): len(TOLERANCES)}
    assert [absent.name for absent in report.absent] == ["dali, GPU"]
    assert {"numpy", "pillow", "stoker"} <= set(report.versions)


def test_every_chain_has_a_tolerance_and_all_pictures_but_those_it_names(report: Report) -> None:
    assert [chain.name for chain in chains()] == list(BY_NAME)
    whole = len(pictures.awkward()) + len(pictures.broken()) + 1
    left_out = {chain.name: len(chain.leaves_out) for chain in chains()}
    for finding in report.findings:
        if finding.backend != "cpu":
            assert finding.num_pictures == whole - left_out[finding.chain]
        else:  # Pillow has no 16 bits, of which there are two
            assert finding.num_pictures == len(pictures.awkward()) - 2 - left_out[finding.chain]


def test_a_smaller_tolerance_is_exceeded() -> None:
    tolerance = BY_NAME["bilinear"]
    assert run(tolerances=[tolerance]).is_good
    small = type(tolerance)(tolerance.chain, Limit(), Limit(0.01, 1), tolerance.gpu, tolerance.mixed)
    report = run(tolerances=[small])
    assert not report.is_good
    assert all(finding.problems for finding in report.findings)


@pytest.mark.parametrize("backend", ["cpu", "dali"])
def test_another_filter_is_found(backend: str) -> None:
    """Pain 39: a resize without anti-aliasing, and one with another interpolation, are beyond the tolerance."""
    files = {"noise-and-edges.jpg": pictures.noise_and_edges()}
    decode = ops.DecodeImage(FIELD, to="image")
    expected = making.make_all(compile_ops([decode, ops.Resize("image", (168, 224))], "cpu"), files)
    limit = BY_NAME["bilinear"].dali
    for resize, is_good in (
        (ops.Resize("image", (168, 224)), True),
        (ops.Resize("image", (168, 224), antialias=False), False),
        (ops.Resize("image", (168, 224), interpolation="bicubic"), False),
    ):
        found = making.make_all(compile_ops([decode, resize], backend), files)
        assert judge("resize", backend, "cpu", limit, expected, found).is_good == is_good


@pytest.mark.parametrize("backend", ["cpu", "dali"])
@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "tolerant"])
def test_the_broken_ones_are_bad_and_the_awkward_ones_good(backend: str, is_strict: bool) -> None:
    """Pain 35: each verdict, so that equal verdicts say something."""
    program = compile_ops([ops.DecodeImage(FIELD, to="image", strict=is_strict)], backend)
    broken = {**pictures.broken(), "damaged-scan.jpg": pictures.damaged_scan()}
    made = making.make_all(program, {**pictures.awkward(), **broken})
    bad = {name for name, outcome in made.items() if isinstance(outcome, SampleError)}
    assert bad == (set(broken) if is_strict else set(pictures.broken()))


def test_awkward_pictures_are_the_same_each_time() -> None:
    assert pictures.awkward() == pictures.awkward()
    assert LONG in pictures.awkward()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_pictures_show_the_upright_one(orientation: int) -> None:
    file = pictures.turned_jpeg(3, orientation, 60, 40)
    stored = Image.open(io.BytesIO(file))
    assert stored.size == ((60, 40) if orientation <= 4 else (40, 60))
    shown = np.asarray(ImageOps.exif_transpose(stored)).astype(int)
    assert np.abs(shown - pictures.pixels(3, 60, 40)).mean() < 2


def test_pillow_takes_the_numbers_of_the_same_picture() -> None:
    """Flips and windows are those of ours, whichever pictures Pillow leaves out before."""
    names = ["grey16.png", "444.jpg", "progressive.jpg"]
    files = {name: pictures.awkward()[name] for name in names}
    chain = [ops.DecodeImage(FIELD, to="image"), ops.RandomResizedCrop("image", 32), ops.RandomHorizontalFlip("image")]
    program = compile_ops(chain, "cpu")
    theirs, ours = pillow.make_all(program, files), making.make_all(program, files)
    assert list(theirs) == names[1:]
    assert judge("crops", "cpu", "Pillow", Limit(0.4, 2), theirs, ours).is_good


def test_with_a_gpu_dali_is_compared_in_each_place() -> None:
    here, absent = contestants("cuda:1", "")
    assert absent == []
    assert [(each.name, each.place, each.is_measured) for each in here] == [
        ("dali, CPU", "dali", True),
        ("dali, ops on cuda:1", "gpu", False),
        ("dali, all on cuda:1", "mixed", False),
    ]
    cpu, with_cpu_decode, whole = (each.backend for each in here)
    assert cpu == Backend("dali")
    assert (with_cpu_decode.place_of("DecodeImage"), with_cpu_decode.place_of("Resize")) == ("cpu", "mixed")
    assert (whole.place_of("DecodeImage"), whole.device_index) == ("mixed", 1)
