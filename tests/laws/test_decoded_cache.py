"""What must hold of a decoded cache: batches are what they are without one, and what was decoded is not again."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker import ops
from stoker.backends.cpu import decode
from stoker.engine.prepared_place import SUFFIX
from stoker.errors import SampleError
from stoker.testing import assert_equal_batches, assert_exactly_once, assert_resumable
from support.decoded_cache import CROP, DECODE, NUM_SAMPLES, RESIZE, ROWS, epochs, flush, pipeline
from support.loading import load
from support.pictures import jpeg, jpeg_with_orientation, odd
from support.servers import Bucket
from support.shards import make_broken_shard, make_shards, tar_bytes, write_tar

NORMALIZE = ops.Normalize("image", mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))
slow_to_draw = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pictures")
    make_shards(folder, ROWS)
    return f"{folder}/shard-*.tar"


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "place")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often each picture file was opened by the kernel of DecodeImage in this process."""
    counts: Counter[str] = Counter()
    lock = threading.Lock()
    open_picture = decode._open

    def counting(file: Any, *more: Any) -> Any:
        with lock:
            counts["pictures"] += 1
        return open_picture(file, *more)

    monkeypatch.setattr(decode, "_open", counting)
    return counts


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("prefix", [DECODE, RESIZE])
def test_batches_are_those_without_it_bit_by_bit(shards: str, place: str, prefix: Any, num_threads: int) -> None:
    expected = epochs(pipeline(shards, *prefix, *CROP))
    cached = pipeline(shards, *prefix, ops.Cache(place), *CROP)
    for _ in range(2):  # the second loader finds all entries
        assert_equal_batches(epochs(cached, num_threads=num_threads), expected)


@slow_to_draw
@given(
    drawn=st.lists(
        st.sampled_from(
            [
                ops.Resize("image", (30, 44)),
                ops.CenterCrop("image", 32),
                ops.Pad("image", 3),
                ops.RandomResizedCrop("image", 20, interpolation="bicubic"),
                ops.RandomResizedCrop("image", 20, antialias=False),
                ops.RandomHorizontalFlip("image"),
                ops.ColorJitter("image", brightness=0.3),
                ops.RandomErasing("image", p=1.0),
            ]
        ),
        max_size=4,
    ),
    numbers=st.booleans(),
    data=st.data(),
)
def test_wherever_it_stands(
    shards: str, tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], numbers: bool, data: st.DataObject
) -> None:
    steps = [*DECODE, *drawn, ops.CenterCrop("image", 16), *([NORMALIZE] if numbers else [])]
    most = next((index for index, op in enumerate(steps) if op.num_uniforms), len(steps))
    at = data.draw(st.integers(1, most), label="ops before the cache")
    cache = ops.Cache(str(tmp_path_factory.mktemp("place")))
    expected = epochs(pipeline(shards, *steps), 2)
    for _ in range(2):
        assert_equal_batches(epochs(pipeline(shards, *steps[:at], cache, *steps[at:]), 2), expected)


def test_windows_of_odd_pictures_are_those_of_whole_ones(tmp_path: Path, place: str) -> None:
    """Without the cache a crop decodes its window alone: the same pixels, whatever the file."""
    kinds = {name.partition(".")[0]: file for name, file in odd(3).items() if name != "long.jpg"}
    kinds |= {f"exif{turn}": jpeg_with_orientation(turn, turn) for turn in range(1, 9)}
    kinds |= {f"sub{kind}": jpeg(kind, 91, 67, subsampling=kind) for kind in range(3)}
    shard = str(write_tar(tmp_path / "odd.tar", [(name, {"jpg": file}) for name, file in kinds.items()]))
    for strict in (True, False):
        before = ops.DecodeImage("jpg", to="image", strict=strict)
        settings = {"batch_size": 7, "shuffle": False, "lanes": 1}
        expected = epochs(pipeline(shard, before, *CROP, **settings))
        cached = pipeline(shard, before, ops.Cache(place), *CROP, **settings)
        for _ in range(2):
            assert_equal_batches(epochs(cached), expected)


def test_a_second_epoch_decodes_nothing(shards: str, place: str, decoded: Counter[str]) -> None:
    with load(pipeline(shards, *RESIZE, ops.Cache(place), *CROP)) as loader:
        list(loader)
        flush(loader)
        assert decoded["pictures"] >= NUM_SAMPLES
    decoded.clear()
    with load(pipeline(shards, *RESIZE, ops.Cache(place), *CROP)) as loader:
        list(loader)
        stats = loader.stats()["decoded_cache"]
    assert decoded["pictures"] == 0
    assert (stats["misses"], stats["errors"]) == (0, 0)
    assert stats["hits"] > 0
    assert stats["bytes_read"] > 0
    assert "on" in stats["decision"]


def test_entries_are_per_chunk(shards: str, place: str) -> None:
    with load(pipeline(shards, *RESIZE, ops.Cache(place), *CROP)) as loader:
        list(loader)
        flush(loader)
        written = loader.stats()["decoded_cache"]["entries_written"]
    files = list(Path(place).rglob(f"*{SUFFIX}"))
    assert len(files) == written
    assert 0 < written < NUM_SAMPLES


@pytest.mark.parametrize("num_workers", [1, 2])
def test_worker_processes_fill_and_use_it(shards: str, place: str, num_workers: int) -> None:
    expected = epochs(pipeline(shards, *RESIZE, *CROP))
    cached = pipeline(shards, *RESIZE, ops.Cache(place), *CROP)
    assert_equal_batches(epochs(cached, num_workers=num_workers, num_threads=num_workers), expected)
    with load(cached, num_workers=num_workers, num_threads=num_workers) as loader:
        assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
        stats = loader.stats()["decoded_cache"]
    assert stats["hits"] > 0
    assert stats["errors"] == 0


def test_a_bucket_is_filled_and_used_by_others(shards: str, s3_bucket: Bucket) -> None:
    expected = epochs(pipeline(shards, *RESIZE, *CROP))
    cache = ops.Cache(f"{s3_bucket.url}/kept", storage_options=dict(s3_bucket.storage_options))
    cached = pipeline(shards, *RESIZE, cache, *CROP)
    assert_equal_batches(epochs(cached), expected)
    with load(cached) as loader:
        assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
        stats = loader.stats()["decoded_cache"]
    assert (stats["misses"], stats["errors"]) == (0, 0)


def test_it_keeps_the_laws_of_a_loader(shards: str, place: str) -> None:
    cached = pipeline(shards, *RESIZE, ops.Cache(place), *CROP)
    assert_resumable(lambda rank, size: load(cached, rank, size), steps=range(0, 16, 3), epoch=1)
    keys = [f"s{shard:02d}-{row:04d}" for shard, count in enumerate(ROWS) for row in range(count)]
    assert_exactly_once(lambda rank, size: load(cached, rank, size), 3, keys)


def test_a_state_fits_loaders_with_and_without(shards: str, place: str) -> None:
    plain, cached = pipeline(shards, *RESIZE, *CROP), pipeline(shards, *RESIZE, ops.Cache(place), *CROP)
    with load(plain) as loader:
        batches = iter(loader)
        next(batches)
        state, expected = loader.state_dict(), list(batches)
    with load(cached) as loader:
        loader.load_state_dict(state)
        assert_equal_batches(list(loader), expected)


def test_rows_of_several_epochs_come_together(shards: str, place: str) -> None:
    """With drop_last and a large batch, no epoch sees all rows; what it saw is not lost."""
    cached = pipeline(shards, *RESIZE, ops.Cache(place), *CROP, batch_size=13, drop_last=True, lanes=1)
    with load(cached) as loader:
        for _ in range(12):
            list(loader)
        flush(loader)
        assert loader.stats()["decoded_cache"]["hits"] > 0


@pytest.mark.parametrize("on_error", ["replace", "drop"])
def test_bad_samples_stay_bad_for_the_same_reasons(tmp_path: Path, place: str, on_error: Any) -> None:
    make_broken_shard(tmp_path / "broken.tar", 20)
    settings = {"on_error": on_error}
    steps = (*RESIZE, *CROP)

    def seen(under_test: stoker.Pipeline, name: str) -> tuple[list[dict[str, Any]], list[str]]:
        quarantine = tmp_path / name
        with load(under_test, quarantine=quarantine) as loader:
            batches = [batch for _ in range(3) for batch in loader]
            flush(loader)
        return batches, sorted(quarantine.read_text().splitlines())

    expected = seen(pipeline(f"{tmp_path}/broken.tar", *steps, **settings), "plain")
    cached = pipeline(f"{tmp_path}/broken.tar", *RESIZE, ops.Cache(place), *CROP, **settings)
    for name in ("first", "second"):
        found = seen(cached, name)
        assert_equal_batches(found[0], expected[0])
        assert found[1] == expected[1]


def test_the_first_bad_sample_is_raised_with_the_same_text(tmp_path: Path, place: str) -> None:
    make_broken_shard(tmp_path / "broken.tar", 20)
    texts = []
    for steps in ((*RESIZE, *CROP), (*RESIZE, ops.Cache(place), *CROP), (*RESIZE, ops.Cache(place), *CROP)):
        with pytest.raises(SampleError) as caught:
            epochs(pipeline(f"{tmp_path}/broken.tar", *steps, shuffle=False, batch_size=30), 1)
        texts.append(str(caught.value))
    assert len(set(texts)) == 1


def has_even_label(fields: dict[str, Any]) -> bool:
    return int(fields["cls"]) % 2 == 0


def test_what_a_filter_before_it_refuses_stays_refused(shards: str, place: str) -> None:
    keep = ops.Filter(has_even_label, seed_globals=False)
    expected = epochs(pipeline(shards, *RESIZE, keep, *CROP))
    cached = pipeline(shards, *RESIZE, keep, ops.Cache(place), *CROP)
    for _ in range(2):
        with load(cached) as loader:
            assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
            assert loader.stats()["filtered_samples"] > 0
            flush(loader)


def test_a_filter_behind_a_crop_refuses_before_pixels_are_made(tmp_path: Path, place: str) -> None:
    """A picture whose pixels are damaged and whose label is even is filtered, not bad, with the cache as without."""
    broken = make_broken_shard(tmp_path / "broken.tar", 20)
    behind = (*CROP, ops.Filter(has_odd_label, seed_globals=False, on_false="replace"))
    settings = {"on_error": "replace"}
    counts = []
    before = (*DECODE, ops.Label("cls"))
    for steps in ((*before, *behind), *[(*before, ops.Cache(place), *behind)] * 2):
        with load(pipeline(f"{tmp_path}/broken.tar", *steps, **settings)) as loader:
            for _ in range(2):
                list(loader)
            counts.append((loader.stats()["bad_samples"], loader.stats()["filtered_samples"]))
            flush(loader)
    assert counts[0][0] < 2 * len(broken)  # some broken pictures are refused before it shows
    assert counts == counts[:1] * 3


def has_odd_label(fields: dict[str, Any]) -> bool:
    return int(fields["cls"]) % 2 == 1


def spoil(fields: dict[str, Any]) -> dict[str, Any]:
    """Change everything it is given in place, as functions may."""
    fields["image"][:] = fields["image"] // 2 + fields["image"][0, 0]
    fields["note"].append("seen")
    return fields


def annotate(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "note": ["new", 1.5, None]}


def test_functions_behind_it_may_change_what_they_get(shards: str, place: str) -> None:
    before, behind = ops.Map(annotate, seed_globals=False), ops.Map(spoil, seed_globals=False)
    collate = {"note": "list"}
    expected = epochs(pipeline(shards, *RESIZE, before, behind, ops.CenterCrop("image", 20), collate=collate))
    cached = pipeline(shards, *RESIZE, before, ops.Cache(place), behind, ops.CenterCrop("image", 20), collate=collate)
    for _ in range(2):
        assert_equal_batches(epochs(cached), expected)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_budget_is_kept_and_changes_no_batch(shards: str, place: str, share: float) -> None:
    plain = epochs(pipeline(shards, *RESIZE, *CROP))
    whole = NUM_SAMPLES * 40 * 53 * 3
    cached = pipeline(shards, *RESIZE, ops.Cache(place, max_bytes=max(1, int(share * whole))), *CROP)
    with load(cached) as loader:
        assert_equal_batches([batch for _ in range(3) for batch in loader], plain)
        flush(loader)
        stats = loader.stats()["decoded_cache"]
    assert sum(path.stat().st_size for path in Path(place).rglob(f"*{SUFFIX}")) <= share * whole
    assert stats["declined"] > 0
    assert (stats["entries_written"] > 0) == (share > 0)


def test_other_ops_and_other_versions_are_other_entries(shards: str, place: str) -> None:
    pipelines = (
        pipeline(shards, *RESIZE, ops.Cache(place), *CROP),
        pipeline(shards, *DECODE, ops.Resize("image", 41), ops.Cache(place), *CROP),
        pipeline(shards, *RESIZE, ops.Cache(place, version=1), *CROP),
    )
    for number, under_test in enumerate(pipelines, start=1):
        epochs(under_test, 1)
        assert len({path.parent for path in Path(place).rglob(f"*{SUFFIX}")}) == number


def test_another_crop_behind_it_finds_the_same_entries(shards: str, place: str, decoded: Counter[str]) -> None:
    epochs(pipeline(shards, *RESIZE, ops.Cache(place), *CROP), 1)
    decoded.clear()
    epochs(pipeline(shards, *RESIZE, ops.Cache(place), ops.CenterCrop("image", 16), batch_size=7, seed=5), 1)
    assert decoded["pictures"] == 0


def test_data_that_are_written_anew_are_decoded_anew(tmp_path: Path, place: str) -> None:
    """The same names and sizes, other pixels: the version of the file says so."""
    keys = [f"{number:04d}" for number in range(12)]
    path = tmp_path / "a.tar"
    found = []
    for content in (b"1", b"2"):
        path.write_bytes(tar_bytes([(key, {"cls": content}) for key in keys]))
        os.utime(path, (int(content), int(content)))
        under_test = pipeline(str(path), ops.Label("cls"), ops.Cache(place), ops.Select("cls"))
        found.append(np.concatenate([batch["cls"] for batch in epochs(under_test, 2)]))
    assert set(found[0]) == {1}
    assert set(found[1]) == {2}


def test_a_data_set_of_one_sample_a_chunk_has_no_decoded_cache(shards: str, place: str) -> None:
    with load(pipeline(shards, *RESIZE, ops.Cache(place), *CROP, shuffle="full")) as loader:
        list(loader)
        assert "one sample each" in loader.stats()["decoded_cache"]["decision"]


def test_auto_measures_and_says_what_it_decided(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caplog.set_level("INFO", "stoker")
    expected = epochs(pipeline(shards, *RESIZE, *CROP))
    with load(pipeline(shards, *RESIZE, ops.Cache(), *CROP)) as loader:
        assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
        flush(loader)
        decision = loader.stats()["decoded_cache"]["decision"]
    assert decision.startswith("decoded cache o")
    assert "samples/s expected" in decision
    assert caplog.text.count("samples/s expected") == 1
    assert (tmp_path / "stoker" / "decoded").is_dir()


def toil(fields: dict[str, Any]) -> dict[str, Any]:
    """Take CPU as a costly decode does."""
    begun = time.thread_time()
    while time.thread_time() - begun < 0.01:
        np.sort(np.arange(5000)[::-1])
    return fields


def test_auto_keeps_what_costs_much(shards: str, tmp_path: Path) -> None:
    steps = (*RESIZE, ops.Map(toil, seed_globals=False))
    expected = epochs(pipeline(shards, *steps, *CROP))
    cached = pipeline(shards, *steps, ops.Cache(), *CROP)
    with load(cached, cache=str(tmp_path)) as loader:
        assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
        flush(loader)
        assert loader.stats()["decoded_cache"]["decision"].startswith("decoded cache on: ")
    with load(cached, cache=str(tmp_path)) as loader:
        assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
        stats = loader.stats()["decoded_cache"]
    assert "it has entries" in stats["decision"]
    assert stats["hits"] > 0


def test_auto_leaves_what_costs_little(shards: str, tmp_path: Path) -> None:
    steps = (ops.Label("cls"), ops.Select("cls"))
    expected = epochs(pipeline(shards, *steps, ops.Map(toil, seed_globals=False)))
    with load(pipeline(shards, *steps, ops.Cache(), ops.Map(toil, seed_globals=False)), cache=str(tmp_path)) as loader:
        assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
        flush(loader)
        stats = loader.stats()["decoded_cache"]
    assert stats["decision"].startswith("decoded cache off: ")
    assert stats["hits"] == stats["entries_written"] == 0
    assert not list(tmp_path.rglob(f"*{SUFFIX}"))


def test_auto_takes_the_loaders_cache_folder(shards: str, tmp_path: Path) -> None:
    with load(pipeline(shards, *RESIZE, ops.Cache(), *CROP), cache=str(tmp_path / "nvme")) as loader:
        list(loader)
    assert (tmp_path / "nvme" / "decoded").is_dir()
