"""Options of the service's processes: what is refused, and what the command line makes of them."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from stoker.backends.options import Backend
from stoker.errors import SpecError
from stoker.storage.cache import CacheOptions
from stoker_service import addresses
from stoker_service.addresses import Address
from stoker_service.arguments import DEFAULT_DEVICE, DEFAULT_MEMORY, as_arguments, size
from stoker_service.commands import dispatcher as dispatcher_command
from stoker_service.commands import worker as worker_command
from stoker_service.options import (
    DEFAULT_DEVICE_BYTES,
    DEFAULT_MEMORY_BYTES,
    DispatcherOptions,
    UpOptions,
    WorkerOptions,
    read_options,
)

HERE = "stoker://127.0.0.1:4300"


@pytest.mark.parametrize(
    "kind, named, expected",
    [
        (DispatcherOptions, {"port": 65536}, r"port=65536: expected a port from 1 to 65535, or 0"),
        (DispatcherOptions, {"port": -1}, r"port=-1"),
        (DispatcherOptions, {"http_port": 70000}, r"http_port=70000"),
        (DispatcherOptions, {"host": ""}, r"host='': expected a host name"),
        (DispatcherOptions, {"host": "http://x"}, r"host='http://x'"),
        (DispatcherOptions, {"beat_s": 0.0}, r"beat_s=0: expected 0.01 to 60 seconds"),
        (DispatcherOptions, {"beat_s": math.nan}, r"beat_s=nan"),
        (DispatcherOptions, {"beat_s": 10.0, "forget_s": 29.0}, r"forget_s=29: .* take 30 or more"),
        (WorkerOptions, {"dispatcher": "tcp://x:1"}, r"dispatcher='tcp://x:1': expected stoker://HOST:PORT"),
        (WorkerOptions, {"dispatcher": HERE, "num_threads": 0}, r"num_threads=0: expected 1 to 1024; this machine has"),
        (WorkerOptions, {"dispatcher": HERE, "max_processes": -1}, r"max_processes=-1: expected 0 to 4096"),
        (WorkerOptions, {"dispatcher": HERE, "memory_bytes": 512}, r"memory_bytes=512: .* it counts bytes"),
        (WorkerOptions, {"dispatcher": HERE, "read_bytes": 0}, r"read_bytes=0"),
        (WorkerOptions, {"dispatcher": HERE, "drain_s": math.inf}, r"drain_s=inf"),
        (WorkerOptions, {"dispatcher": HERE, "worker_id": "a b"}, r"worker_id='a b': expected up to 63 letters"),
        (WorkerOptions, {"dispatcher": HERE, "advertise": "0.0.0.0"}, r"advertise='0.0.0.0': expected one host"),
        (WorkerOptions, {"dispatcher": HERE, "cache_bytes": 1 << 30}, r"cache_bytes=1073741824: .* give cache_dir"),
        (WorkerOptions, {"dispatcher": HERE, "cache_dir": ""}, r"cache_dir='': expected a folder of the local disk"),
        (WorkerOptions, {"dispatcher": HERE, "cache_ram_bytes": 512}, r"cache_ram_bytes=512: .* it counts bytes"),
        (UpOptions, {"cache_dir": "/x", "cache_bytes": 9}, r"cache_bytes=9: .* it counts bytes"),
        (
            WorkerOptions,
            {"dispatcher": HERE, "backend": "dalli"},
            r"no back-end is named 'dalli'; known: auto, cpu, dali",
        ),
        (WorkerOptions, {"dispatcher": HERE, "device": "gpu"}, r"device is 'gpu'; expected cpu, cuda, or cuda:"),
        (WorkerOptions, {"dispatcher": HERE, "placement": "mixed"}, r"placement 'mixed' needs a GPU"),
        (WorkerOptions, {"dispatcher": HERE, "placement": "Resise=cpu"}, r"no op is named 'Resise'"),
        (WorkerOptions, {"dispatcher": HERE, "placement": "Resize=cpu,mixed"}, r"no op is named 'mixed'"),
        (
            WorkerOptions,
            {"dispatcher": HERE, "device_bytes": 0},
            r"device_bytes is 0; expected a whole number, at least 1",
        ),
        (UpOptions, {"engine": "ray", "device": "cuda:1"}, r"device='cuda:1': Ray chooses each worker's GPU"),
        (UpOptions, {"num_workers": 0}, r"num_workers=0: expected 1 or more"),
        (UpOptions, {"engine": "Ray"}, r"engine='Ray': .* did you mean 'ray'\?"),
        (UpOptions, {"num_workers": 9, "http_port": 65530}, r"http_port=65530: expected room for 9 workers"),
    ],
)
def test_a_wrong_option_is_named_with_what_was_expected(kind: Any, named: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        kind(**named)


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SpecError, match=r"WorkerOptions has no option 'memory'; did you mean 'memory_bytes'\?"):
        read_options(WorkerOptions, {"dispatcher": HERE, "memory": 1 << 30})
    assert read_options(WorkerOptions, {"dispatcher": HERE, "drain_s": 1.0}).drain_s == 1.0


@pytest.mark.parametrize(
    "text, host, port",
    [
        ("stoker://10.0.0.7:4301", "10.0.0.7", 4301),
        ("stoker://feeder", "feeder", 4300),
        ("feeder:99/", "feeder", 99),
        ("[::1]:5", "::1", 5),
        ("stoker://::1", "::1", 4300),
    ],
)
def test_an_address_is_read_with_and_without_scheme_and_port(text: str, host: str, port: int) -> None:
    address = addresses.parse(text)
    assert (address.host, address.port) == (host, port)
    assert addresses.parse(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "stoker://", "stoker://:4300", "x:0", "x:99999", "x:abc", "grpc://x:1", "a b:1", "u@x:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"expected stoker://HOST:PORT, such as"):
        addresses.parse(text)


def test_the_service_comes_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOKER_SERVICE", raising=False)
    assert addresses.from_environment(None) == Address("127.0.0.1", 4300)
    monkeypatch.setenv("STOKER_SERVICE", "stoker://far:1")
    assert addresses.from_environment(None) == Address("far", 1)
    assert addresses.from_environment("near:2") == Address("near", 2)


def test_workers_of_one_machine_share_its_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert UpOptions(1).threads_each == cores
    assert UpOptions(cores * 2).threads_each == 1
    assert UpOptions(2, num_threads=7).for_worker(0, Address("127.0.0.1", 1)).num_threads == 7


def test_a_worker_behind_all_interfaces_tells_clients_an_address_that_they_can_reach() -> None:
    assert WorkerOptions(HERE, host="0.0.0.0").reached_host == "127.0.0.1"
    assert WorkerOptions(HERE, host="0.0.0.0", advertise="feeder-3").reached_host == "feeder-3"
    assert WorkerOptions(HERE, host="10.1.2.3").reached_host == "10.1.2.3"
    of_service = UpOptions(2, host="0.0.0.0").for_worker(1, Address("0.0.0.0", 4301))
    assert of_service.address == Address("127.0.0.1", 4301)  # it finds the dispatcher over loopback
    assert of_service.reached_host not in addresses.WILDCARDS
    assert UpOptions(1, host="0.0.0.0").reached.host == of_service.reached_host
    assert str(UpOptions(1, host="0.0.0.0", advertise="feeder").reached) == "stoker://feeder:4300"
    assert str(UpOptions(1).reached) == "stoker://127.0.0.1:4300"


def test_a_worker_has_as_many_processes_as_threads_where_code_is_allowed() -> None:
    assert WorkerOptions(HERE, num_threads=3).num_processes == 0
    assert WorkerOptions(HERE, num_threads=3, allow_code=True).num_processes == 3
    assert WorkerOptions(HERE, num_threads=3, allow_code=True, max_processes=0).num_processes == 0
    of_service = UpOptions(2, allow_code=True, max_processes=7).for_worker(0, Address("127.0.0.1", 1))
    assert of_service.num_processes == 7


def test_a_worker_has_a_cache_if_it_has_room_for_one() -> None:
    assert WorkerOptions(HERE).cache is None
    assert WorkerOptions(HERE, cache_ram_bytes=1 << 20).cache == CacheOptions(ram_bytes=1 << 20)
    assert WorkerOptions(HERE, cache_dir="/x").cache == CacheOptions("/x")
    of_service = UpOptions(2, cache_dir="/x", cache_bytes=1 << 30, cache_ram_bytes=1 << 20)
    for index in range(2):  # the workers of a machine share the folder and its bytes
        found = of_service.for_worker(index, Address("127.0.0.1", 1)).cache
        assert found == CacheOptions("/x", disk_bytes=1 << 30, ram_bytes=1 << 20)


def test_a_worker_has_the_back_end_that_it_was_told() -> None:
    assert WorkerOptions(HERE).made_by == Backend()
    found = WorkerOptions(
        HERE, device="cuda:1", placement="DecodeImage=mixed, Resize=cpu", device_bytes=1 << 30
    ).made_by
    assert found == Backend("auto", "cuda:1", {"DecodeImage": "mixed", "Resize": "cpu"}, device_bytes=1 << 30)
    of_service = UpOptions(2, backend="dali", device="cuda:1", placement="cpu", device_bytes=1 << 30)
    for index in range(2):
        found = of_service.for_worker(index, Address("127.0.0.1", 1)).made_by
        assert found == of_service.made_by == Backend("dali", "cuda:1", "cpu", device_bytes=1 << 30)


def test_the_pages_of_workers_follow_the_dispatchers() -> None:
    here = Address("127.0.0.1", 1)
    assert UpOptions(2).for_worker(1, here).http_port is None
    assert UpOptions(2, http_port=0).for_worker(1, here).http_port == 0
    assert UpOptions(2, http_port=9000).for_worker(1, here).http_port == 9002


@pytest.mark.parametrize(
    "module, options",
    [
        (dispatcher_command, DispatcherOptions()),
        (
            dispatcher_command,
            DispatcherOptions(
                host="::1", port=0, beat_s=0.25, forget_s=5.5, until_jobs_end=True, http_host="::", http_port=0
            ),
        ),
        (worker_command, WorkerOptions(HERE)),
        (
            worker_command,
            WorkerOptions(
                HERE,
                host="0.0.0.0",
                port=77,
                advertise="me",
                num_threads=3,
                memory_bytes=1 << 21,
                read_bytes=1 << 22,
                allow_code=True,
                max_processes=5,
                drain_s=0.5,
                arena=False,
                cache_dir="/nvme/stoker",
                cache_bytes=1 << 33,
                cache_ram_bytes=1 << 28,
                backend="dali",
                device="cuda:3",
                placement="DecodeImage=mixed,Resize=cpu",
                device_bytes=1 << 32,
                worker_id="w-1",
                http_port=8,
            ),
        ),
    ],
)
def test_the_command_line_of_a_child_gives_its_options_again(
    module: Any, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def stop_here(kind: Any, **named: Any) -> Any:
        seen.append(kind(**named))
        raise typer.Exit(0)

    monkeypatch.setattr(module.arguments, "made", stop_here)
    monkeypatch.setattr("stoker_service.lifecycle.begin", lambda *_: None)
    app = typer.Typer()
    name = module.__name__.rpartition(".")[2]
    app.command()(getattr(module, name))
    shown = CliRunner().invoke(app, as_arguments(options))
    assert shown.exit_code == 0, shown.output
    assert seen == [options]


@pytest.mark.parametrize(
    "text, expected", [("1048576", 1 << 20), ("512MiB", 1 << 29), ("1.5gib", 3 << 29), ("7 KiB", 7168), (None, None)]
)
def test_sizes_are_read_with_units(text: str | None, expected: int | None) -> None:
    assert size(text, "--memory-bytes") == expected


def test_the_default_of_memory_is_the_same_in_both_notations() -> None:
    assert size(DEFAULT_MEMORY, "--memory-bytes") == DEFAULT_MEMORY_BYTES
    assert size(DEFAULT_DEVICE, "--device-bytes") == DEFAULT_DEVICE_BYTES == Backend().device_bytes


@pytest.mark.parametrize("text", ["", "many", "5MB", "-1", "1e9"])
def test_other_sizes_are_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected bytes"):
        size(text, "--memory-bytes")
