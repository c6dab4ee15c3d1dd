"""The sessions' questions to their service, and its answers: for protocols with questions, state or reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from typing_extensions import override

from headrace_common.session.interface import Peer, Question, Ticket


class Caller(ABC):
    """A connection, as its service sees it. No method blocks or raises, not even after the connection has ended."""

    peer: Peer

    @abstractmethod
    def answered(self, ticket: Ticket, answer: object) -> None:
        """Answers a question; call it once for each. The question's bytes leave the budgets now."""

    @abstractmethod
    def end(self, why: str) -> None:
        """Ends the conversation; pending frames are still acknowledged. `why` is the metric's label."""


class Backend(ABC):
    """A service's own state, which its sessions question. Must not block or raise."""

    @abstractmethod
    def ask(self, question: Question, caller: Caller) -> None:
        """Answers with `Caller.answered`, now or later. A connection that ends or drains waits for the answer. No deadline
        of the connection applies to it; the service bounds it.
        """

    @abstractmethod
    def ended(self, caller: Caller) -> None:
        """Learns that the conversation has ended. Must answer its open questions, or the budgets never get their bytes back."""


class _NoBackend(Backend):
    @override
    def ask(self, question: Question, caller: Caller) -> None:
        raise AssertionError(f"no backend answers {question!r}")

    @override
    def ended(self, caller: Caller) -> None:
        pass


NO_BACKEND: Final = _NoBackend()
"""The backend of a service whose sessions ask nothing."""
