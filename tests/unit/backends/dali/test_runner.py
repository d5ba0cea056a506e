"""What goes through DALI together, and whose fault it is when a run fails."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker import Backend, ops
from stoker.backends.dali.graph import Form, Graph, Item
from stoker.backends.dali.runner import Runner
from stoker.backends.program import Program
from stoker.backends.registry import compile_ops
from stoker.errors import SampleError, SampleOrigin
from stoker.ops.geometry import Window
from stoker.ops.op import Op
from stoker.sample import RawSample, Sample
from support import pictures

LAX = ops.DecodeImage("image", strict=False)
STRICT = ops.DecodeImage("image")
CROP = ops.RandomResizedCrop("image", 16)


def samples(program: Program, files: Sequence[bytes]) -> list[Sample]:
    draws = np.random.default_rng(0).random((len(files), program.num_uniforms))
    return [
        program.begin(
            RawSample(SampleOrigin("mem://a", row, str(row)), {"image": file}),
            index=row,
            seed=0,
            epoch=0,
            uniforms=draws[row],
        )
        for row, file in enumerate(files)
    ]


def made(
    chain: Sequence[Op], files: Sequence[bytes], backend: str | Backend = "dali"
) -> list[NDArray[Any] | SampleError]:
    """Each picture, or why there is none, made together."""
    program = compile_ops(chain, backend)
    pictures_ = [sample.fields["image"] for sample in samples(program, files)]
    outs = [np.zeros(picture.shape, picture.dtype) for picture in pictures_]
    writes = [picture.writer(out) for picture, out in zip(pictures_, outs, strict=True)]
    if program.gatherer is not None:
        verdicts = program.gatherer.make(writes)
    else:
        verdicts = [_tried(write) for write in writes]
    return [error or out for out, error in zip(outs, verdicts, strict=True)]


def _tried(write: Any) -> SampleError | None:
    try:
        write()
    except SampleError as error:
        return error
    return None


def refused_by_dali(seed: int = 0) -> bytes:
    """A file with three wrong bytes between two markers, which Pillow skips, and of which DALI makes nothing."""
    file = pictures.jpeg(seed, 200, 150)
    tables = file.find(b"\xff\xdb")
    return file[:tables] + b"\x00\x11\x22" + file[tables:]


@pytest.mark.parametrize("strict", [True, False])
def test_a_group_is_made_as_each_alone(strict: bool) -> None:
    chain = [ops.DecodeImage("image", strict=strict), CROP]
    files = [pictures.jpeg(seed, 40 + 7 * seed, 90 - 3 * seed) for seed in range(20)]
    together = made(chain, files, Backend("dali", rows=6))
    program = compile_ops(chain, "dali")
    alone = [sample.fields["image"].array() for sample in samples(program, files)]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("where", [[0], [7], [3, 4], list(range(9))])
def test_bad_pictures_are_told_from_their_neighbours(strict: bool, where: list[int]) -> None:
    """The verdicts are those of the cpu back-end, text by text; the others come out as without them."""
    chain = [ops.DecodeImage("image", strict=strict), CROP]
    good = [pictures.jpeg(seed, 90, 70) for seed in range(9)]
    bad = [refused_by_dali(), pictures.damaged_scan(), pictures.jpeg(1, 200, 150)[:900]]
    files = [bad[row % 3] if row in where else good[row] for row in range(9)]
    found, expected = made(chain, files), made(chain, files, "cpu")
    without = made(chain, good)
    for row in range(9):
        if isinstance(expected[row], SampleError):
            assert str(found[row]) == str(expected[row])
        elif row in where:
            assert np.abs(np.asarray(found[row]).astype(int) - np.asarray(expected[row])).mean() < 1
        else:
            np.testing.assert_array_equal(found[row], without[row])


def test_dali_refuses_what_these_tests_take_for_refused() -> None:
    """Else they would not see that a run fails."""
    graph = Graph(Form("file", "uint8", (), entry_on_gpu=False), 2, 1, None)
    file = np.frombuffer(refused_by_dali(), np.uint8)
    good = np.frombuffer(pictures.jpeg(0, 200, 150), np.uint8)
    window = Window(0, 0, 150, 200)
    with pytest.raises(RuntimeError):
        graph.run([Item(good, window, ()), Item(file, window, ())])


def test_damage_under_strict_is_found_by_libjpeg_not_by_dali() -> None:
    """DALI's decoder reads on over wrong bytes in the scan."""
    assert isinstance(made([STRICT, CROP], [pictures.damaged_scan()])[0], SampleError)


def test_fields_are_made_at_a_stop_all_together() -> None:
    """RandAugment is not DALI's: before it, pictures become arrays; one that cannot stays, to fail when looked at."""
    chain = [LAX, CROP, ops.RandAugment("image"), ops.RandomHorizontalFlip("image", p=1.0)]
    program = compile_ops(chain, "dali")
    assert program.stops == (2,)
    waiting = samples(program, [pictures.jpeg(1), pictures.jpeg(2)[:600], pictures.jpeg(3)])
    assert program.gatherer is not None
    program.gatherer.make_fields(waiting)
    assert [isinstance(sample.fields["image"], np.ndarray) for sample in waiting] == [True, False, True]
    draws = np.full(program.num_uniforms, 0.5)
    program.go_on(waiting[0], draws, 0)
    with pytest.raises(SampleError, match="row 1"):
        program.go_on(waiting[1], draws, 0)


def test_what_is_only_decoded_is_not_made_at_a_stop() -> None:
    """A function may ignore the picture, and what comes behind it decodes a window of it alone."""
    chain = [STRICT, ops.Map(lambda sample: sample), CROP]
    program = compile_ops(chain, "dali")
    (waiting,) = samples(program, [pictures.jpeg(1)])
    assert program.gatherer is not None
    program.gatherer.make_fields([waiting])
    assert not isinstance(waiting.fields["image"], np.ndarray)


def test_graphs_that_are_kept_are_bounded() -> None:
    program = compile_ops([ops.DecodeImage("image", mode="unchanged"), ops.CenterCrop("image", 9)], "dali")
    runner = program.gatherer
    assert isinstance(runner, Runner)
    for pad in range(20):
        chain = [STRICT, ops.Pad("image", 1, fill=pad)]
        (sample,) = samples(compile_ops(chain, "dali"), [pictures.jpeg(1)])
        runner.make([sample.fields["image"].writer(np.empty(sample.fields["image"].shape, np.uint8))])
    assert len(runner._graphs_of_thread()) <= 8


def test_a_fork_makes_graphs_of_its_own() -> None:
    """Those of its parent have lost their threads."""
    program = compile_ops([STRICT, CROP], "dali")
    (sample,) = samples(program, [pictures.jpeg(1)])
    expected = sample.fields["image"].array()

    def child() -> None:
        os._exit(0 if (sample.fields["image"].array() == expected).all() else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0


def test_a_fork_leaves_pipelines_to_its_parent_that_were_garbage_when_it_forked() -> None:
    """DALI's pipelines lie in circles: only the collector ends them, which in a fork would wait for ever."""
    graph = Graph(Form("file", "uint8", (), entry_on_gpu=False), 2, 1, None)
    graph.run([Item(np.frombuffer(pictures.jpeg(), np.uint8), Window(0, 0, 5, 5), ())])
    gc.collect()
    gc.disable()
    try:
        del graph
        process = multiprocessing.get_context("fork").Process(target=gc.collect)
        process.start()
    finally:
        gc.enable()
    process.join(60)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0
