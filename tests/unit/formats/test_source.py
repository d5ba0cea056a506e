from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoker.errors import SpecError
from stoker.formats.source import Source, files, from_json, parquet, tar, to_json
from stoker.secret_names import is_secret

SECRETS = {
    "region": "eu-central-1",
    "aws_secret_access_key": "hush",
    "session_token": "hush",
    "account_key": "hush",
    "sas_key": "hush",
    "key": "hush",
    "password": "hush",
}


@pytest.mark.parametrize(
    "source",
    [
        tar("a-{0..3}.tar", "b*.tar", keys="last-dot", chunk_bytes=5, manifest="m.parquet"),
        tar("a.tar", storage_options={"region": "x"}),
        files("/data", extensions=["jpg"], labels="folders", classes=["a", "b"]),
        files("list.csv"),
        parquet("a-*.parquet", "b.parquet", columns=["jpg", "cls"], manifest="m.parquet"),
        parquet("a.parquet"),
    ],
)
def test_json_and_back(source: Source) -> None:
    assert from_json(json.loads(json.dumps(to_json(source)))) == source


def test_json_says_what_it_is() -> None:
    found = to_json(tar("a.tar"))
    assert found == {"source": "tar", "patterns": ["a.tar"], "keys": "first-dot", "chunk_bytes": 1 << 20}


@pytest.mark.parametrize(
    "source",
    [
        tar("a.tar", storage_options=SECRETS),
        files("/d", storage_options=SECRETS),
        parquet("a.parquet", storage_options=SECRETS),
    ],
)
def test_secrets_are_in_neither_json_nor_repr(source: Source) -> None:
    for text in (json.dumps(to_json(source)), repr(source), str(source)):
        assert "hush" not in text
        assert "eu-central-1" in text
    assert to_json(source)["storage_options"] == {"region": "eu-central-1"}


@pytest.mark.parametrize(
    "name", ["region", "endpoint", "allow_http", "requester_pays", "keyring", "bucket_name", "skip_signature"]
)
def test_what_is_no_secret(name: str) -> None:
    assert not is_secret(name)


def test_paths_are_welcome(tmp_path: Path) -> None:
    assert tar(tmp_path / "a.tar").patterns == (str(tmp_path / "a.tar"),)
    assert files(tmp_path).url == str(tmp_path)
    assert parquet(tmp_path / "a.parquet").patterns == (str(tmp_path / "a.parquet"),)


def test_repr_shows_what_was_chosen() -> None:
    assert repr(tar("a.tar")) == "Tar(patterns=('a.tar',))"
    assert repr(files("/d", labels="none")) == "Files(url='/d', labels='none')"


@pytest.mark.parametrize(
    "make, text",
    [
        (tar, "at least one pattern"),
        (lambda: tar("a.tar", chunk_bytes=0), "chunk_bytes must be at least 1"),
        (lambda: tar("a.tar", chunk_byte=1), "did you mean 'chunk_bytes'"),
        (lambda: tar("a.tar", keys="dot"), "first-dot"),
        (parquet, "at least one pattern"),
        (lambda: parquet(["a.parquet"]), r"parquet\(\*urls\)"),  # type: ignore[arg-type]
        (lambda: parquet("a.parquet", columns=()), "would give no field"),
        (lambda: parquet("a.parquet", columns=("a", "a")), "names a column twice"),
        (lambda: files(""), "needs a URL"),
        (lambda: files("/d", extensions=()), "would find nothing"),
        (lambda: files("/d", classes=("a", "a")), "names a class twice"),
        (lambda: from_json({"source": "zip"}), "unknown source 'zip'; known: files, parquet, tar"),
        (lambda: from_json({}), "unknown source None"),
    ],
)
def test_mistakes(make: object, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make()  # type: ignore[operator]
