"""Credentials that end in the middle of a run are renewed before that, and stay where they are (pain 50)."""

from __future__ import annotations

import json
import logging
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import AccessError, TransientError
from stoker.storage.open import open_store
from stoker.storage.retry import RetryPolicy
from stoker.testing import keys_of
from stoker_service import addresses
from stoker_service.dispatcher.server import DispatcherServer
from stoker_service.options import DispatcherOptions, WorkerOptions
from stoker_service.worker.server import WorkerServer
from support.cluster import free_port
from support.gated_s3 import gated
from support.loading import load
from support.recorder import HOST, recording
from support.servers import Bucket
from support.shards import samples, tar_bytes
from support.sts import Sts, run_sts

ROLE = "arn:aws:iam::123456789012:role/reader"
NUM_SAMPLES = 60
PICTURES = tar_bytes(samples([NUM_SAMPLES])[0])
BASE = {"access_key_id": "AKIABASE", "secret_access_key": "HIDDEN-BASE", "role_arn": ROLE}
IMPATIENT = RetryPolicy(max_attempts=2, attempt_s=5.0, first_wait_s=0.0)


@pytest.fixture
def bucket(s3_bucket: Bucket) -> Bucket:
    s3_bucket.put("train/a.tar", PICTURES)
    return s3_bucket


@pytest.fixture(params=[{}], ids=[""])
def sts(request: pytest.FixtureRequest) -> Iterator[Sts]:
    with run_sts(**request.param) as running:
        yield running


@pytest.fixture
def options(bucket: Bucket, sts: Sts) -> Iterator[dict[str, str]]:
    """A role's, whose credentials a gate in front of S3 looks at."""
    with gated(bucket.server.endpoint, sts.refusal) as endpoint:
        yield {"endpoint": endpoint, "region": "us-east-1", "sts_endpoint": sts.url, **BASE}


def over(bucket: Bucket, options: dict[str, str], folder: Path) -> stoker.Pipeline:
    source = stoker.tar(
        f"{bucket.url}/train/a.tar",
        chunk_bytes=16384,
        manifest=str(folder / "index.parquet"),
        storage_options=options,
    )
    return stoker.Pipeline(source, [ops.Label("cls")], batch_size=10, shuffle=True)


@pytest.mark.parametrize(
    "sts", [{"validity_s": 2.0, "failing": frozenset({2, 4, 5})}], indirect=True, ids=["the second renewal fails"]
)
def test_a_run_outlives_its_credentials(
    bucket: Bucket, sts: Sts, options: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Pain 50: valid for 2 s, renewed several times, some renewals fail: every sample of every epoch arrives."""
    num_epochs, end_s = 0, time.monotonic() + 60.0
    with caplog.at_level(logging.WARNING, "stoker"), load(over(bucket, options, tmp_path)) as loader:
        while len(sts.used) < 4:
            assert sorted(keys_of(loader)) == [f"s00-{row:04d}" for row in range(NUM_SAMPLES)]
            num_epochs += 1
            assert time.monotonic() < end_s, sts
    assert num_epochs > 1
    assert len(sts.asked) > len(sts.given) >= 4
    assert "could not be renewed: AWS answered HTTP 403 AccessDenied" in caplog.text
    assert "HIDDEN" not in caplog.text
    assert {form["RoleArn"] for form in sts.asked} == {ROLE}
    assert set(sts.signers) == {"AKIABASE"}


@pytest.mark.parametrize("sts", [{"failing": frozenset({1, 2, 3})}], indirect=True, ids=[""])
def test_no_credentials_at_the_start_are_an_error_at_once(bucket: Bucket, sts: Sts, options: dict[str, str]) -> None:
    """Pain 50: it names whose credentials and the cause, and no secret."""
    with pytest.raises(AccessError, match="AccessDenied") as caught:
        open_store(bucket.url, options, policy=IMPATIENT).read(f"{bucket.url}/train/a.tar", 0, 10)
    assert ROLE in str(caught.value)
    assert "HIDDEN" not in str(caught.value)
    assert len(sts.asked) == 1


@pytest.mark.parametrize("sts", [{"validity_s": 1.0}], indirect=True, ids=[""])
def test_credentials_that_end_and_cannot_be_renewed_name_the_cause(
    bucket: Bucket, sts: Sts, options: dict[str, str]
) -> None:
    """Pain 50: the old ones are used to their end; then the error says why, not "bad request"."""
    url = f"{bucket.url}/train/a.tar"
    store = open_store(url, options, policy=IMPATIENT)
    store.read(url, 0, 10)
    sts.is_down = True
    with pytest.raises(TransientError, match="credentials could not be renewed: AWS answered HTTP 403") as caught:
        any(bytes(store.read(url, 0, 10)) != PICTURES[:10] for _ in range(100_000))
    assert "HIDDEN" not in str(caught.value)
    sts.is_down = False
    patient = open_store(url, options)
    assert bytes(patient.read(url, 0, 10)) == PICTURES[:10]


def test_credentials_that_the_store_ends_early_are_renewed(bucket: Bucket, sts: Sts, options: dict[str, str]) -> None:
    """Pain 50: the store's clock may differ from ours, and rights may be taken back."""
    url = f"{bucket.url}/train/a.tar"
    store = open_store(url, options)
    store.read(url, 0, 10)
    (key_id,) = sts.given
    sts.given[key_id] = 0.0
    assert bytes(store.read(url, 0, 10)) == PICTURES[:10]
    assert len(sts.given) == 2


def test_secrets_stay_in_their_process(
    bucket: Bucket, options: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Pain 50: not in what a service is sent, not in states, texts, logs, nor in what is pickled of a store."""
    pipeline = over(bucket, options, tmp_path)
    with caplog.at_level(logging.DEBUG), load(pipeline) as loader:
        batches = iter(loader)
        next(batches)
        seen = [
            pipeline.to_json(),
            json.dumps(loader.state_dict()),
            repr(pipeline),
            repr(loader),
            str(loader.stats()),
            caplog.text,
        ]
    for text in seen:
        assert "HIDDEN" not in text
        assert "ASIAKEY" not in text
    assert ROLE in pipeline.to_json()
    store: Any = open_store(bucket.url, options)
    with pytest.raises(TypeError):
        pickle.dumps(store)


def test_no_secret_is_sent_to_a_service(
    bucket: Bucket, sts: Sts, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pain 50: of all bytes between trainer, dispatcher and worker none is secret; the worker takes the role itself."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWORKER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "HIDDEN-WORKER")
    dispatcher = DispatcherServer(DispatcherOptions(port=0, beat_s=0.1, forget_s=10.0))
    dispatcher.start()
    with recording() as control, recording(free_port(HOST)) as stream:
        control.forward_to, stream.forward_to = addresses.parse(str(dispatcher.address)).port, stream.port
        url = f"stoker://{HOST}:{control.port}"
        worker = WorkerServer(WorkerOptions(url, port=stream.port, advertise=HOST, num_threads=1, arena=False))
        worker.start()
        try:
            with load(over(bucket, options, tmp_path), service=url) as loader:
                assert sorted(keys_of(loader)) == [f"s00-{row:04d}" for row in range(NUM_SAMPLES)]
        finally:
            worker.stop()
            dispatcher.stop()
    assert ROLE.encode() in stream.seen
    for sent in (control.seen, stream.seen):
        assert sent
        for secret in (b"HIDDEN", b"ASIAKEY", b"AKIABASE", b"AKIAWORKER"):
            assert secret not in sent
    assert set(sts.signers) == {"AKIAWORKER"}
