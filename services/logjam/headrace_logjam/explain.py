"""One Logjam message as the quarantine keeps it, as `explain` shows it: each frame as u32 length, big-endian, and bytes. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.explain import PEER, Explanation, Part, Unit, count, fields
from headrace_common.session.interface import Message

from headrace_logjam.session import ProducerSession
from headrace_logjam.settings import LogjamLimits, LogjamSettings
from headrace_logjam.wire import FRAMES, BodyCompression, decode_meta, is_app_env, joined, split

_LENGTH_BYTES: Final = 4
_ANSWER_TIME: Final = 60.0


_NAMES: Final = ("app-env", "topic", "body", "meta")


def frames_of(raw: bytes) -> Sequence[bytes] | None:
    """Returns its frames; None if the bytes are not what the quarantine keeps."""
    try:
        found = split(raw)
    except struct.error:
        return None
    return found if raw and joined(found) == raw else None


def looks_so(beginning: bytes) -> bool:
    """Returns whether bytes begin with the length of an app-env, and with an app-env."""
    size = int.from_bytes(beginning[:_LENGTH_BYTES], "big")
    frame = beginning[_LENGTH_BYTES : _LENGTH_BYTES + size]
    return 0 < size == len(frame) and is_app_env(frame)


def message_unit(frames: Sequence[bytes]) -> Unit:
    """Returns the message's frames and what they mean."""
    parts: list[Part] = []
    at = 0
    for index, frame in enumerate(frames):
        name = _NAMES[index] if len(frames) == FRAMES else f"frame {index + 1}"
        parts += fields(
            len(frame).to_bytes(_LENGTH_BYTES, "big") + frame[:16],
            at,
            (_LENGTH_BYTES, f"{len(frame)} bytes follow"),
            (len(frame), f"{name}{_meaning(name, frame)}"),
        )
        at += _LENGTH_BYTES + len(frame)
    return Unit("message", 0, at, f"a message of {count(len(frames), 'frame')}", parts)


def _meaning(name: str, frame: bytes) -> str:
    if name in ("app-env", "topic"):
        return f": {frame[:64].decode(errors='replace')}"
    if name != "meta":
        return ""
    try:
        meta = decode_meta(frame)
    except ProtocolError as error:
        return f": {error}"
    known = meta.compression in set(BodyCompression)
    method = BodyCompression(meta.compression).name.lower() if known else "unknown"
    return f": compression {meta.compression} ({method}), device {meta.device}, number {meta.sequence}, made {meta.created_ms} ms"


def _message(raw: bytes, given: LogjamSettings | None, now_ms: int) -> tuple[Unit, ProducerSession] | None:
    frames = frames_of(raw)
    if frames is None:
        return None
    session = ProducerSession(given.limits if given else LogjamLimits(), _ANSWER_TIME, answers=True)
    session.receive(Message([b"", *frames], b"route", PEER.address), now_ms)
    return message_unit(frames), session


EXPLANATION: Final = Explanation(begins=looks_so, message=_message)
