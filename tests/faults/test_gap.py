"""How long a trainer waits when one of several workers is killed; opt-in, for it needs a quiet machine.

``STOKER_GAP_KILLS=20 pytest tests/faults/test_gap.py -n0 -s`` kills so many workers, one after another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.streams import make_pictures, pictures
from support.trainer import Job, Trainer

GAP_S = 1.0
"""DESIGN §10, at a beat of 0.25 s."""

STEPS = 120
KILL_AT = 40
num_kills = int(os.environ.get("STOKER_GAP_KILLS", "0"))


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path)
    yield made
    made.close()


@pytest.mark.skipif(num_kills == 0, reason="set STOKER_GAP_KILLS on a quiet machine")
@pytest.mark.timeout(60 + 20 * num_kills)
def test_the_gap_after_a_kill(tmp_path: Path, trainer: Trainer) -> None:
    """DESIGN §10: the longest gap after kill -9 of one of three workers is at most a second."""
    shards = make_pictures(tmp_path / "shards")
    gaps = []
    with Cluster(tmp_path / "cluster", 3) as cluster:
        for seed in range(num_kills):
            pipeline = pictures(shards, seed=seed).to_json()
            trainer.begin(
                Job(pipeline, STEPS, cluster.url, step_s=0.005, options={"prefetch_bytes": 64 << 10, "timeout_s": 40})
            )
            waits = []
            for step in iter(trainer.step, None):
                waits.append(step.wait_s)
                if len(waits) == KILL_AT:
                    cluster.workers[0].kill()
            gaps.append(max(waits[KILL_AT - 2 :]))
            cluster.bury(cluster.workers[0])
            cluster.start_workers(1)
    gaps.sort()
    sys.stderr.write(f"gaps after {num_kills} kills: median {gaps[len(gaps) // 2]:.3f} s, longest {gaps[-1]:.3f} s\n")
    assert gaps[-1] <= GAP_S
