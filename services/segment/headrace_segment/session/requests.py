"""A client's requests that have no answer yet, and replies that cost memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec

from headrace_common.operations.errors import ProtocolError

from headrace_segment.questions import AboutSegment, AppendBlock, OpenSession
from headrace_segment.session.writers import B, Writer

P = ParamSpec("P")


@dataclass(slots=True)  # not frozen: one for each block
class OpenQuestion(Generic[B]):
    """A question without an answer. `number`: the request's own on the connection; `request`: the client's number for it."""

    question: OpenSession | AppendBlock | AboutSegment
    number: int
    request: int
    writer: Writer[B] | None = None


@dataclass(frozen=True, slots=True)
class CostlyReply:
    """A reply that costs bytes until it leaves: `echoed` from the client's request, or, with `read`, those of a segment."""

    message: object
    read: bool = False
    echoed: int = 0


def fault_of(work: Callable[P, None], *arguments: P.args, **more: P.kwargs) -> ProtocolError | None:
    """Does `work`, and returns the fault that it raises."""
    try:
        work(*arguments, **more)
    except ProtocolError as fault:
        return fault.with_traceback(None)  # without its frames, which hold memory
    return None
