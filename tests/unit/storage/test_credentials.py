"""Credentials are renewed early, in the background, and serve until they expire."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import AccessError, MissingDependencyError, SpecError, TransientError
from stoker.secret_names import is_secret
from stoker.storage.credentials import LOOK_AGAIN_S, Credentials, Keys, back_off, credentials_of, renew_after
from stoker.storage.identity import IDENTITY_KEYS, Identity
from stoker.storage.options import obstore_options
from support.sts import run_sts

ROLE = "arn:aws:iam::123456789012:role/reader"
WAIT_S = 20.0


class Source:
    """Gives keys that are valid for an hour of a clock that the test moves; fails while ``error`` is set."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.error: Exception | None = None
        self.num_asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def clock(self) -> float:
        return self.now_s

    def fetch(self) -> Keys:
        assert self.may_answer.wait(WAIT_S)
        self.num_asked += 1
        if self.error is not None:
            raise self.error
        return Keys(f"ID{self.num_asked}", "HIDDEN", "HIDDEN-TOKEN", self.now_s + 3600.0)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def credentials(source: Source) -> Credentials:
    return Credentials("role x", source.fetch, clock=source.clock, uniform=lambda: 0.5)


def settle(credentials: Credentials) -> None:
    """Wait for the renewal that is under way."""
    if credentials._running is not None:
        credentials._running.exception(WAIT_S)


def test_they_are_fetched_once_and_renewed_before_they_expire(credentials: Credentials, source: Source) -> None:
    for _ in range(100):
        assert credentials()["access_key_id"] == "ID1"
    source.now_s += 3600 * 0.64
    credentials.ensure()
    assert source.num_asked == 1
    source.now_s += 3600 * 0.02
    credentials.ensure()
    settle(credentials)
    assert credentials()["access_key_id"] == "ID2"
    assert credentials.num_renewed == 2


def test_a_renewal_keeps_nobody_waiting(credentials: Credentials, source: Source) -> None:
    credentials.ensure()
    source.now_s += 3000.0
    source.may_answer.clear()
    for _ in range(10):
        assert credentials()["access_key_id"] == "ID1"
    source.may_answer.set()
    settle(credentials)
    assert credentials()["access_key_id"] == "ID2"
    assert source.num_asked == 2


def test_the_old_ones_serve_while_renewals_fail_and_failures_are_spaced(
    credentials: Credentials, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    credentials.ensure()
    source.error = TransientError("STS is down")
    source.now_s += 3000.0
    for _ in range(590):
        source.now_s += 1.0
        assert credentials()["access_key_id"] == "ID1"
        settle(credentials)
    assert 10 < source.num_asked < 40
    assert "STS is down; the old ones hold" in caplog.text
    source.now_s += 100.0
    with pytest.raises(TransientError, match="credentials could not be renewed: STS is down"):
        credentials.ensure()
    source.error = None
    source.now_s += LOOK_AGAIN_S
    assert credentials()["access_key_id"].startswith("ID")


def test_none_at_the_start_is_an_access_error_that_names_the_cause(credentials: Credentials, source: Source) -> None:
    source.error = TransientError("STS is down")
    with pytest.raises(AccessError, match="no credentials of role x: STS is down"):
        credentials.ensure()


def test_credentials_that_come_expired_make_one_look_at_the_clock(credentials: Credentials, source: Source) -> None:
    source.now_s -= 7200.0
    late = source.now_s + 10_000.0
    slow = Credentials("role x", source.fetch, clock=lambda: late)
    for _ in range(10):
        with pytest.raises(TransientError, match="this machine's clock"):
            slow.ensure()
    assert source.num_asked == 1


def test_many_threads_that_find_none_fetch_once(credentials: Credentials, source: Source) -> None:
    source.may_answer.clear()
    threads = [threading.Thread(target=credentials.ensure) for _ in range(8)]
    for thread in threads:
        thread.start()
    source.may_answer.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert source.num_asked == 1


def test_a_refusal_by_the_store_fetches_newer_ones_once_a_minute(credentials: Credentials, source: Source) -> None:
    credentials.ensure()
    source.now_s += 10.0
    assert credentials.refused()
    assert credentials()["access_key_id"] == "ID2"
    source.now_s += 10.0
    assert not credentials.refused()
    source.now_s += LOOK_AGAIN_S
    source.error = AccessError("no")
    assert not credentials.refused()


def test_obstore_is_told_an_early_end_so_that_it_asks_again(credentials: Credentials, source: Source) -> None:
    assert credentials()["expires_at"].timestamp() == source.now_s + LOOK_AGAIN_S
    source.now_s += 3590.0
    source.error = AccessError("no")
    assert credentials()["expires_at"].timestamp() == source.now_s + 10.0


@pytest.mark.parametrize("spread", [pickle.dumps, copy.copy, copy.deepcopy])
def test_they_stay_in_their_process(credentials: Credentials, spread: Callable[[Any], Any]) -> None:
    credentials.ensure()
    with pytest.raises(TypeError, match="stay in their process"):
        spread(credentials)
    assert "HIDDEN" not in repr(credentials) + repr(credentials._keys) + str(vars(credentials))


@given(st.floats(0.1, 1e6), st.floats(0, 1, exclude_max=True))
def test_renewals_are_early_and_spread(validity_s: float, uniform: float) -> None:
    assert 0.5 * validity_s <= renew_after(validity_s, uniform) <= 0.8 * validity_s


@given(st.integers(1, 500), st.floats(0, 1, exclude_max=True))
def test_back_off_grows_and_is_bounded(num_failures: int, uniform: float) -> None:
    assert 0 < back_off(num_failures, uniform) <= LOOK_AGAIN_S


class TestIdentity:
    def test_keys_of_an_identity_do_not_reach_obstore(self) -> None:
        given = {"role_arn": ROLE, "external_id": "e", "key": "AKIA", "secret": "HIDDEN", "region": "eu-west-1"}
        options = obstore_options("s3", given, 1.0)
        assert options.config == {"region": "eu-west-1"}
        assert options.identity == Identity(
            role_arn=ROLE, external_id="e", access_key_id="AKIA", secret_access_key="HIDDEN", region="eu-west-1"
        )
        assert "HIDDEN" not in repr(options)

    def test_static_keys_alone_are_obstores(self) -> None:
        options = obstore_options("s3", {"key": "AKIA", "secret": "HIDDEN"}, 1.0)
        assert options.identity is None
        assert options.config == {"access_key_id": "AKIA", "secret_access_key": "HIDDEN"}

    @pytest.mark.parametrize(
        "given, expected",
        [
            ({"external_id": "e"}, "expected role_arn"),
            ({"web_identity_token_file": "/x"}, "expected role_arn"),
            ({"profile": "p", "web_identity_token_file": "/x"}, "needs role_arn"),
            ({"role_arn": ROLE, "access_key_id": "AKIA"}, "secret_access_key together"),
            ({"profile": "p", "access_key_id": "AKIA", "secret_access_key": "HIDDEN"}, "give one"),
        ],
    )
    def test_what_does_not_go_together_is_named(self, given: dict[str, str], expected: str) -> None:
        with pytest.raises(SpecError, match=expected) as caught:
            Identity(**given)
        assert "HIDDEN" not in str(caught.value)

    def test_names_are_no_secrets_and_workers_are_told_them(self) -> None:
        assert not any(is_secret(name) for name in IDENTITY_KEYS)
        assert all(is_secret(name) for name in ("access_key_id", "secret_access_key", "session_token", "token", "key"))


class TestAws:
    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config, keys = tmp_path / "config", tmp_path / "credentials"
        config.write_text("[profile data]\nregion = eu-north-1\nendpoint_url = http://127.0.0.1:9\n", encoding="ascii")
        keys.write_text("[data]\naws_access_key_id = AKIADATA\naws_secret_access_key = HIDDEN\n", encoding="ascii")
        for name, value in {
            "AWS_CONFIG_FILE": str(config),
            "AWS_SHARED_CREDENTIALS_FILE": str(keys),
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)

    def test_a_profile_brings_keys_region_and_endpoint(self, tmp_path: Path) -> None:
        options = obstore_options("s3", {"profile": "data"}, 1.0)
        assert options.config == {"region": "eu-north-1", "endpoint": "http://127.0.0.1:9"}
        assert options.client["allow_http"] is True
        assert obstore_options("s3", {"profile": "data", "region": "x"}, 1.0).config["region"] == "x"
        assert options.identity is not None
        credentials = credentials_of(options.identity)
        assert credentials()["access_key_id"] == "AKIADATA"
        assert credentials_of(options.identity) is credentials

    def test_a_profile_that_is_not_there(self) -> None:
        with pytest.raises(AccessError, match="no profile 'nobody'"):
            obstore_options("s3", {"profile": "nobody"}, 1.0)

    def test_a_profile_without_keys(self, tmp_path: Path) -> None:
        (tmp_path / "credentials").write_text("", encoding="ascii")
        with pytest.raises(AccessError, match="profile 'data' names none"):
            credentials_of(Identity(profile="data", region="empty")).ensure()

    def test_a_role_is_asked_for_by_profile_with_its_external_id(self) -> None:
        with run_sts() as sts:
            identity = Identity("data", ROLE, "session", "external", sts_endpoint=sts.url)
            assert credentials_of(identity)()["access_key_id"] == "ASIAKEY0001"
        (form,) = sts.asked
        assert (form["RoleArn"], form["RoleSessionName"], form["ExternalId"]) == (ROLE, "session", "external")
        assert sts.signers == ["AKIADATA"]

    def test_a_role_is_asked_for_by_the_token_in_a_file(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("JWT-1\n", encoding="ascii")
        with run_sts() as sts:
            identity = Identity(role_arn=ROLE, web_identity_token_file=str(token), sts_endpoint=sts.url)
            assert credentials_of(identity)()["access_key_id"] == "ASIAKEY0001"
        assert sts.asked[0]["WebIdentityToken"] == "JWT-1"
        assert sts.signers == [""]
        with pytest.raises(AccessError, match="cannot be read: No such file"):
            credentials_of(Identity(role_arn=ROLE, web_identity_token_file=f"{token}.gone")).ensure()

    def test_nobody_vouches_for_a_role(self, tmp_path: Path) -> None:
        with pytest.raises(AccessError, match="nothing vouches for role"):
            credentials_of(Identity(role_arn=ROLE, region="us-east-2")).ensure()

    def test_an_sts_that_does_not_answer(self) -> None:
        identity = Identity("data", ROLE, sts_endpoint="http://127.0.0.1:1")
        with pytest.raises(AccessError, match=r"AWS cannot be asked for role .* by profile 'data'"):
            credentials_of(identity).ensure()

    def test_without_botocore_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "botocore" else found(name))
        with pytest.raises(MissingDependencyError, match=r"stoker\[aws\]"):
            credentials_of(Identity(role_arn=ROLE, region="nowhere"))
