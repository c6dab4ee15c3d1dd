"""How an item of quarantine becomes a request again. Pure."""

from __future__ import annotations

import gzip
from base64 import b64decode

from headrace_common.session.again import QuarantinedItem, ReplayOutcome, peer_of, read_by

from headrace_otlp.events import OtlpAttribute
from headrace_otlp.logs import wrapped
from headrace_otlp.session import OtlpSession
from headrace_otlp.settings import OtlpSettings
from headrace_otlp.wire import request


def read(item: QuarantinedItem, settings: OtlpSettings) -> ReplayOutcome:
    """Reads one log record with its resource and scope, or all of a body."""
    about = item.attributes
    encoding, coding = about[OtlpAttribute.ENCODING.value], about.get(OtlpAttribute.COMPRESSION.value, "")
    alone = OtlpAttribute.RESOURCE.value in about
    content = item.content
    if alone:
        resource, scope = (b64decode(about[name.value]) for name in (OtlpAttribute.RESOURCE, OtlpAttribute.SCOPE))
        content = wrapped(resource, scope, [content], encoding)
    if not coding and len(content) > settings.limits.frame_bytes:  # it had come compressed
        content, coding = gzip.compress(content, 1, mtime=0), "gzip"
    data = request(content, encoding, coding)
    return read_by(OtlpSession(peer_of(item), settings.limits, settings.otlp), item, data, numbered=alone)
