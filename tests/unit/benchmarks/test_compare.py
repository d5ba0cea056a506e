"""The comparison's page shows each contender with its ratio and the ratio to reach."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from stoker_bench import compare
from stoker_bench.peers import bare_loop, ours, rows
from support import shards

REPORT = {
    "machine": {"processor": "Test CPU", "cores": 2, "python": "3.11.7"},
    "options": {"num_rounds": 7, "num_batches": 16, "batch_size": 256},
    "titles": {"stoker": "Stoker, local mode", "torch-pillow": "torch DataLoader"},
    "images_per_s": {
        "stoker": {"median": 2000.0, "low": 1900.0, "high": 2100.0},
        "torch-pillow": {"median": 1000.0, "low": 990.0, "high": 1001.0},
    },
    "ratios": {"torch-pillow": {"median": 2.0, "low": 1.95, "high": 2.1}},
    "targets": {"torch-pillow": 2.5},
    "gil": {"per_sample_us": 31.4, "error_us": 0.9, "target_us": 40.0, "busy_loop_share": 1.0, "sleep_share": 0.0},
}


def test_the_page_has_a_row_per_contender() -> None:
    page = compare.markdown(REPORT)
    assert "| torch DataLoader | 1,000 (990–1,001) | **2.00 (1.95–2.10)** | 2.5 |" in page
    assert "| Stoker, local mode | 2,000 (1,900–2,100) |  |  |" in page
    assert "31.4 ± 0.9 µs" in page


def test_ours_and_the_bare_loop_run_on_the_same_shards(tmp_path: Path) -> None:
    paths = shards.make_shards(tmp_path, (12, 9))
    listed = rows.scan(paths)
    assert [row.label for row in listed] == [number % 10 for number in range(21)]
    reader = rows.RowReader()
    assert [reader.read(row) for row in listed[:2]] == [shards.picture(0), shards.picture(1)]
    assert bare_loop.BareLoop(listed, batch_size=8, num_threads=2).images_per_s(2) > 0
    stream = ours.Ours(str(tmp_path / "shard-*.tar"), batch_size=8)
    try:
        assert list(islice(stream.batches(), 5)) == [8] * 5
    finally:
        stream.close()
