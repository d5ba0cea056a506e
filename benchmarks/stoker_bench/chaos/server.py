"""The server: admits, waits, answers, and spoils answers, as its profile says."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final

import aiohttp
from aiohttp import web

from stoker.errors import SpecError
from stoker.storage.chaos.profile import Fate, Fault, Profile, parse
from stoker_bench.chaos import sending
from stoker_bench.chaos.answers import Origin, error_xml
from stoker_bench.chaos.counts import Counts, is_object
from stoker_bench.chaos.gate import Gate, Refusal

ADMIN: Final = "/-/"
"""No bucket has a name of one letter, so paths that begin so are the server's own."""
_ACCESS_KEY: Final = re.compile(r"Credential=([^/]+)/|^Bearer (.+)$")
_GONE: Final = 499  # for the counts alone: the client hung up before it had an answer


class Chaos:
    """One server's state. ``behave``, ``counts`` and ``refused`` are for any thread, the rest for that of its loop.

    Access keys (S3's key ids, bearer tokens) in ``refused`` are turned away.
    """

    def __init__(self, origin: Origin, profile: Profile) -> None:
        self.counts = Counts()
        self.refused: frozenset[str] = frozenset()
        self._origin = origin
        self._gate = Gate(profile)

    def behave(self, profile: Profile) -> None:
        """Behave like this from now on; the next request is number 0."""
        self._gate = Gate(profile)

    async def close(self) -> None:
        """Let go of the origin."""
        await self._origin.close()

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if request.path.startswith(ADMIN):
            return await self._administer(request)
        self.counts.begin()
        status, num_sent = _GONE, 0
        try:
            response, num_sent = await self._answer(request)
            status = response.status
            return response
        except aiohttp.ClientError as error:
            response = error_xml(502, "BadGateway", f"the server behind failed: {type(error).__name__}")
            status = response.status
            return response
        finally:
            self.counts.end(request.method, request.path, status, num_sent)

    async def _answer(self, request: web.BaseRequest) -> tuple[web.StreamResponse, int]:
        gate = self._gate
        if (refusal := self._refusal(request, gate)) is not None:
            return refusal, 0
        fate = gate.fate(request.method, is_object=is_object(request.path))
        await asyncio.sleep(fate.latency_s)
        if fate.fault is Fault.FAIL:
            self.counts.fault(fate.fault.value)
            return error_xml(500, "InternalError", "as the profile says"), 0
        async with self._origin.answer(request, gate.profile.page) as answer:
            is_good = answer.status < 300
            fate = (
                gate.for_body(fate, request.path, answer.start, answer.num_bytes) if is_good else Fate(fate.latency_s)
            )
            if fate.fault is not Fault.NONE:
                self.counts.fault(fate.fault.value)
            return await sending.send(request, answer, fate, gate.profile)

    def _refusal(self, request: web.BaseRequest, gate: Gate) -> web.Response | None:
        name = request.path if is_object(request.path) else f"{request.path}/{request.query.get('prefix', '')}"
        found = _ACCESS_KEY.search(request.headers.get("Authorization", ""))
        access_key = (found[1] or found[2]) if found else ""
        refusal = gate.refusal(name, access_key, time.monotonic())
        if access_key in self.refused:
            refusal = Refusal.EXPIRED
        if refusal is None:
            return None
        self.counts.fault(refusal.value)
        if refusal is Refusal.THROTTLED:
            code = "SlowDown" if gate.profile.throttle == 503 else "TooManyRequests"
            return error_xml(gate.profile.throttle, code, "reduce your request rate")
        if found is not None and found[1]:
            return error_xml(400, "ExpiredToken", "the provided token has expired")
        return error_xml(401, "AuthenticationRequired", "the token has expired")

    async def _administer(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.method, request.path.removeprefix(ADMIN):
            case "GET", "counts":
                return web.json_response(self.counts.as_json())
            case "DELETE", "counts":
                self.counts.reset()
            case "PUT", "profile":
                try:
                    self.behave(parse(await request.text()))
                except SpecError as error:
                    return web.Response(status=400, text=str(error))
            case "PUT", "refused":
                self.refused = frozenset((await request.text()).split())
            case _:
                return web.Response(status=404, text="GET or DELETE counts, PUT profile, PUT refused (access keys)")
        return web.Response(status=204)
