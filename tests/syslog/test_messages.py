"""What becomes of a message: RFC 5424, RFC 3164 as it is sent, and anything else."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject
from headrace_syslog.wire.message import PARAMETERS

from tests.syslog.driving import event, made

RECEIVED = "2023-11-14T22:15:23.456Z"

MESSAGES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "5424": (
        b"<165>1 2003-10-11T22:14:15.003Z h.example.com evntslog 8 ID47 - it",
        {"facility": 20, "severity": 5, "timestamp": "2003-10-11T22:14:15.003Z", "hostname": "h.example.com",
         "app_name": "evntslog", "proc_id": "8", "msg_id": "ID47", "message": "it"},
    ),
    "5424 with nothing": (b"<0>1 - - - - - -", {"facility": 0, "severity": 0, "message": ""}),
    "structured data": (
        b'<14>1 - - - - - [a@1 ip="::1" ip="::2" q="\\"\\\\\\]\\x]"][b] m',
        {"facility": 1, "severity": 6, "structured_data": {"a@1": {"ip": ["::1", "::2"], "q": '"\\]\\x]'}, "b": {}},
         "message": "m"},
    ),
    "a BOM": (b"<14>1 - - - - - - \xef\xbb\xbf\xc3\xbc", {"facility": 1, "severity": 6, "message": "ü"}),
    "an element twice": (b"<14>1 - - - - - [a][a] m", {"facility": 1, "severity": 6, "message": "1 - - - - - [a][a] m"}),
    "data without end": (b'<14>1 - - - - - [a b="c', {"facility": 1, "severity": 6, "message": '1 - - - - - [a b="c'}),
    "another version": (b"<14>2 - - - - - - m", {"facility": 1, "severity": 6, "message": "2 - - - - - - m"}),
    "3164": (
        b"<34>Oct 11 22:14:15 mymachine su[17]: 'su root' failed",
        {"facility": 4, "severity": 2, "timestamp": "Oct 11 22:14:15", "hostname": "mymachine", "app_name": "su",
         "proc_id": "17", "message": "'su root' failed"},
    ),
    "3164 without host": (
        b"<13>Oct  1 22:14:15 su: m",
        {"facility": 1, "severity": 5, "timestamp": "Oct  1 22:14:15", "app_name": "su", "message": "m"},
    ),
    "3164 without tag": (
        b"<13>Oct  1 22:14:15 10.0.0.1 it is m",
        {"facility": 1, "severity": 5, "timestamp": "Oct  1 22:14:15", "hostname": "10.0.0.1", "message": "it is m"},
    ),
    "3164 with a year": (
        b"<13>Oct  1 2023 22:14:15.5: %ASA-6-1: m",
        {"facility": 1, "severity": 5, "timestamp": "Oct  1 2023 22:14:15.5", "app_name": "%ASA-6-1", "message": "m"},
    ),
    "ISO": (
        b"<13>2023-10-11T22:14:15.1+02:00 h su: m",
        {"facility": 1, "severity": 5, "timestamp": "2023-10-11T22:14:15.1+02:00", "hostname": "h", "app_name": "su",
         "message": "m"},
    ),
    "no priority": (b"Oct 11 22:14:15 h su: m", {"facility": 1, "severity": 5, "timestamp": "Oct 11 22:14:15", "hostname": "h",
                                                 "app_name": "su", "message": "m"}),
    "text": (b"just text", {"facility": 1, "severity": 5, "message": "just text"}),
    "too high a priority": (b"<192>m", {"facility": 1, "severity": 5, "message": "<192>m"}),
    "nothing": (b"", {"facility": 1, "severity": 5, "message": ""}),
    "NUL": (b"<13>a\0b", {"facility": 1, "severity": 5, "message": "a\0b"}),
    "a line feed behind it": (b"<13>a\n\n", {"facility": 1, "severity": 5, "message": "a\n"}),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_read_as_far_as_it_can_be(name: str) -> None:
    raw, expected = MESSAGES[name]
    assert event(raw).json == expected


def test_an_event_has_the_time_of_its_message() -> None:
    found = event(b"<13>1 2003-10-11T22:14:15.003+02:00 - - - - -")
    assert (found.time, found.attributes) == ("2003-10-11T20:14:15.003Z", {})


@pytest.mark.parametrize(
    "raw", [b"m", b"<13>Oct 11 22:14:15 h m", b"<13>2023-10-11 22:14:15,5 h m", b"<13>1 yesterday - - - - -"]
)
def test_a_message_without_a_zone_has_its_receipts_time(raw: bytes) -> None:
    found = event(raw)
    assert (found.time, found.attributes) == (RECEIVED, {"time": "received"})


def test_host_and_program_become_source_and_subject() -> None:
    found = event(b"<34>Oct 11 22:14:15 mymachine su[17]: m")
    assert (found.source, found.subject) == ("/relp/mymachine", "su")
    found = event(b"<34>m")
    assert (found.source, found.subject) == ("/relp/192.0.2.7", "-")


def test_bytes_that_are_not_utf8_are_kept() -> None:
    raw = b'<14>1 - - - - - [a b="\xe9"] caf\xe9 \x81'
    found = event(raw)
    assert found.json["message"] == "café \ufffd"
    assert found.json["structured_data"] == {"a": {"b": "é"}}
    assert found.attributes["notes"] == ["invalid_utf8"]
    assert b64decode(found.attributes["raw"]) == raw


@pytest.mark.parametrize(
    "raw",
    [
        b'<14>1 2003-10-11T22:14:15Z h a 1 - [meta sequenceId="7"] m',
        b'<14>1 2003-10-11T22:14:15.1Z - a 1 - [meta sequenceId="7"] m',
    ],
)
def test_a_numbered_message_sent_again_is_one_event(raw: bytes) -> None:
    assert event(raw).id == event(raw).id
    assert event(raw).id.startswith("d.")
    assert event(raw).id != event(raw.replace(b'"7"', b'"8"')).id


@pytest.mark.parametrize(
    "raw",
    [
        b"<14>1 2003-10-11T22:14:15.1Z h a 1 - - m",
        b'<14>1 - h a 1 - [meta sequenceId="7"] m',
        b'<14>1 2003-10-11T22:14:15Z - a 1 - [meta sequenceId="7"] m',
        b'<14>1 2003-10-11T22:14:15.1Z h a 1 - [meta ip="7"] m',
        b"<14>Oct 11 22:14:15 h a: m",
    ],
)
def test_equal_messages_without_a_number_are_two_events(raw: bytes) -> None:
    assert event(raw).id.startswith("u.")
    assert event(raw).id != event(raw).id


def test_parameters_are_read_up_to_their_limit() -> None:
    head, more = b"<14>1 - - - - - [a" + b' b="1"' * (PARAMETERS - 1), b' c="2"'
    assert event(head + b"] m").json["structured_data"] == {"a": {"b": ["1"] * (PARAMETERS - 1)}}
    assert event(head + more + b"] m").json["message"] == (head + more + b"] m")[4:].decode()


@pytest.mark.parametrize("text", [b"x" * 1000, b"\n" * 500 + b"x", b"\xe9" * 400])
def test_an_event_has_its_largest_size(text: bytes) -> None:
    raw = b"<13>" + text
    found = event(raw)
    size = len(found.value) + (len(raw) * 4 // 3 if found.attributes.get("raw") else 0)
    assert event(raw, event_bytes=max(size, 1024)).value == found.value
    reject = made(raw, event_bytes=1024) if size > 1024 else made(raw + bytes(100), event_bytes=1024)
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.raw[: len(raw)]) == (Reason.OVERSIZED, raw)
