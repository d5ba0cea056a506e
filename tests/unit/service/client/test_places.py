"""Relative paths on their way to a worker, which runs in another folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import stoker
from stoker_service.client.places import absolute, with_absolute_paths


def test_relative_paths_become_absolute_and_all_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("data/train-{00..07}.tar") == f"{tmp_path}/data/train-{{00..07}}.tar"
    assert absolute("pictures/") == f"{tmp_path}/pictures/"
    for place in ("/data/x.tar", "s3://bucket/x.tar", "file:///data/x.tar", "memory://x"):
        assert absolute(place) == place


def test_a_pipeline_names_the_same_data_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for source, named in ((stoker.tar("a.tar", "b.tar"), "b.tar"), (stoker.files("pictures"), "pictures")):
        pipeline = with_absolute_paths(stoker.Pipeline(source, [], batch_size=2))
        assert f"{tmp_path}/{named}" in pipeline.to_json()
