"""How an item of quarantine becomes a payload again. Pure."""

from __future__ import annotations

from headrace_common.operations.settings import ServiceSettings
from headrace_common.record.contract import Reason
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, peer_of, read_by

from headrace_courier import wire as courier
from headrace_courier.events import CourierAttribute
from headrace_courier.session import CourierSession


def read(item: QuarantinedItem, settings: ServiceSettings) -> ReplayOutcome:
    """Reads one event of a payload, or (`internal`) all of it, each event after its length."""
    whole = item.reason == Reason.INTERNAL
    nonce = bytes.fromhex(item.attributes[CourierAttribute.NONCE.value])
    payload = courier.jdat_of(nonce, item.content if whole else courier.entry(item.content), level=0)
    return read_by(CourierSession(peer_of(item), settings.limits), item, payload, numbered=not whole)
