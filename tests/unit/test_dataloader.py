"""Arguments that would let nothing through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import compat
from stoker.errors import SpecError
from support.shards import make_shards


@pytest.mark.parametrize(
    "wrong",
    [{"num_threads": 0}, {"read_bytes": -1}, {"prefetch_bytes": -1}, {"timeout_s": 0}, {"num_workers": -1}],
    ids=str,
)
def test_an_impossible_limit_is_refused_by_its_name(tmp_path: Path, wrong: dict[str, Any]) -> None:
    make_shards(tmp_path, [3], images=False)
    pipeline = stoker.Pipeline(stoker.tar(tmp_path / "*.tar"), [], batch_size=1)
    with pytest.raises(SpecError, match=f"{next(iter(wrong))} is"):
        stoker.DataLoader(pipeline, **wrong)


def test_what_is_no_pipeline_is_refused_with_what_to_do() -> None:
    with pytest.raises(SpecError, match=r"expected a stoker.Pipeline, found str; for a URL take"):
        stoker.DataLoader("x.tar")  # type: ignore[arg-type]  # the mistake that is tested


@pytest.mark.parametrize("url", ["host:4300", "http://host:4300", ""])
def test_a_service_that_is_no_address_is_refused_with_an_example(tmp_path: Path, url: str) -> None:
    make_shards(tmp_path, [3], images=False)
    pipeline = stoker.Pipeline(stoker.tar(tmp_path / "*.tar"), [], batch_size=1)
    with pytest.raises(SpecError, match="expected an address such as stoker://host:4300"):
        stoker.DataLoader(pipeline, service=url)


@pytest.mark.parametrize("own", [{"num_threads": 2}, {"read_bytes": 1 << 20}], ids=str)
def test_what_the_workers_decide_is_not_taken_from_a_trainer(tmp_path: Path, own: dict[str, Any]) -> None:
    make_shards(tmp_path, [3], images=False)
    pipeline = stoker.Pipeline(stoker.tar(tmp_path / "*.tar"), [], batch_size=1)
    with pytest.raises(SpecError, match=f"{next(iter(own))}=.*the workers have their own"):
        stoker.DataLoader(pipeline, service="stoker://127.0.0.1:1", **own)


def test_one_name_for_pipelines_and_torch_datasets() -> None:
    one_name: Any = stoker.DataLoader  # for type checkers it is that of pipelines; stoker.compat has the other
    loader = one_name([1, 2, 3], batch_size=2)
    assert type(loader) is compat.DataLoader
    assert isinstance(loader, one_name)
    assert not isinstance([], one_name)
    assert [batch.tolist() for batch in loader] == [[1, 2], [3]]

    class Mine(stoker.DataLoader):
        """A subclass for pipelines."""

    mine: Any = Mine
    assert not isinstance(loader, mine)
    with pytest.raises(SpecError, match=r"derive it from stoker\.compat\.DataLoader"):
        mine([1, 2, 3])


def test_the_torch_loader_refuses_a_pipeline_with_what_to_do(tmp_path: Path) -> None:
    pipeline: Any = stoker.Pipeline(stoker.tar(tmp_path / "*.tar"), [], batch_size=1)
    with pytest.raises(SpecError, match=r"take stoker\.DataLoader\(pipeline\)"):
        compat.DataLoader(pipeline)


def test_a_broken_number_of_workers_is_refused_in_torchs_words() -> None:
    wrong: Any = 1.5
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        compat.DataLoader([1, 2, 3], num_workers=wrong)  # type: ignore[arg-type]
