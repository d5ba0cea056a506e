"""What a wait that passed its deadline is said to have waited for."""

from __future__ import annotations

from dataclasses import dataclass

from stoker_service.client.merge import Place


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane as it stands: ``doing`` is what its thread is busy with, since ``since_s`` seconds."""

    lane: int
    doing: str
    since_s: float
    last_word: str = ""
    last_trouble: str = ""


def stall_cause(batch: Place | None, lane: LaneView | None, dispatcher: str) -> str:
    """One sentence that names the batch, its lane, the worker and the cause."""
    if batch is None:
        return f"there is no batch to wait for; {dispatcher}"
    which = f"batch {batch.batch_index} of epoch {batch.epoch}"
    if lane is None:
        return f"{which} was not asked for yet; {dispatcher}"
    word = f", which said last that it {lane.last_word}" if lane.last_word else ""
    trouble = f"; before: {lane.last_trouble}" if lane.last_trouble else ""
    return f"{which} (lane {lane.lane}) {lane.doing} for {lane.since_s:.1f} s{word}{trouble}; {dispatcher}"


def no_worker_text(timeout_s: float, reason: str, dispatcher: str) -> str:
    """Why a session could not be opened for want of a worker."""
    why = reason or "no worker is registered"
    return (
        f"no worker within {timeout_s:g} s (timeout_s): {why}; {dispatcher}; start one with `stoker worker`, "
        "or look with `stoker status`"
    )
