"""The service's figures: what is divided by what, what counts as a gap, and how the page shows it."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker_bench import rounds, service, service_data, service_gap, service_rates, service_stream
from stoker_bench.datasets import MadeShards
from stoker_bench.rounds import Spread
from stoker_bench.service_gap import Gap, Taken
from stoker_bench.service_processes import Process
from stoker_bench.service_stream import Received, SocketLink

RECEIVED = {
    "service-flight": [Received(4_000_000_000, 2.0, 2.0), Received(4_000_000_000, 4.0, 2.4)],
    "socket": [Received(4_000_000_000, 1.0, 0.6), Received(4_000_000_000, 2.0, 0.6)],
}


def test_ratios_against_local_mode_are_taken_round_by_round() -> None:
    found = {"local": [100.0, 50.0, 20.0], "served": [90.0, 45.0, 19.0]}
    assert rounds.against(found, "local") == {"served": Spread(0.9, 0.9, 0.95)}


def test_a_stream_is_rated_by_bytes_and_cpu_time() -> None:
    found = service_stream.summary(RECEIVED)
    assert found["ratios"]["service-flight"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    assert found["links"]["service-flight"]["gb_per_s"] == {"median": 1.5, "low": 1.0, "high": 2.0}
    assert found["links"]["socket"]["cpu_s_per_gb"]["median"] == pytest.approx(0.15)


def test_links_take_turns_and_are_emptied_outside_the_clock() -> None:
    calls: list[str] = []

    class Counted:
        def __init__(self, name: str) -> None:
            self.name = name

        def empty(self) -> None:
            calls.append(f"empty {self.name}")

        def receive(self, num_batches: int) -> int:
            calls.append(self.name)
            return 10 * num_batches

    links = {"a": Counted("a"), "b": Counted("b")}
    found = service_stream.measure(links, 2, 3, lambda *_: None, settle=lambda: calls.append("settle"))
    assert calls == [
        "settle",
        "empty a",
        "a",
        "settle",
        "empty b",
        "b",
        "settle",
        "empty b",
        "b",
        "settle",
        "empty a",
        "a",
    ]
    assert [received.num_bytes for received in found["a"]] == [30, 30]


def test_a_wait_that_has_begun_is_waited_out() -> None:
    """The gap after a kill is longer than one looks for it, or it would not be seen."""
    moments = iter([0.0, 1.0, 2.5, 9.0])
    taken = service_gap.take_for(itertools.repeat(None), 3.0, lambda: next(moments))
    assert taken == [Taken(1.0, 1.0), Taken(2.5, 1.5), Taken(9.0, 6.5)]
    assert service_gap.longest_s(taken) == 6.5


def test_more_batches_are_thrown_away_than_are_held_ahead() -> None:
    held = (256 + 1024) * (1 << 20) / (256 * 224 * 224 * 3)
    assert service_rates.num_queued(256) > held
    assert service_rates.num_queued(64) > 4 * held


def test_repeated_shards_are_the_same_files(tmp_path: Path) -> None:
    shards = tuple(tmp_path / "made" / name for name in ("shard-000000.tar", "shard-000001.tar"))
    shards[0].parent.mkdir()
    for number, shard in enumerate(shards):
        shard.write_text(f"{number}")
    made = MadeShards(tmp_path / "made", shards, num_rows=2, size_bytes=2, num_classes=1)
    for _ in range(2):
        assert service_data.repeated(made, 3) == str(tmp_path / "made-x3" / "shard-{000000..000005}.tar")
    assert [(tmp_path / "made-x3" / f"shard-{index:06d}.tar").read_text() for index in range(6)] == list("010101")
    assert sorted(path.name for path in (tmp_path / "made-x3").iterdir()) == [f"shard-{i:06d}.tar" for i in range(6)]


def test_a_socket_link_receives_whole_batches(sender: int) -> None:
    link = SocketLink(sender)
    assert link.receive(3) == 3 * 100_000
    with pytest.raises(ConnectionError, match="in the middle"):
        link.receive(1)
    link.close()


def test_a_process_that_is_not_ready_says_why() -> None:
    process = Process("stoker_service", ["no-such-command"])
    try:
        with pytest.raises(RuntimeError, match="no-such-command"):
            process.first_line()
    finally:
        process.close()


def test_the_page_shows_each_part_with_its_aim() -> None:
    report = {
        "options": {
            "num_rounds": 7,
            "num_batches": 16,
            "batch_size": 256,
            "num_ready_batches": 64,
            "gap": {"batch_size": 64},
        },
        "rates": {
            "images_per_s": {
                "local": {"median": 2000.0, "low": 1900.0, "high": 2100.0},
                "service-flight": {"median": 1800.0, "low": 1790.0, "high": 1801.0},
            },
            "ratios": {"service-flight": {"median": 0.9, "low": 0.88, "high": 0.91}},
            "targets": service_rates.TARGETS,
        },
        "stream": service_stream.summary(RECEIVED),
        "gap": service.summary_of_gaps([Gap(0.05, 0.4), Gap(0.06, 0.5), Gap(0.04, 0.6)]),
    }
    page = service.markdown(report)
    assert "| service, over Flight | 1,800 (1,790–1,801) | **0.90 (0.88–0.91)** | 0.86 |" in page
    assert "| Stoker, local mode | 2,000 (1,900–2,100) |  |  |" in page
    assert "| service, one lane, over Flight | 1.50 (1.00–2.00) | **0.50 (0.50–0.50)** | 0.55 (0.50–0.60) |" in page
    assert "0.5 or more and 0.65 or less" in page
    assert "**0.50 (0.40–0.60) s**, 0.05 (0.04–0.06) s before it; at most 1 s is the aim." in page


def test_the_parts_that_were_not_measured_are_left_out() -> None:
    gap = service.summary_of_gaps([Gap(0.05, 0.4)])
    page = service.markdown({"options": {"gap": {"batch_size": 64}}, "gap": gap})
    assert page.startswith("## The service")
    assert "images/s" not in page
    assert "GB/s" not in page


@pytest.fixture
def sender() -> Iterator[int]:
    """A port that sends batches of 100,000 bytes as they are asked for, and hangs up in the middle of the fourth."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def send() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.sendall(struct.pack("<Q", 100_000))
                for size in (300_000, 50_000):
                    peer.recv(8, socket.MSG_WAITALL)
                    peer.sendall(b"x" * size)

        thread = threading.Thread(target=send)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(60.0)
