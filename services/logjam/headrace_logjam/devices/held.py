"""Finds the numbers that the topics hold after the positions of a consumer that was killed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from headrace_common.record.contract import GAP_TYPE, Attribute, GapField

from headrace_logjam.devices.gaps import NumbersBehind, Ranges
from headrace_logjam.devices.positions import DevicePosition


class StoredNumbers:
    """Collects the numbers of one endpoint's devices that this consumer has stored. Records of other consumers may be of an
    earlier start of the device, which they may hear later.
    """

    def __init__(self, consumer: str, known: Mapping[int, DevicePosition]) -> None:
        self._consumer = consumer
        self._known = known
        self._found: dict[int, set[tuple[int, int]]] = {}
        self._received: dict[int, int] = {}

    def add(self, kind: bytes, attributes: bytes, value: bytes, received: int) -> None:
        """Adds a record of this endpoint, of the type `kind`. Any bytes will do. `value`: of a marker; `attributes`: of another.

        A marker of what Kafka refused is stored later than its numbers came: the device may have started again in between.
        """
        try:
            if kind == GAP_TYPE.encode():
                about = orjson.loads(value)
                consumer = about[GapField.CONSUMER]
                device, start, end = (int(about[key]) for key in (GapField.DEVICE, GapField.FROM, GapField.TO))
                received = min(received, int(about.get(GapField.BEFORE, received)))
            else:
                about = orjson.loads(attributes)
                consumer = about[Attribute.CONSUMER]
                device, start = int(about[Attribute.DEVICE]), int(about[Attribute.SEQUENCE])
                end = start + 1
        except (ValueError, KeyError, TypeError):
            return
        known = self._known.get(device)
        if consumer != self._consumer or known is None or received < known.received:
            return
        if end > known.sequence + 1:
            self._found.setdefault(device, set()).add((max(start, known.sequence + 1), end))
            self._received[device] = max(received, self._received.get(device, 0))

    def behind(self) -> dict[int, NumbersBehind]:
        """Returns, by device, the numbers stored after the position, joined and rising."""
        return {
            device: NumbersBehind(_joined(sorted(found)), self._received[device])
            for device, found in self._found.items()
        }


def _joined(found: Ranges) -> Ranges:
    joined: list[tuple[int, int]] = []
    for start, end in found:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
