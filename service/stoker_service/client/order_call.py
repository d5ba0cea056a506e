"""A call by which a process at a worker is given orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from stoker_proto.v1 import stream_pb2 as wire
from stoker_service import versions
from stoker_service.client.arenas import Peer
from stoker_service.client.stream import OpenCall
from stoker_service.transport.code import PYTHON
from stoker_service.transport.encode import MAX_SLICE_BYTES, SLICE_SCHEMA, Encoded, slices


@dataclass(frozen=True, slots=True)
class Cargo:
    """A torch dataset with its functions, packed: all bytes, and their hash."""

    digest: str
    content: memoryview


def request_for(job: str, lane: int, client_id: str, job_name: str) -> wire.StreamRequest:
    """What such a call is opened with."""
    return wire.StreamRequest(
        version=versions.ours(),
        client_id=client_id,
        job_name=job_name,
        process=wire.ProcessRequest(job=job, lane=lane, python=PYTHON),
    )


class OrderCall(OpenCall):
    """A DoExchange call whose worker runs a process for it. One thread reads, another one gives orders."""

    def __init__(self, peer: Peer, request: wire.StreamRequest) -> None:
        super().__init__(peer, request)
        self._has_begun = False
        self.was_silent = False

    def give_up(self, why: str) -> None:
        """End the call since nothing is heard on it; any thread."""
        self.was_silent = True
        self.cancel(why)

    def order(self, order: wire.Order) -> None:
        """Give an order. Blocks while the network is full; raises what Flight raises when the call is broken."""
        with self._writing:
            self._writer.write_metadata(order.SerializeToString())

    def send(self, cargo: Cargo) -> None:
        """Send all bytes of a cargo, in slices between which others may give orders."""
        whole = Encoded((pa.py_buffer(cargo.content),), len(cargo.content))
        for part in slices(whole, MAX_SLICE_BYTES):
            with self._writing:
                if not self._has_begun:
                    self._writer.begin(SLICE_SCHEMA)
                    self._has_begun = True
                self._writer.write_with_metadata(part, _SLICE)


_SLICE: Final = wire.Order(slice=wire.Slice()).SerializeToString()
