"""A dispatcher's state with workers and clients round it, under a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stoker_service.dispatcher.events import (
    Action,
    ClientBeat,
    Event,
    JobClosed,
    JobOpened,
    Made,
    Tick,
    Unreachable,
    WorkerBeat,
    WorkerProbed,
    WorkerRegistered,
)
from stoker_service.dispatcher.model import ClientId, Job, JobKey, PipelineId, Settings, Worker, WorkerId
from stoker_service.dispatcher.state import State

BEAT_S = 1.0
TICKS = 4


@dataclass(slots=True)
class Fleet:
    """Everybody in ``workers`` and ``clients`` beats once a second for as long as he is in there."""

    settings: Settings = field(default_factory=lambda: Settings("first", beat_s=BEAT_S, forget_s=60.0))
    now_s: float = 1000.0
    state: State = field(init=False)
    workers: dict[str, WorkerBeat] = field(default_factory=dict)
    clients: dict[str, ClientBeat] = field(default_factory=dict)
    descriptions: dict[str, WorkerRegistered | JobOpened] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart(self.settings.dispatcher_id)

    def restart(self, dispatcher_id: str) -> None:
        """Another dispatcher, which knows nothing."""
        self.settings = replace(self.settings, dispatcher_id=dispatcher_id)
        self.state = State(self.settings, self.now_s)

    def tell(self, event: Event) -> list[Action]:
        actions = self.state.apply(event, self.now_s)
        self.actions.extend(actions)
        return actions

    def join(self, name: str, *, num_threads: int = 1, allows_code: bool = False, host: str = "") -> None:
        location = f"grpc://{host or name}:1"
        worker = Worker(WorkerId(name), location, f"host-{host or name}", num_threads, allows_code)
        self.descriptions[name] = WorkerRegistered(worker)
        self.tell(self.descriptions[name])
        self.workers[name] = WorkerBeat(WorkerId(name))
        self.tell(self.workers[name])

    def open(
        self,
        client: str,
        *,
        pipeline: str = "p",
        name: str = "train",
        lanes: int = 8,
        rank: int = 0,
        code: bool = False,
    ) -> None:
        key = JobKey(PipelineId(pipeline), name)
        self.descriptions[client] = JobOpened(Job(key, lanes, 4, code), ClientId(client), rank)
        self.tell(self.descriptions[client])
        self.clients[client] = ClientBeat(key, ClientId(client))

    def close(self, client: str) -> None:
        beat = self.clients.pop(client)
        self.tell(JobClosed(beat.key, beat.client_id))

    def report(self, client: str, worker: str) -> list[Action]:
        beat = self.clients[client]
        return self.tell(Unreachable(beat.key, beat.client_id, WorkerId(worker), "connection refused"))

    def probed(self, worker: str, *, is_alive: bool) -> list[Action]:
        return self.tell(WorkerProbed(WorkerId(worker), is_alive))

    def has_lanes(self, worker: str, *lanes: int, pipeline: str = "p", rows: int = 0, decode_s: float = 0.0) -> None:
        """What the worker tells with its next beats."""
        made = Made(PipelineId(pipeline), rows, decode_s, lanes)
        self.workers[worker] = replace(self.workers[worker], jobs=(made,))

    def beat(self) -> None:
        """Everybody beats once; who is not known introduces himself first, as real peers do."""
        for name, worker_beat in self.workers.items():
            if not self.state.orders_for(worker_beat.worker_id).is_known:
                self.tell(self.descriptions[name])
            self.tell(worker_beat)
        for name, client_beat in self.clients.items():
            if not self.state.knows_client(client_beat.key, client_beat.client_id):
                self.tell(self.descriptions[name])
            self.tell(client_beat)

    def pass_time(self, seconds: float) -> list[Action]:
        """Let time pass in quarters of a beat; returns what the state asked for meanwhile."""
        num_before = len(self.actions)
        for tick in range(round(seconds / BEAT_S * TICKS)):
            self.now_s += BEAT_S / TICKS
            if tick % TICKS == TICKS - 1:
                self.beat()
            self.tell(Tick())
        return self.actions[num_before:]

    def owners(self, pipeline: str = "p") -> dict[int, str]:
        return {owner.lane: owner.worker_id for owner in self.state.assignment_of(PipelineId(pipeline)).owners}

    def counts(self, pipeline: str = "p") -> dict[str, int]:
        """Lanes by worker."""
        found = list(self.owners(pipeline).values())
        return {worker: found.count(worker) for worker in sorted(set(found))}

    def refuses(self, pipeline: str = "p") -> bool:
        """Whether there is no owner because the workers that are there refuse."""
        return self.state.assignment_of(PipelineId(pipeline)).is_refusal

    def reason(self, pipeline: str = "p") -> str:
        return self.state.assignment_of(PipelineId(pipeline)).reason

    def version(self, pipeline: str = "p") -> str:
        return self.state.assignment_of(PipelineId(pipeline)).version

    def states(self) -> dict[str, str]:
        return {view.worker.worker_id: view.state for view in self.state.snapshot(self.now_s).workers}


def running(*workers: str, lanes: int = 8) -> Fleet:
    """A fleet past its start, with these workers and one job of one client."""
    fleet = Fleet()
    for worker in workers:
        fleet.join(worker)
    fleet.open("client", lanes=lanes)
    fleet.pass_time(3)
    return fleet
