"""Reads items once more, with this version and the settings now given, and says what their bytes mean."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

import orjson
from headrace_common.operations.errors import ConfigError, ProtocolError
from headrace_common.operations.settings import ServiceSettings, Settings, load
from headrace_common.protocol import installed
from headrace_common.record.contract import Attribute, Reason
from headrace_common.session.again import ImpossibleError, Rejected, Replayed, whole_record
from headrace_common.session.explain import count
from rich.text import Text

from headrace_cli.lake.text import printable
from headrace_cli.operating.parts import as_environment, settings_class
from headrace_cli.wire.explain.stream import Explainer
from headrace_cli.wire.explain.verb import lines
from headrace_cli.wire.quarantined.items import Item

PARTS: Final = 5
"""Events and fields of a frame that are shown."""
_WHOLE: Final = ("forward", "logjam")
"""Protocols whose items are whole messages, unless an attribute says of which message they are a part."""
_PIECE: Final = (Attribute.INDEX.value, Attribute.DEVICE.value, Attribute.RECORD.value)
_AROUND: Final = 20


_WIDE: Final = {"frame_bytes": 1 << 30, "event_bytes": 1 << 30, "frame_events": 1 << 30, "depth": 200}


class Reader:
    """Reads items with the settings of the environment and of the YAML file `config`.

    `wide`: with those of nobody, and with limits that no event exceeds; what compressed bytes may inflate to stays limited.
    """

    def __init__(self, config: Path | None = None, *, wide: bool = False) -> None:
        self._config = config
        self._wide = wide
        self._settings: dict[str, Settings] = {}

    def read(self, item: Item) -> Replayed:
        """Return the receiver's outcome for an item today. Raises `ConfigError` for wrong settings, and nothing else."""
        problem = item.problem()
        if problem:
            return Replayed(impossible=problem)
        if item.reason not in list(Reason):
            return Replayed(impossible="the record breaks the contract on its topic, no client sent it so")
        read = next((each.again for each in installed() if each.name == item.protocol), "")
        if not read:
            return Replayed(impossible=f"nobody reads {item.protocol}")
        about = item.attributes if isinstance(item.attributes, dict) else {}
        rejected = Rejected(
            item.name, item.reason, item.protocol, item.stream, item.source, received_ms(item), item.sha256, about,
            item.content(),
        )  # fmt: skip
        try:
            if about.get(Attribute.RECORD.value):
                return whole_record(rejected)
            replayed: Replayed = resolve_name(read)(rejected, self._settings_of(item.protocol))
            return replayed
        except ProtocolError as error:
            return Replayed(impossible=f"the stream breaks: {error}" + (f" ({error.limit})" if error.limit else ""))
        except (ImpossibleError, ValueError, KeyError, TypeError, struct.error) as error:
            return Replayed(impossible=str(error) or type(error).__name__)

    def _settings_of(self, protocol: str) -> Settings:
        if protocol not in self._settings:
            if self._wide:
                with as_environment({}):
                    found = load(settings_class(protocol))
                assert isinstance(found, ServiceSettings)
                self._settings[protocol] = found.model_copy(update={"limits": found.limits.model_copy(update=_WIDE)})
            else:
                self._settings[protocol] = load(settings_class(protocol), self._config)
        return self._settings[protocol]


def received_ms(item: Item) -> int:
    """Return when it was received, Unix time in milliseconds."""
    return int(item.received.timestamp() * 1000)


def explained(item: Item) -> Iterator[Text]:
    """Return lines for people; the item's content is whole. Settings are those of the environment."""
    about = item.attributes if isinstance(item.attributes, dict) else {}
    if item.protocol in _WHOLE and item.reason != Reason.INTERNAL and not any(name in about for name in _PIECE):
        explainer = Explainer(iter((item.content(),)), item.protocol, PARTS, server=False, client=True)
        for frame in explainer.run(received_ms(item)):
            yield from lines(frame)
    elif item.reason == Reason.BAD_JSON:
        yield from _broken_json(item.content())
    yield _today(item)


def _broken_json(content: bytes) -> Iterator[Text]:
    """Yield where JSON breaks, with the text before and after."""
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
