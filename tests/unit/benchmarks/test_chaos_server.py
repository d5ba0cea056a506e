"""The server that behaves as a cloud's: right where nothing is to go wrong, wrong as its profile says, counted."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from hashlib import md5
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stoker.errors import AccessError, NotFoundError, SpecError, TransientError
from stoker.storage.objects import ObjectStore
from stoker.storage.retry import ThrottledError
from stoker_bench.chaos import listing
from stoker_bench.chaos.__main__ import main
from stoker_bench.chaos.listing import Entry, Page
from stoker_bench.chaos.running import ChaosServer, run_chaos
from support import programs
from support.chaos import CloudBucket

BODY = bytes(range(256)) * 40
NAMES = ["a/0", "a/1", "a/b/2", "a/ü &<3>", "c"]
URL = "s3://any/a/0"
TIMEOUT_S = 0.3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(BODY)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[ChaosServer]:
    with run_chaos(folder) as running:
        yield running


def store_at(server: ChaosServer, **options: str) -> ObjectStore:
    """One attempt per call, by the real client."""
    given = {"endpoint": server.endpoint, "region": "us-east-1", "skip_signature": "true", **options}
    return ObjectStore("s3", given, TIMEOUT_S)


def ask(
    server: ChaosServer, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[HTTPResponse, bytes]:
    """One request as it is written here."""
    address = urlsplit(server.endpoint)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=10)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_a_folder_is_served_as_a_bucket(server: ChaosServer) -> None:
    store = store_at(server)
    found = store.head(URL)
    assert (found.size_bytes, found.version) == (len(BODY), md5(BODY).hexdigest())
    assert bytes(store.read(URL, 100, 300)) == BODY[100:300]
    with pytest.raises(NotFoundError):
        store.head("s3://any/missing")
    assert sorted(found.url for found in store.list("s3://any/")) == sorted(f"s3://any/{name}" for name in NAMES)
    assert [found.url for found in store.list("s3://any/", max_depth=0)] == ["s3://any/c"]
    assert bytes(store.read("s3://any/a/ü &<3>", 0, 10)) == BODY[:10]


@pytest.mark.parametrize(
    "header, status, body",
    [
        ("bytes=0-0", 206, BODY[:1]),
        ("bytes=10-", 206, BODY[10:]),
        ("bytes=-5", 206, BODY[-5:]),
        ("bytes=10000-99999999", 206, BODY[10000:]),
        ("bytes=-", 200, BODY),
        ("lines=1-2", 200, BODY),
    ],
)
def test_ranges_are_those_of_http(server: ChaosServer, header: str, status: int, body: bytes) -> None:
    answer, got = ask(server, "GET", "/any/a/0", Range=header)
    assert (answer.status, got) == (status, body)


def test_what_cannot_be_served_is_refused(server: ChaosServer, folder: Path) -> None:
    (folder.parent / "outside").write_bytes(b"secret")
    assert ask(server, "GET", "/any/a/0", Range=f"bytes={len(BODY)}-")[0].status == 416
    assert ask(server, "GET", "/any/../../outside")[0].status == 404
    assert ask(server, "GET", "/any/%2e%2e/outside")[0].status == 404
    assert ask(server, "GET", f"/any/{folder.parent}/outside")[0].status == 404
    assert ask(server, "GET", "/any/a%00")[0].status == 404
    assert ask(server, "PUT", "/any/new", "x")[0].status == 405
    assert ask(server, "GET", "/any/a/0", **{"If-Match": '"other"'})[0].status == 412
    assert ask(server, "GET", "/any/a/0", **{"If-Match": f'"{md5(BODY).hexdigest()}"'})[0].status == 200


def test_links_are_served(server: ChaosServer, folder: Path) -> None:
    (folder.parent / "outside").write_bytes(b"elsewhere")
    (folder / "link").symlink_to(folder.parent / "outside")
    assert bytes(store_at(server).read("s3://any/link", 0, 4)) == b"else"
    assert "s3://any/link" in [found.url for found in store_at(server).list("s3://any/")]


def test_a_changed_file_has_another_etag(server: ChaosServer, folder: Path) -> None:
    before = store_at(server).head(URL)
    (folder / "a/0").write_bytes(b"new")
    after = store_at(server).head(URL)
    assert (after.size_bytes, after.version) == (3, md5(b"new").hexdigest())
    assert before.version != after.version


def test_listings_come_in_pages(server: ChaosServer) -> None:
    server.behave("page=2")
    assert len(list(store_at(server).list("s3://any/"))) == len(NAMES)
    assert server.counts().requests(method="GET", prefix="/any") == 3


@pytest.mark.parametrize(
    "profile, error, message",
    [
        ("cut=1,at=0", TransientError, "cut on the way"),
        ("cut=1,at=70", TransientError, "cut on the way"),
        ("cut=1", TransientError, "cut on the way"),
        ("empty=1", TransientError, "another range"),
        ("stall=1", TransientError, "no complete answer in time"),
        ("fail=1", TransientError, "HTTP 500 InternalError"),
        ("latency_ms=5000", TransientError, "."),
        ("rate=0.001,burst=0", ThrottledError, "HTTP 503 SlowDown"),
        ("rate=0.001,throttle=429", ThrottledError, "HTTP 429"),
    ],
)
def test_what_goes_wrong_is_what_the_client_calls_so(
    server: ChaosServer, profile: str, error: type[Exception], message: str
) -> None:
    store = store_at(server)
    server.behave(profile)
    if "rate" in profile:
        store.head(URL)  # the one that is let through
    with pytest.raises(error, match=message):
        store.read(URL, 0, 200)
    assert server.counts().faults or "latency" in profile


def test_one_byte_is_flipped_once(server: ChaosServer) -> None:
    server.behave("flip=1,at=4")
    store = store_at(server)
    first, second = bytes(store.read(URL, 10, 200)), bytes(store.read(URL, 10, 200))
    assert [index for index in range(190) if first[index] != BODY[10 + index]] == [4]
    assert second == BODY[10:200]
    assert server.counts().faults == {"flip": 1}


@pytest.mark.parametrize("fault", ["cut", "empty", "stall", "fail"])
def test_a_listing_that_breaks_is_no_shorter_listing(server: ChaosServer, fault: str) -> None:
    server.behave(f"{fault}=1")
    with pytest.raises(TransientError):
        list(store_at(server).list("s3://any/"))


def test_expired_credentials_are_refused_until_new_ones_come(server: ChaosServer) -> None:
    server.refuse("OLD")
    with pytest.raises(AccessError, match="ExpiredToken"):
        store_at(server, skip_signature="false", access_key_id="OLD", secret_access_key="x").read(URL, 0, 5)
    new = store_at(server, skip_signature="false", access_key_id="NEW", secret_access_key="x")
    assert bytes(new.read(URL, 0, 5)) == BODY[:5]
    server.behave("expire_s=0.000001")
    new.head(URL)  # seen for the first time
    with pytest.raises(AccessError, match="ExpiredToken"):
        new.read(URL, 0, 5)
    answer, _ = ask(server, "GET", "/any/a/0", Authorization="Bearer token")
    assert answer.status == 200
    answer, _ = ask(server, "GET", "/any/a/0", Authorization="Bearer token")
    assert answer.status == 401
    assert server.counts().faults == {"expired": 3}


def test_requests_and_bytes_are_counted(server: ChaosServer) -> None:
    store = store_at(server)
    store.head(URL)
    store.read(URL, 0, 100)
    store.read("s3://any/c", 5, 10)
    list(store.list("s3://any/a/"))
    assert server.counts().origin_bytes() == 105
    assert server.counts().origin_bytes("/any/a/") == 100
    assert server.counts().requests() == 4
    assert server.counts().requests(method="HEAD", status=200) == 1
    assert server.counts().most_in_flight == 1
    server.counts().reset()
    assert (server.counts().requests(), server.counts().origin_bytes()) == (0, 0)


def test_the_admin_endpoint_shows_counts_and_changes_the_profile(server: ChaosServer) -> None:
    store_at(server).read(URL, 0, 100)
    shown = json.loads(ask(server, "GET", "/-/counts")[1])
    assert (shown["requests"], shown["origin_bytes"]) == (1, 100)
    assert shown["lines"] == [{"method": "GET", "path": "/any/a/0", "status": 206, "requests": 1, "body_bytes": 100}]
    assert ask(server, "PUT", "/-/profile", "fail=1")[0].status == 204
    with pytest.raises(TransientError):
        store_at(server).read(URL, 0, 100)
    answer, text = ask(server, "PUT", "/-/profile", "gsc")
    assert (answer.status, b"did you mean 'gcs'" in text) == (400, True)
    assert ask(server, "PUT", "/-/refused", "A B")[0].status == 204
    assert server.chaos.refused == {"A", "B"}
    assert ask(server, "DELETE", "/-/counts")[0].status == 204
    assert server.counts().requests() == 0
    assert ask(server, "GET", "/-/nothing")[0].status == 404


def test_a_client_that_hangs_up_is_no_request_in_flight(server: ChaosServer) -> None:
    server.behave("stall=1,stall_s=3600")
    with pytest.raises(TransientError):
        store_at(server).read(URL, 0, 100)
    assert server.counts().requests(status=499) == 1


def test_a_server_behind_that_is_gone_is_a_bad_gateway() -> None:
    with run_chaos("http://127.0.0.1:9", "none") as server:
        assert ask(server, "GET", "/any/a")[0].status == 502


def test_a_server_behind_answers_through_it(cloud: CloudBucket) -> None:
    for name in NAMES:
        cloud.put(name, BODY)
    store = ObjectStore(cloud.url.partition("://")[0], cloud.options(), 10)
    cloud.behave("page=2")
    found = {item.url.removeprefix(f"{cloud.url}/"): item for item in store.list(f"{cloud.url}/")}
    assert sorted(found) == sorted(NAMES)
    for name, item in found.items():
        assert (item.size_bytes, item.version) == (len(BODY), md5(BODY).hexdigest())
        assert store.head(item.url).version == item.version
        assert bytes(store.read(item.url, 7, 5000, item.version)) == BODY[7:5000], name
    assert cloud.counts().origin_bytes() == len(NAMES) * 4993
    with pytest.raises(NotFoundError):
        store.head(f"{cloud.url}/missing")


def test_a_listing_is_whole_without_pages_too(cloud: CloudBucket) -> None:
    cloud.put_many({f"{index:02d}": b"x" for index in range(20)})
    store = ObjectStore(cloud.url.partition("://")[0], cloud.options(), 10)
    assert {item.version for item in store.list(f"{cloud.url}/")} == {md5(b"x").hexdigest()}
    assert len(list(store.list(f"{cloud.url}/"))) == 20


def test_what_is_written_through_it_arrives(s3_cloud: CloudBucket) -> None:
    store = ObjectStore("s3", s3_cloud.options(), 10)
    store.write(f"{s3_cloud.url}/new", BODY)
    assert bytes(store.read(f"{s3_cloud.url}/new", 0, len(BODY))) == BODY
    s3_cloud.behave("fail=1")
    with pytest.raises(TransientError):
        store.write(f"{s3_cloud.url}/new", BODY)


def test_a_missing_folder_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), run_chaos(tmp_path / "missing"):
        pass
    with pytest.raises(SpecError), run_chaos(tmp_path, "gsc"):
        pass


def test_the_process_prints_its_address_and_ends_when_told(folder: Path) -> None:
    command = [sys.executable, "-m", "stoker_bench.chaos", str(folder), "--profile", "none,seed=3"]
    with subprocess.Popen(command, env=programs.environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            endpoint = process.stdout.readline().strip()
            with urllib.request.urlopen(f"{endpoint}/any/a/0", timeout=10) as answer:
                assert answer.read() == BODY
        finally:
            process.terminate()
        assert process.wait(30) == 0


def test_the_process_says_what_is_wrong_with_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path), "--profile", "gsc"])
    assert "did you mean 'gcs'?" in capsys.readouterr().err


# -- listings ----------------------------------------------------------------------------------------------------------


def test_pages_follow_one_another_in_order() -> None:
    entries, token, shown = [Entry(name) for name in "dbaec"], "", []
    while True:
        page = listing.page_of(entries, token, 2)
        shown.append("".join(entry.name for entry in page.entries))
        if not (token := page.token):
            break
    assert shown == ["ab", "cd", "e"]


def test_a_page_as_xml_can_be_cut_further() -> None:
    entries = (*(Entry(name, 3, '"e"') for name in ("a", "b", "c&")), Entry("d/", is_folder=True))
    xml = listing.to_xml("bucket", "", 1000, Page(entries, ""))
    assert listing.cut_to_page(xml, "", 4) == xml
    first = listing.cut_to_page(xml, "", 3)
    assert b"<Key>c&amp;</Key>" in first.replace(b"ns0:", b"")
    assert b"chaos:c&amp;" in first
    second = listing.cut_to_page(xml, "chaos:c&", 3)
    assert b"d/" in second
    assert b"chaos:" not in second


def test_names_below_a_delimiter_are_one_folder() -> None:
    assert listing.grouped(["a/1", "a/2", "b", "c/d/e"], "", "/") == (["b"], ["a/", "c/"])
    assert listing.grouped(["a/1", "a/2/3", "b"], "a/", "/") == (["a/1"], ["a/2/"])
    assert listing.grouped(["a/1", "b"], "a", "") == (["a/1"], [])
