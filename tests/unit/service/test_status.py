"""What ``stoker status`` shows, to programs and to people."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from stoker_proto.v1 import control_pb2 as wire
from stoker_service import status
from stoker_service.control import read_status
from stoker_service.status import ServiceStatus

FLEET = wire.FleetCounts(local_bytes=60, peer_bytes=30, origin_bytes=10, given_bytes=5, calls_served=3, calls_late=1)
RESPONSE = wire.StatusResponse(
    version=wire.Version(protocol=1, release="1.2.3"),
    dispatcher_id="d-1",
    up_s=4000.0,
    num_workers_wanted=3,
    wanted_reason="trainers wait 12% of the time, limited by decoding",
    reassignments=12,
    workers=[
        wire.WorkerStatus(
            worker=wire.Worker(worker_id="w-b", location="grpc://10.0.0.8:4301"), state="dead", silent_s=12.5
        ),
        wire.WorkerStatus(
            worker=wire.Worker(
                worker_id="w-a",
                location="grpc://10.0.0.7:4301",
                host_id="h",
                num_threads=16,
                allows_code=True,
                pid=77,
                release="1.2.3",
                max_processes=4,
                keeps_cache=True,
                backend="dali",
                device="cuda:1",
            ),
            state="alive",
            silent_s=0.25,
            num_lanes=8,
            rows_per_s=12345.6,
            beat=wire.WorkerBeatRequest(
                worker_id="w-a", num_streams=9, queued_bytes=3 << 29, bad_samples=2, num_processes=3, fleet=FLEET
            ),
        ),
    ],
    jobs=[
        wire.JobStatus(
            job=wire.Job(pipeline="f" * 32, name="train", num_lanes=2, world_size=2, has_code=True),
            clients=[
                wire.ClientStatus(client_id="c-1", rank=1, rows_per_s=50.0, starved_fraction=0.125),
                wire.ClientStatus(
                    client_id="c-0",
                    rank=0,
                    silent_s=0.5,
                    rows_per_s=100.0,
                    starved_fraction=0.01,
                    beat=wire.ClientBeatRequest(
                        rows=640, steps=10, wait_s=0.5, active_s=20.0, epoch=3, queued_bytes=1 << 20
                    ),
                ),
            ],
            assignment=wire.Assignment(
                version="v",
                owners=[wire.Owner(lane=1, worker_id="w-b"), wire.Owner(lane=0, worker_id="w-a")],
            ),
        ),
        wire.JobStatus(
            job=wire.Job(pipeline="e" * 32, num_lanes=8, world_size=1),
            assignment=wire.Assignment(reason="no worker allows code"),
        ),
    ],
)


@pytest.fixture
def found() -> ServiceStatus:
    return read_status("stoker://10.0.0.1:4300", RESPONSE)


def test_json_has_these_keys_and_values(found: ServiceStatus) -> None:
    assert json.loads(json.dumps(status.as_json(found))) == {
        "service": "stoker://10.0.0.1:4300",
        "dispatcher_id": "d-1",
        "release": "1.2.3",
        "up_s": 4000.0,
        "num_workers_wanted": 3,
        "wanted_reason": "trainers wait 12% of the time, limited by decoding",
        "reassignments": 12,
        "workers": [
            {
                "worker_id": "w-a",
                "location": "grpc://10.0.0.7:4301",
                "host_id": "h",
                "state": "alive",
                "silent_s": 0.25,
                "num_threads": 16,
                "allows_code": True,
                "pid": 77,
                "release": "1.2.3",
                "num_lanes": 8,
                "num_streams": 9,
                "rows_per_s": 12345.6,
                "queued_bytes": 3 << 29,
                "bad_samples": 2,
                "num_processes": 3,
                "max_processes": 4,
                "keeps_cache": True,
                "backend": "dali",
                "device": "cuda:1",
                "fleet": {
                    "local_bytes": 60,
                    "peer_bytes": 30,
                    "origin_bytes": 10,
                    "given_bytes": 5,
                    "calls_served": 3,
                    "calls_refused": 0,
                    "calls_late": 1,
                },
            },
            {
                "worker_id": "w-b",
                "location": "grpc://10.0.0.8:4301",
                "host_id": "",
                "state": "dead",
                "silent_s": 12.5,
                "num_threads": 1,
                "allows_code": False,
                "pid": 0,
                "release": "",
                "num_lanes": 0,
                "num_streams": 0,
                "rows_per_s": 0.0,
                "queued_bytes": 0,
                "bad_samples": 0,
                "num_processes": 0,
                "max_processes": 0,
                "keeps_cache": False,
                "backend": "cpu",
                "device": "cpu",
                "fleet": {
                    "local_bytes": 0,
                    "peer_bytes": 0,
                    "origin_bytes": 0,
                    "given_bytes": 0,
                    "calls_served": 0,
                    "calls_refused": 0,
                    "calls_late": 0,
                },
            },
        ],
        "jobs": [
            {
                "name": "default",
                "pipeline": "e" * 32,
                "num_lanes": 8,
                "world_size": 1,
                "has_code": False,
                "clients": [],
                "owners": [],
                "reason": "no worker allows code",
                "rows_per_s": 0.0,
                "starved_fraction": 0.0,
                "epoch": 0,
            },
            {
                "name": "train",
                "pipeline": "f" * 32,
                "num_lanes": 2,
                "world_size": 2,
                "has_code": True,
                "clients": [
                    {
                        "client_id": "c-0",
                        "rank": 0,
                        "silent_s": 0.5,
                        "rows_per_s": 100.0,
                        "starved_fraction": 0.01,
                        "epoch": 3,
                        "rows": 640,
                        "steps": 10,
                        "wait_s": 0.5,
                        "active_s": 20.0,
                        "queued_bytes": 1 << 20,
                    },
                    {
                        "client_id": "c-1",
                        "rank": 1,
                        "silent_s": 0.0,
                        "rows_per_s": 50.0,
                        "starved_fraction": 0.125,
                        "epoch": 0,
                        "rows": 0,
                        "steps": 0,
                        "wait_s": 0.0,
                        "active_s": 0.0,
                        "queued_bytes": 0,
                    },
                ],
                "owners": ["w-a", "w-b"],
                "reason": "",
                "rows_per_s": 150.0,
                "starved_fraction": 0.125,
                "epoch": 3,
            },
        ],
    }


def shown(found: ServiceStatus) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=140, highlight=False, markup=False, emoji=False)
    for part in status.as_text(found):
        console.print(part)
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_people_see_a_line_for_each_worker_and_job(found: ServiceStatus) -> None:
    lines = shown(found)
    assert "stoker://10.0.0.1:4300, up 1.1 h, release 1.2.3" in lines
    assert "worker state silent by lanes processes from bucket rows/s queued where" in lines
    assert "w-a alive 0.2 s dali cuda:1 8 3 of 4 10.0% 12,346 1.5 GiB grpc://10.0.0.7:4301" in lines
    assert "w-b dead 12 s cpu 0 – – – – grpc://10.0.0.8:4301" in lines
    assert "job pipeline ranks silent lanes epoch rows/s starved queued" in lines
    assert "train ffffffffffff 2 of 2 0.5 s 2 3 150 12.5% 1.0 MiB" in lines
    assert "default eeeeeeeeeeee 0 of 1 gone 8 0 0 0.0% 0 B" in lines
    assert "default: no worker makes it: no worker allows code" in lines
    assert "workers: 1 alive, 3 wanted: 2 more would keep the trainers from waiting; lanes moved: 12" in lines
    assert "why: trainers wait 12% of the time, limited by decoding" in lines


def test_names_are_shown_as_they_are() -> None:
    job = wire.Job(pipeline="f" * 32, name="a[/red] :fire:", num_lanes=1, world_size=1)
    lines = shown(read_status("stoker://h:1", wire.StatusResponse(jobs=[wire.JobStatus(job=job)])))
    (line,) = [line for line in lines if "gone" in line]
    assert line.startswith("a[/red] :fire: ")


def test_an_empty_service_says_so() -> None:
    lines = shown(read_status("stoker://h:1", wire.StatusResponse()))
    assert "no workers" in lines
    assert "no jobs" in lines
    assert "workers: 0 alive, none needed now; lanes moved: 0" in lines


@pytest.mark.parametrize(
    "value, text", [(0.04, "0.0 s"), (9.94, "9.9 s"), (59, "59 s"), (300, "5 min"), (9000, "2.5 h"), (267_840, "3.1 d")]
)
def test_times_are_as_people_say_them(value: float, text: str) -> None:
    assert status.seconds(value) == text
