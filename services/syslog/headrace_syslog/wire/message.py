"""What a syslog message says: RFC 5424, and RFC 3164 as it is really sent. Pure.

No message is malformed: what cannot be parsed further is its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from headrace_common.record.json_object import utc

NO_PRIORITY: Final = 13
"""user.notice, of a message without a priority (RFC 3164, 4.3.3)."""

HIGHEST: Final = 191
"""local7.debug, the highest priority (RFC 5424, 6.2.1)."""

BOM: Final = b"\xef\xbb\xbf"
"""It says that the text is UTF-8 (RFC 5424, 6.4), and is no part of it."""

PARAMETERS: Final = 1_000
"""Maximum parameters and elements of structured data that are read. A message with more goes on as text."""

Values = dict[bytes, list[bytes]]
"""The parameters of an element, by name, which may be repeated (RFC 5424, 6.3.3)."""

_NAMES: Final = "timestamp", "hostname", "app_name", "proc_id", "msg_id"
_PRIORITY: Final = re.compile(rb"<(\d{1,3})>")
_HEADER: Final = re.compile(rb"1 ([!-~]{1,255}) ([!-~]{1,255}) ([!-~]{1,255}) ([!-~]{1,255}) ([!-~]{1,255}) ")
_ELEMENT: Final = re.compile(rb"\[([!#-<>-\\^-~]{1,255})")
_PARAMETER: Final = re.compile(rb' ([!#-<>-\\^-~]{1,255})="((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_ESCAPED: Final = re.compile(rb'\\(["\\\]])')
_MONTHS: Final = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_TIME: Final = re.compile(
    rb"((?:%b) {1,2}\d{1,2} (?:\d{4} )?\d\d:\d\d:\d\d(?:\.\d{1,9})?" % b"|".join(_MONTHS)
    + rb"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?):? "
)
_HOST: Final = re.compile(rb"([\w.:/-]{1,255}) ")
_TAG: Final = re.compile(rb"([^\s:\[\]]{1,255})(?:\[([^\s\[\]]{0,255})\])?:(?: |$)")


@dataclass(slots=True)
class SyslogMessage:
    """The parts of a message, as sent; one that it does not have is empty. `structured`: elements by their ids."""

    priority: int
    text: bytes
    timestamp: bytes = b""
    hostname: bytes = b""
    app_name: bytes = b""
    proc_id: bytes = b""
    msg_id: bytes = b""
    structured: dict[bytes, Values] = field(default_factory=dict)

    @property
    def numbered(self) -> bool:
        """Whether no other message has the same bytes: its sender has numbered it (RFC 5424, 7.3.1) and says when it was made,
        and who it is, or a fraction of the second.
        """
        is_one = self.hostname or b"." in self.timestamp
        return bool(self.timestamp and is_one) and b"sequenceId" in self.structured.get(b"meta", {})


def parse(raw: bytes) -> SyslogMessage:
    """Parses any bytes."""
    found = _PRIORITY.match(raw)
    if found is None or int(found[1]) > HIGHEST:
        return _old(raw, 0, NO_PRIORITY)
    at, priority = found.end(), int(found[1])
    header = _HEADER.match(raw, at)
    if header is not None:
        data = _structured(raw, header.end())
        if data is not None:
            structured, end = data
            made = SyslogMessage(priority, _text(raw[end + 1 :].removeprefix(BOM)), structured=structured)
            for name, value in zip(_NAMES, header.groups(), strict=True):
                setattr(made, name, b"" if value == b"-" else value)
            return made
    return _old(raw, at, priority)


def _structured(raw: bytes, at: int) -> tuple[dict[bytes, Values], int] | None:
    """Returns the elements that begin at `at`, and where they end. None: they are none, or too many, or one is there twice."""
    elements: dict[bytes, Values] = {}
    parameters = PARAMETERS
    if raw.startswith(b"-", at):
        return ({}, at + 1) if raw[at + 1 : at + 2] in (b"", b" ") else None
    while (element := _ELEMENT.match(raw, at)) is not None:
        values: Values = {}
        at, parameters = element.end(), parameters - 1
        while parameters >= 0 and (pair := _PARAMETER.match(raw, at)) is not None:
            values.setdefault(pair[1], []).append(_ESCAPED.sub(rb"\1", pair[2]))
            at, parameters = pair.end(), parameters - 1
        if parameters < 0 or element[1] in elements or not raw.startswith(b"]", at):
            return None
        elements[element[1]] = values
        at += 1
    return (elements, at) if elements and raw[at : at + 1] in (b"", b" ") else None


def _old(raw: bytes, at: int, priority: int) -> SyslogMessage:
    """Parses what begins at `at` as RFC 3164: a time, a host that may be missing, a tag, text."""
    made = SyslogMessage(priority, b"")
    if time := _TIME.match(raw, at):
        made.timestamp, at = time[1], time.end()
        tag = _TAG.match(raw, at)
        if tag is None and (host := _HOST.match(raw, at)):
            made.hostname, at = host[1], host.end()
            tag = _TAG.match(raw, at)
        if tag is not None:
            made.app_name, made.proc_id, at = tag[1], tag[2] or b"", tag.end()
    made.text = _text(raw[at:])
    return made


def _text(text: bytes) -> bytes:
    """Returns a text without the line feed that some senders put behind it, as rsyslog's own templates."""
    return text.removesuffix(b"\n")


def time_of(message: SyslogMessage) -> bytes | None:
    """Returns the message's time by RFC 3339 in UTC. None: it has none, or its zone is not known."""
    return utc(message.timestamp.decode("ascii", "replace").replace(",", "."))
