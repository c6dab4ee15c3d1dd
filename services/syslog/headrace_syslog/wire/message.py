"""What a syslog message says: RFC 5424, and RFC 3164 as it is really sent. Pure.

No message is malformed: what cannot be parsed further is its text.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

NO_PRIORITY: Final = 13
"""user.notice, of a message without a priority (RFC 3164, 4.3.3)."""

HIGHEST: Final = 191
"""local7.debug, the highest priority (RFC 5424, 6.2.1)."""

BOM: Final = "\ufeff"
"""It says that the text is UTF-8 (RFC 5424, 6.4), and is not a part of it."""

PARAMETERS: Final = 1_000
"""Maximum parameters and elements of structured data that are read. A message with more goes on as text."""

_NAMES: Final = "timestamp", "hostname", "app_name", "proc_id", "msg_id"
_PRIORITY: Final = re.compile(r"<(\d{1,3})>", re.ASCII)
_HEADER: Final = re.compile("1 ([!-~]{1,255}) ([!-~]{1,255}) ([!-~]{1,255}) ([!-~]{1,255}) ([!-~]{1,255}) ")
_ELEMENT: Final = re.compile(r"\[([!#-<>-\\^-~]{1,255})")
_PARAMETER: Final = re.compile(r' ([!#-<>-\\^-~]{1,255})="((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["\\\]])')
_TIME: Final = (
    r"((?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2} (?:\d{4} )?\d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?):? "
)
_TAG: Final = r"([^\s:\[\]]{1,255})(?:\[([^\s\[\]]{0,255})\])?:(?: |$)"
_OLD: Final = re.compile(rf"{_TIME}(?:(?!{_TAG})([\w.:/-]{{1,255}}) )?(?:{_TAG})?", re.ASCII)
"""RFC 3164: a time, a host that may be missing, and a tag that may be missing."""


class SyslogMessage(NamedTuple):
    """The parts of a message, as sent, by names; but for `message`, its text, those that it does not have are missing.

    `structured_data` has elements by their ids, each of parameters by their names: a text, or a list of all that are named alike
    (RFC 5424, 6.3.3).
    """

    priority: int
    parts: dict[str, Any]

    @property
    def numbered(self) -> bool:
        """Whether no other message has the same bytes: its sender has numbered it (RFC 5424, 7.3.1) and says when it was made,
        and who it is, or a fraction of the second.
        """
        meta, time = self.parts.get("structured_data", {}).get("meta", {}), self.parts.get("timestamp", "")
        return "sequenceId" in meta and bool(time and ("hostname" in self.parts or "." in time))


def parse(raw: str) -> SyslogMessage:
    """Parses any text."""
    at, priority, parts = 0, NO_PRIORITY, dict[str, Any]()
    if (found := _PRIORITY.match(raw)) and int(found[1]) <= HIGHEST:
        at, priority = found.end(), int(found[1])
    if at and (header := _HEADER.match(raw, at)) and (data := _structured(raw, header.end())):
        parts = {name: text for name, text in zip(_NAMES, header.groups(), strict=True) if text != "-"}
        structured, end = data
        if structured:
            parts["structured_data"] = structured
        text = raw[end + 1 :].removeprefix(BOM)
    else:
        if old := _OLD.match(raw, at):
            at, (time, _, _, *others) = old.end(), old.groups()
            parts = {name: text for name, text in zip(_NAMES, (time, *others), strict=False) if text}
        text = raw[at:]
    parts["message"] = text.removesuffix("\n")  # some senders put it there, as rsyslog's own templates
    return SyslogMessage(priority, parts)


def _structured(raw: str, at: int) -> tuple[dict[str, Any], int] | None:
    """Returns the elements that begin at `at`, and where they end. None: they are none, or too many, or one is there twice."""
    elements: dict[str, Any] = {}
    begin, left = at, PARAMETERS
    at += raw.startswith("-", at)
    while (at == begin or elements) and (element := _ELEMENT.match(raw, at)):
        values: dict[str, list[str]] = {}
        at, left = element.end(), left - 1
        while left >= 0 and (pair := _PARAMETER.match(raw, at)):
            values.setdefault(pair[1], []).append(_ESCAPED.sub(r"\1", pair[2]))
            at, left = pair.end(), left - 1
        if left < 0 or element[1] in elements or not raw.startswith("]", at):
            return None
        elements[element[1]] = {name: texts if len(texts) > 1 else texts[0] for name, texts in values.items()}
        at += 1
    return (elements, at) if at > begin and raw[at : at + 1] in ("", " ") else None
