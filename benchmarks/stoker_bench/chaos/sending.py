"""Sends an answer, or what its fate leaves of it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from stoker.storage.chaos.profile import Fate, Fault, Profile, transfer_s
from stoker_bench.chaos.answers import Answer


@dataclass(frozen=True, slots=True)
class Damage:
    """What goes wrong with a body: its end, the byte that is wrong with a mask for its bits."""

    num_bytes: int
    flipped: int = -1
    mask: int = 0

    def spoilt(self, piece: bytes, position: int) -> bytes:
        """A piece that begins at ``position`` of the body, as it is sent."""
        if position <= self.flipped < position + len(piece):
            changed = bytearray(piece)
            changed[self.flipped - position] ^= self.mask
            piece = bytes(changed)
        return piece[: max(0, self.num_bytes - position)]


async def send(
    request: web.BaseRequest, answer: Answer, fate: Fate, profile: Profile
) -> tuple[web.StreamResponse, int]:
    """Answer a request; returns the response and how many bytes of its body were sent.

    A body that is cut, or never begins, ends with its connection.
    """
    if fate.fault is Fault.EMPTY:
        etag = {"ETag": answer.headers["ETag"]} if "ETag" in answer.headers else {}
        return web.Response(status=200, headers=etag), 0
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    if answer.num_bytes >= 0:
        response.content_length = answer.num_bytes
    await response.prepare(request)
    if fate.fault is Fault.STALL:
        await asyncio.sleep(profile.stall_s)
        break_off(request, response)
        return response, 0
    if request.method == "HEAD":
        return response, 0
    num_sent = await _send_body(response, answer, _damage(answer, fate, profile), profile)
    if num_sent < answer.num_bytes:
        break_off(request, response)
    return response, num_sent


def break_off(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Close the connection once what was written is sent."""
    response.force_close()
    if request.transport is not None:
        request.transport.close()


def _damage(answer: Answer, fate: Fate, profile: Profile) -> Damage:
    at = fate.byte(profile, answer.num_bytes)
    match fate.fault:
        case Fault.CUT:
            return Damage(at)
        case Fault.FLIP:
            return Damage(answer.num_bytes, at, fate.bit())
        case _:
            return Damage(answer.num_bytes)


async def _send_body(response: web.StreamResponse, answer: Answer, damage: Damage, profile: Profile) -> int:
    position = 0
    with contextlib.suppress(aiohttp.ClientError):  # the one who asked, or the server behind, is gone
        async for piece in answer.body:
            sent = damage.spoilt(piece, position) if answer.num_bytes >= 0 else piece
            await response.write(sent)
            position += len(sent)
            if profile.mb_per_s:
                await asyncio.sleep(transfer_s(profile, len(sent)))
            if len(sent) < len(piece):
                break
    return position
