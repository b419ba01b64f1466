"""The first exchange on a stream: the endpoint says who it is and what the stream is for, the gateway answers. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pdd.link.frames import PROTOCOL_VERSION, Buffer, Frame, FrameError, FrameType

MAX_HELLO_BYTES = 4096


class LaneName(StrEnum):
    FAST = "fast"
    BULK = "bulk"


class WelcomeStatus(StrEnum):
    OK = "ok"
    UNKNOWN_SESSION = "unknown-session"
    """The gateway has no such session (it was restarted, or the session's retention ran out): begin a new one."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Hello:
    """`fresh`: the endpoint has not been welcomed in this session yet, so the gateway may create it."""

    session: str
    lane: LaneName
    index: int
    streams: int
    name: str
    deployment: str
    namespace: str
    fresh: bool
    version: int = PROTOCOL_VERSION

    @property
    def member(self) -> str:
        """The member's name within a gateway."""
        return f"{self.namespace}/{self.deployment}/{self.name}"


@dataclass(frozen=True, slots=True)
class Welcome:
    status: WelcomeStatus
    gateway: str = ""
    reason: str = ""
    version: int = PROTOCOL_VERSION


def hello_frame(hello: Hello) -> Frame:
    return Frame(FrameType.HELLO, payload=json.dumps(asdict(hello)).encode())


def welcome_frame(welcome: Welcome) -> Frame:
    return Frame(FrameType.WELCOME, payload=json.dumps(asdict(welcome)).encode())


def parse_hello(frame: Frame) -> Hello:
    """Raises FrameError that says what is wrong, version mismatch first: other fields may differ in other versions."""
    data = _object(frame, FrameType.HELLO)
    if data.get("version") != PROTOCOL_VERSION:
        raise FrameError(
            f"the endpoint speaks link protocol {data.get('version')!r}, this gateway speaks {PROTOCOL_VERSION}: "
            "run the same release on both ends",
            reason="VersionMismatch",
        )
    try:
        hello = Hello(
            session=str(data["session"]),
            lane=LaneName(data["lane"]),
            index=int(data["index"]),
            streams=int(data["streams"]),
            name=str(data["name"]),
            deployment=str(data["deployment"]),
            namespace=str(data["namespace"]),
            fresh=bool(data["fresh"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"HELLO is not understood: {error!r}") from error
    if not 0 <= hello.index < 16:
        raise FrameError(f"HELLO for stream {hello.index}; a lane has at most 16")
    if not 8 <= len(hello.session) <= 64:
        raise FrameError("HELLO with a session id that is not 8 to 64 characters long")
    return hello


def parse_welcome(frame: Frame) -> Welcome:
    """Raises FrameError on anything that is not a WELCOME of our version."""
    data = _object(frame, FrameType.WELCOME)
    try:
        welcome = Welcome(
            status=WelcomeStatus(data["status"]),
            gateway=str(data.get("gateway", "")),
            reason=str(data.get("reason", "")),
            version=int(data["version"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"WELCOME is not understood: {error!r}") from error
    if welcome.version != PROTOCOL_VERSION and welcome.status is not WelcomeStatus.REFUSED:
        raise FrameError(
            f"the gateway speaks link protocol {welcome.version}, this endpoint speaks {PROTOCOL_VERSION}: "
            "run the same release on both ends",
            reason="VersionMismatch",
        )
    return welcome


def _object(frame: Frame, kind: FrameType) -> dict[str, Any]:
    if frame.type is not kind:
        raise FrameError(f"a {frame.type.name} frame where {kind.name} must come first")
    payload: Buffer = frame.payload
    try:
        data = json.loads(bytes(payload))
    except ValueError as error:
        raise FrameError(f"{kind.name} is not JSON") from error
    if not isinstance(data, dict):
        raise FrameError(f"{kind.name} is not a JSON object")
    return data
