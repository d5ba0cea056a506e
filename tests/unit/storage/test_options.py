"""Options reach obstore, slips are named, secrets are not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stoker.errors import SpecError
from stoker.storage.objects import ObjectStore
from stoker.storage.options import hide_values, obstore_options


def test_keys_are_sorted_in_any_case_and_fsspec_names_are_known() -> None:
    options = obstore_options(
        "s3", {"ENDPOINT_URL": "http://h:1", "anon": "true", "Key": "id", "secret": "s", "connect_timeout": "2s"}, 30.0
    )
    assert options.config == {
        "endpoint": "http://h:1",
        "skip_signature": "true",
        "access_key_id": "id",
        "secret_access_key": "s",
    }
    assert options.client == {"allow_http": True, "timeout": timedelta(seconds=30), "connect_timeout": "2s"}


@pytest.mark.parametrize("text, seconds", [("5s", 5.0), ("250ms", 0.25), ("2m", 120.0), ("7", 7.0), (3, 3.0)])
def test_timeout_bounds_one_request(text: object, seconds: float) -> None:
    options = obstore_options("http", {"timeout": text}, 30.0)
    assert options.timeout_s == seconds
    assert options.client["timeout"] == timedelta(seconds=seconds)


def test_a_timeout_that_is_none() -> None:
    with pytest.raises(SpecError, match="such as '30s'"):
        obstore_options("s3", {"timeout": "soon"}, 30.0)


@pytest.mark.parametrize(
    "scheme, url, name, hint",
    [
        ("s3", "s3://b/x", "regoin", "did you mean 'region'"),
        ("s3", "s3://b/x", "skip_signatures", "did you mean 'skip_signature'"),
        ("gs", "gs://b/x", "service_acount", "did you mean 'service_account'"),
        ("az", "az://c/x", "acount_name", "did you mean 'account_name'"),
        ("http", "http://h/x", "allow_htpp", "did you mean 'allow_http'"),
        ("https", "https://h/x", "region", "known are"),
        ("s3", "s3://b/x", "profil", "did you mean 'profile'"),
        ("s3", "s3://b/x", "rolearn", "did you mean 'role_arn'"),
        ("s3", "s3://b/x", "requester_pay", "did you mean 'requester_pays'"),
        ("gs", "gs://b/x", "check_sum", "did you mean 'checksum'"),
        ("gs", "gs://b/x", "profile", "gs has no option 'profile'"),
        ("az", "az://c/x", "role_arn", "az has no option 'role_arn'"),
    ],
)
def test_unknown_keys_are_errors_with_a_suggestion(scheme: str, url: str, name: str, hint: str) -> None:
    with pytest.raises(SpecError, match=hint) as caught:
        ObjectStore(scheme, {name: "SECRETVALUE"}, 1.0).head(url)
    assert name in str(caught.value)
    assert "SECRETVALUE" not in str(caught.value)


def test_a_wrong_value_is_a_spec_error_without_the_value() -> None:
    with pytest.raises(SpecError, match="storage_options for gs://b") as caught:
        ObjectStore("gs", {"service_account_key": "NOT-JSON-BUT-SECRET"}, 1.0).head("gs://b/x")
    assert "NOT-JSON" not in str(caught.value)


def test_options_do_not_show_secrets() -> None:
    assert "hunter2" not in repr(obstore_options("s3", {"secret_access_key": "hunter2"}, 1.0))
    assert hide_values("the key hunter22 is wrong", {"k": "hunter22"}) == "the key … is wrong"


@pytest.mark.parametrize("url", ["az://container/x", "abfss://container@account.dfs.core.windows.net/x"])
def test_azure_addresses_are_understood(url: str) -> None:
    options = {"account_name": "account", "skip_signature": "true", "endpoint": "http://127.0.0.1:1/account"}
    store = ObjectStore(url.partition("://")[0], options, 1.0)
    with pytest.raises(OSError, match="cannot be reached"):
        store.head(url)


def test_own_keys_do_not_reach_obstore() -> None:
    for family in ("s3", "gs", "az", "http"):
        assert not obstore_options(family, {"Chaos": "slow", "checksum": "auto"}, 1.0).config
    with pytest.raises(SpecError, match="checksum should be"):
        obstore_options("s3", {"checksum": "md5"}, 1.0)


def test_requester_pays_is_an_option_of_s3() -> None:
    assert obstore_options("s3", {"requester_pays": "true"}, 1.0).config == {"request_payer": "true"}


@pytest.mark.parametrize("key", ["endpoint", "endpoint_url"])
@pytest.mark.parametrize("value", ["127.0.0.1:9000", "s3://b", "http://", "https:/x"])
def test_an_endpoint_is_a_web_address(key: str, value: str) -> None:
    with pytest.raises(SpecError, match=r"endpoint should be http\(s\)://host\[:port\], found"):
        obstore_options("s3", {key: value}, 30.0)
