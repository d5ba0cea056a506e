"""A supply whose batches lie on the device, one ahead of the trainer."""

from __future__ import annotations

import os
import queue
import time
import weakref
from collections.abc import Callable
from typing import Any

from stoker import leaving
from stoker.device.carrier import Ask, Carried, Carrier
from stoker.device.copier import Copier
from stoker.device.program import DeviceProgram
from stoker.device.waits import STAGES, Waits
from stoker.errors import StallError
from stoker.plan.resume import Position
from stoker.supply import Supply


class Ahead:
    """Hands out the batches of a supply on a device, while its thread brings the next one there.

    ``following`` tells where the next batch is taken once one, by its index, is taken at a position. For one thread,
    but for :meth:`close`; in a fork it begins anew, as the supply does. Counters are those of what was handed out.
    """

    def __init__(
        self,
        supply: Supply,
        following: Callable[[Position, int], Position],
        device: str,
        program: DeviceProgram,
        timeout_s: float,
    ) -> None:
        self._supply = supply
        self._following = following
        self._make_copier = lambda: Copier(device, program)
        self._most_s = 2 * timeout_s + 5.0  # the supply has the deadline; one batch not wanted any more may come before
        self._timeout_s = timeout_s
        self._carrier: Carrier | None = None
        self._asked: Ask | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._waits = Waits()
        self._start_s = 0.0
        self._counts = dict.fromkeys(("batches", "samples", "bytes_made", "device_copies", "device_bytes"), 0)

    def next(self, position: Position) -> Carried:
        """The batch at ``position``, as :meth:`stoker.supply.Supply.next` gives it; its copy may be under way.

        Raises what the supply raised, at the position where it did, and SpecError if ops for the device do not fit.
        """
        carrier = self._carrier_here()
        asked, self._asked = self._asked, None  # after an error or Ctrl-C in here, nobody knows what came
        is_start = asked is None or asked.position != position
        if asked is None or is_start:
            if asked is not None:
                asked.is_dropped = True
            asked = carrier.ask(position)
        begun_s, was_here = time.monotonic(), not asked.answer.empty()
        try:
            carried = self._answer(asked)
        except StallError:
            if not was_here:
                raise
            carried = self._answer(carrier.ask(position))  # the deadline is for the trainer's own wait
        self._count(carried, max(time.monotonic() - begun_s, 0.0), is_start=is_start)
        self._asked = carrier.ask(self._following(position, carried.delivery.batch_index))
        return carried

    def stats(self) -> dict[str, Any]:
        """Those of the supply, with what was handed out and what the trainer waited for."""
        stats = self._supply.stats()
        waits = {f"wait_{stage}_s": getattr(self._waits, stage) for stage in STAGES}
        if "wait_network_s" not in stats:
            del waits["wait_network_s"]
        verdict = self._waits.verdict(stats.get("between_s", 0.0), self._counts["batches"])
        return {**stats, **self._counts, "start_s": self._start_s, **waits, "limited_by": verdict}

    def close(self) -> None:
        """Close the supply and end the thread, within 2 s."""
        self._asked = None
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._carrier is not None and self._carrier.pid == os.getpid():
            self._carrier.close()
        else:  # a fork has no thread
            self._supply.close()

    def _carrier_here(self) -> Carrier:
        if self._carrier is None or self._carrier.pid != os.getpid():
            self._asked = None
            self._carrier = Carrier(self._supply, self._make_copier)
            self._finalizer = leaving.close_later(self, self._carrier)
        return self._carrier

    def _answer(self, asked: Ask) -> Carried:
        try:
            answer = asked.answer.get(timeout=self._most_s)
        except queue.Empty:
            raise StallError(
                f"no batch within {self._most_s:g} s, twice timeout_s and a little: the thread stoker-device does not "
                "answer; is the GPU at work (nvidia-smi), or a call of CUDA stuck in another thread?"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _count(self, carried: Carried, waited_s: float, *, is_start: bool) -> None:
        if is_start:
            self._start_s += waited_s
        else:
            self._waits += carried.waits.last(waited_s)
        delivery, on_device, counts = carried.delivery, carried.on_device, self._counts
        counts["batches"] += 1
        counts["samples"] += delivery.batch.num_rows
        counts["bytes_made"] += delivery.batch.nbytes
        counts["bytes_made"] += sum(int(tensor.nbytes) for tensor in delivery.device_fields.values())
        counts["device_copies"] += on_device.num_copies
        counts["device_bytes"] += on_device.num_bytes
