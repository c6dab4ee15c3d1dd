"""Fluentd Forward."""

from __future__ import annotations

from headrace_common.record.contract import Reason
from headrace_forward.client import ForwardClient

from tests.contract.dialect import Dialect


class ForwardDialect(Dialect):
    """See `contract.dialect.Dialect`."""

    name = "forward"
    client = ForwardClient
    fault = Reason.BAD_RECORD
    malformed = b"GET / HTTP/1.1\r\n\r\n"


class PythonForwardDialect(ForwardDialect):
    """The same receiver, where the native core is not built."""

    variant = "core"
    module = "tests.forward.python"
