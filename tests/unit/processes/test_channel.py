"""Channels: whole messages, in order, with their descriptors, and never a wait that nobody ends."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.processes.channel import MAX_FDS, Channel, ChannelClosedError, Message, wait
from support.leftovers import open_fds

DEADLINE_S = 20.0
LARGE_BYTES = 20 << 20


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    here, there = connected()
    yield here, there
    here.close()
    there.close()


def connected() -> tuple[Channel, Channel]:
    here, sock = Channel.pair()
    return here, Channel(sock)


def take(channel: Channel) -> Message:
    message = channel.receive(DEADLINE_S)
    assert message is not None
    return message


def bodies(channel: Channel, number: int) -> list[bytes]:
    return [bytes(take(channel).body) for _ in range(number)]


def pump(sender: Channel, receiver: Channel, number: int) -> list[Message]:
    """Both ends in one thread: what is kept goes on while the other end reads."""
    deadline = time.monotonic() + DEADLINE_S
    messages: list[Message] = []
    while len(messages) < number:
        assert time.monotonic() < deadline
        sender.flush(0)
        message = receiver.receive(0)
        if message is not None:
            messages.append(message)
    return messages


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_parts_arrive_as_one_body(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    numbers = np.arange(6, dtype=np.float64).reshape(2, 3)
    here.send([b"ab", numbers.data, b"", memoryview(bytearray(b"c"))])
    assert bytes(take(there).body) == b"ab" + numbers.tobytes() + b"c"


@pytest.mark.parametrize("num_bytes", [0, 1, 100, 1 << 16, (1 << 16) + 1, LARGE_BYTES])
def test_a_body_is_writable_memory_of_its_own(num_bytes: int) -> None:
    here, there = connected()
    content = os.urandom(num_bytes)
    here.send([content])
    here.send([b"next"])
    first, second = (message.body for message in pump(here, there, 2))
    assert bytes(first) == content
    first[:] = bytes(num_bytes)
    assert bytes(second) == b"next"
    second[:1] = b"N"
    here.close()
    there.close()


def test_many_parts_go_as_one_message(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send([bytes([index % 256]) for index in range(5000)])
    assert bytes(take(there).body) == bytes(index % 256 for index in range(5000))


def test_sending_never_waits_and_keeps_the_order(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    messages = [bytes([index]) * size for index, size in enumerate([10, LARGE_BYTES, 0, 10, 1 << 17])]
    for message in messages:
        here.send([message])
    assert not here.flush(0)
    assert [bytes(message.body) for message in pump(here, there, len(messages))] == messages
    assert here.flush(0)


def test_what_is_kept_is_not_what_the_sender_writes_later(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    memory = np.zeros(LARGE_BYTES, np.uint8)
    here.send([memory.data])
    memory[:] = 1
    (message,) = pump(here, there, 1)
    assert not np.frombuffer(message.body, np.uint8).any()


def test_two_that_send_much_do_not_wait_for_each_other(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    for channel in ends:
        channel.send([bytes(LARGE_BYTES)])
    got: list[Channel] = []
    while len(got) < 2:
        got += [channel for channel in ends if channel not in got and channel.receive(0) is not None]
    assert here.flush(0)
    assert there.flush(0)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300_000), st.integers(0, 2)), max_size=30))
def test_any_messages_arrive_whole_and_in_order(steps: list[tuple[bool, int, int]]) -> None:
    before = len(open_fds())
    here, there = connected()
    sent: list[tuple[int, int]] = []
    got: list[tuple[int, int]] = []

    def receive(timeout_s: float) -> bool:
        message = there.receive(timeout_s)
        if message is not None:
            assert set(bytes(message.body)) <= {len(got) % 256}
            got.append((message.body.nbytes, len(message.fds)))
            for fd in message.fds:
                os.close(fd)
        return message is not None

    for is_read, num_bytes, num_fds in steps:
        here.send([bytes([len(sent) % 256]) * num_bytes], [here.fileno()] * num_fds)
        sent.append((num_bytes, num_fds))
        if is_read:
            receive(0)
    while len(got) < len(sent):
        here.flush(0)
        receive(0)
    assert got == sent
    here.close()
    there.close()
    assert len(open_fds()) == before


def test_messages_of_more_than_2_gib() -> None:
    num_bytes = (1 << 31) + 12345
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if available < 3 * num_bytes:  # what is kept, what is received, and some for others
        pytest.skip(f"only {available >> 20} MiB of memory are available")
    here, there = connected()
    with mmap.mmap(-1, num_bytes) as memory:  # never written: it costs nothing
        memory[-1:] = b"e"
        view = memoryview(memory)
        here.send([b"b", view])
        view.release()
    (message,) = pump(here, there, 1)
    assert message.body.nbytes == num_bytes + 1
    assert (message.body[0], message.body[-1]) == (ord("b"), ord("e"))
    here.close()
    there.close()


# -- descriptors -------------------------------------------------------------------------------------------------------


def test_descriptors_arrive_with_their_message(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    pipes = [os.pipe() for _ in range(3)]
    here.send([b"none"])
    here.send([b"two"], [pipes[0][1], pipes[1][1]])
    here.send([b"one"], [pipes[2][1]])
    messages = [take(there) for _ in range(3)]
    assert [len(message.fds) for message in messages] == [0, 2, 1]
    for (reader, writer), fd in zip(pipes, [fd for message in messages for fd in message.fds], strict=True):
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        os.write(fd, b"x")
        assert os.read(reader, 2) == b"x"
        for each in (reader, writer, fd):
            os.close(each)


def test_descriptors_of_a_message_that_is_kept(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    reader, writer = os.pipe()
    here.send([bytes(LARGE_BYTES)])
    here.send([b"late"], [writer])
    os.close(writer)
    got = pump(here, there, 2)
    os.write(got[1].fds[0], b"x")
    assert os.read(reader, 2) == b"x"
    os.close(got[1].fds[0])
    assert os.read(reader, 2) == b""  # no copy is left anywhere
    os.close(reader)


def test_descriptors_that_nobody_took_are_closed() -> None:
    reader, writer = os.pipe()
    here, there = connected()
    here.send([b"taken"])
    here.send([b"read", bytes(100)], [writer] * 3)
    here.send([bytes(LARGE_BYTES)])
    here.send([b"kept"], [writer] * 3)
    assert bodies(there, 1) == [b"taken"]
    assert there.receive(0) is not None  # its descriptors are left lying
    before = len(open_fds())
    here.send([b"kept too"], [writer] * 3)
    assert len(open_fds()) == before + 3
    here.close()
    assert len(open_fds()) == before - 3 - 1
    there.close()
    for fd in (reader, writer):
        os.close(fd)


def test_as_many_descriptors_as_the_system_takes(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send([b"many"], [here.fileno()] * MAX_FDS)
    fds = take(there).fds
    assert len(set(fds)) == MAX_FDS
    for fd in fds:
        os.close(fd)
    with pytest.raises(ValueError, match="up to 253 descriptors"):
        here.send([b"more"], [here.fileno()] * (MAX_FDS + 1))


def test_without_room_for_descriptors_the_channel_ends_with_a_reason() -> None:
    here, there = connected()
    here.send([b"two"], [here.fileno()] * 2)
    before = len(open_fds())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_fds()[-1], hard))
    filled: list[int] = []
    try:
        with suppress(OSError):
            while True:
                filled.append(os.dup(0))
        os.close(filled.pop())  # room for one of two
        with pytest.raises(OSError, match="ulimit -n") as caught:
            there.receive(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in filled:
            os.close(fd)
    assert caught.value.errno == errno.EMFILE
    assert len(open_fds()) == before - 1  # `there`
    with pytest.raises(ChannelClosedError):
        there.receive(0)
    here.close()


# -- the end -----------------------------------------------------------------------------------------------------------


def test_what_was_sent_before_the_end_is_received() -> None:
    here, there = connected()
    there.send([b"never read"])
    here.send([b"last words"])
    here.close()
    with pytest.raises(ChannelClosedError):
        there.send([b"too late"])
    assert bodies(there, 1) == [b"last words"]
    with pytest.raises(ChannelClosedError, match="gone"):
        there.receive(DEADLINE_S)
    there.close()
    there.close()


def test_what_is_kept_does_not_hide_what_the_other_said_last() -> None:
    here, there = connected()
    there.send([bytes(LARGE_BYTES)])
    here.send([b"last words"])
    here.close()
    assert bodies(there, 1) == [b"last words"]
    with pytest.raises(ChannelClosedError):
        there.receive(DEADLINE_S)
    there.close()


def test_a_channel_of_a_parent_is_closed_in_its_fork(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    pid = os.fork()
    if pid == 0:
        try:
            here.send([b"from the fork"])
        except ChannelClosedError as error:
            os._exit(0 if "forked" in str(error) and not is_open(here.fileno()) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    here.send([b"from the parent"])
    assert bodies(there, 1) == [b"from the parent"]


@pytest.mark.parametrize("is_many", [False, True])
def test_closing_from_another_thread_ends_a_call_that_waits(ends: tuple[Channel, Channel], is_many: bool) -> None:
    here, _ = ends

    def wait_for_one() -> None:
        if is_many:
            assert wait([here], DEADLINE_S) == [here]
        here.receive(DEADLINE_S)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait_for_one)
        here.close()
        with pytest.raises(ChannelClosedError):
            waiting.result(DEADLINE_S / 2)


def test_hanging_up_is_seen_although_someone_holds_a_copy(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    copy = os.dup(here.fileno())
    here.close()
    with pytest.raises(ChannelClosedError):
        there.receive(DEADLINE_S)
    os.close(copy)


def ask(channel: Channel) -> None:
    channel.send([b"question"])
    channel.receive(DEADLINE_S)


@pytest.mark.parametrize("call", ["sendmsg", "recvmsg_into"])
def test_a_call_cut_by_ctrl_c_ends_the_channel_rather_than_garble_it(ends: tuple[Channel, Channel], call: str) -> None:
    here, there = ends
    there.send([b"answer"])

    def interrupt(_: Any, event: str, argument: Any) -> None:
        if event == "c_return" and argument.__name__ == call:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    with pytest.raises(KeyboardInterrupt):
        ask(here)
    with pytest.raises(ChannelClosedError, match="interrupted"):
        here.send([b"another"])


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_nothing_in_time(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    assert here.receive(0) is None
    assert here.receive(0.001) is None
    assert wait([here, there], 0.001) == []
    assert wait([], 0) == []


def test_wait_names_those_that_have_something() -> None:
    pairs = [connected() for _ in range(4)]
    heres, theres = zip(*pairs, strict=True)
    theres[1].send([b"a message"])
    theres[1].send([b"a second one"])
    theres[2].close()
    assert wait(heres, DEADLINE_S) == [heres[1], heres[2]]
    assert bodies(heres[1], 1) == [b"a message"]
    assert wait([heres[0], heres[1]], 0) == [heres[1]]  # the second was read with the first
    heres[3].close()
    assert wait([heres[0], heres[3]], DEADLINE_S) == [heres[3]]
    for channel in (*heres, *theres):
        channel.close()


def test_wait_does_not_name_a_part_twice() -> None:
    here, sock = Channel.pair()
    other, _other_sock = Channel.pair()
    sock.sendall(b"\5\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0ab")
    assert wait([other, here], DEADLINE_S) == [here]
    assert here.receive(0) is None
    assert wait([other, here], 0) == []
    sock.sendall(b"cde")
    assert wait([other, here], DEADLINE_S) == [here]
    assert bodies(here, 1) == [b"abcde"]
    for each in (here, other, sock, _other_sock):
        each.close()


def test_wait_sends_what_is_kept(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send([bytes(LARGE_BYTES)])
    message = None
    while message is None:
        assert wait([here], 0) == []
        message = there.receive(0)
    assert message.body.nbytes == LARGE_BYTES


def test_a_small_message_costs_one_call_each() -> None:
    here, there = connected()
    calls: list[str] = []

    def note(_: Any, event: str, argument: Any) -> None:
        if event == "c_call" and isinstance(getattr(argument, "__self__", None), socket.socket):
            calls.append(argument.__name__)

    sys.setprofile(note)
    try:
        here.send([b"kind", b"content"])
        there.receive(0)
    finally:
        sys.setprofile(None)
    assert [call for call in calls if call != "fileno"] == ["sendmsg", "recvmsg_into"]
    here.close()
    there.close()
