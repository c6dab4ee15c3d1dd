"""A frame that waits for Kafka after all of its parts are made."""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from headrace_common.record.event import Part, Reject
from headrace_common.session.interface import Frame, Pause


class Spent(Frame):
    """Keeps of a frame only the ticket and how long the frame is kept."""

    __slots__ = ("kept", "ticket")

    def __init__(self, frame: Frame) -> None:
        self.ticket = frame.ticket
        self.kept = frame.kept

    @override
    def parts(self) -> Iterator[Part | Pause]:
        raise AssertionError("all parts of the frame are made")

    @override
    def spoiled(self, detail: str) -> Reject:
        raise AssertionError(f"{detail}, and yet all parts of the frame are made")
