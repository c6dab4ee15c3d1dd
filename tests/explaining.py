"""A receiver of any protocol of streams, as `explain` drives one, for servers that tests play."""

from __future__ import annotations

from headrace_cli.wire.explain.stream import EXPLANATIONS, ExplainedSession


def receiver_of(protocol: str, most: int) -> ExplainedSession:
    """The receiver of a protocol, with the default settings. `most`: events and rejects of a call that are kept."""
    explanation = EXPLANATIONS[protocol]
    assert explanation.stream is not None
    return ExplainedSession(explanation.stream(most, None)[1], most, explanation.answer)
