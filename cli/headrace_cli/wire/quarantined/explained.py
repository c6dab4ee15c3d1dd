"""What the bytes of an item mean, as `explain` says it, and what a receiver of this version makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import orjson
from headrace_common.operations.errors import ConfigError
from headrace_common.record.contract import Attribute, Reason
from headrace_common.session.explain import count
from rich.text import Text

from headrace_cli.lake.text import printable
from headrace_cli.wire.explain.stream import Explainer
from headrace_cli.wire.explain.verb import lines
from headrace_cli.wire.quarantined.items import Item
from headrace_cli.wire.quarantined.reading import Reader, received_ms

PARTS: Final = 5
"""Events and fields of a frame that are shown."""
_WHOLE: Final = ("forward", "logjam")
"""Protocols whose items are whole messages, unless an attribute says of which message they are a part."""
_PIECE: Final = (Attribute.INDEX.value, Attribute.DEVICE.value)
_AROUND: Final = 20


def explained(item: Item) -> Iterator[Text]:
    """Lines for people; the item's content is whole. Settings are those of the environment."""
    about = item.attributes if isinstance(item.attributes, dict) else {}
    if item.protocol in _WHOLE and item.reason != Reason.INTERNAL and not any(name in about for name in _PIECE):
        explainer = Explainer(iter((item.content(),)), item.protocol, PARTS, server=False, client=True)
        for frame in explainer.run(received_ms(item)):
            yield from lines(frame)
    elif item.reason == Reason.BAD_JSON:
        yield from _broken_json(item.content())
    yield _today(item)


def _broken_json(content: bytes) -> Iterator[Text]:
    """Where JSON breaks, with what stands around it."""
    try:
        orjson.loads(content)
    except orjson.JSONDecodeError as error:
        at = len(error.doc[: error.pos].encode()) if error.doc else 0
        before, after = (
            printable(piece.decode("utf-8", "replace"))
            for piece in (content[max(0, at - _AROUND) : at], content[at : at + _AROUND])
        )
        shown = Text(f"It is no JSON from byte {at:,} (0x{at:x}) on: {printable(error.msg)}: ")
        shown.append(before)
        shown.append(after or "(its end)", style="bold red")
        yield shown


def _today(item: Item) -> Text:
    try:
        found = Reader().read(item)
    except ConfigError as error:
        return Text(f"Nobody can say what a receiver makes of it today: {str(error).splitlines()[0]}.", style="red")
    if found.impossible:
        return Text(f"It cannot be replayed: {found.impossible}.")
    events, rejects = count(len(found.events), "event"), sum(found.rejects.values())
    if rejects:
        reasons = ", ".join(sorted(found.rejects))
        also = f" beside {events}" if found.events else ""
        return Text(
            f"A receiver of this version, with the environment's settings, does not understand it{also}: {reasons}."
        )
    return Text(
        f"A receiver of this version, with the environment's settings, makes {events} of it: `quarantine replay` publishes that.",
        style="green",
    )
