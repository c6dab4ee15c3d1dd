"""The rules of a sound record, on both sides of each limit."""

from __future__ import annotations

import pytest
from headrace_common.record.contract import EVENT_RULES, HEADERS, QUARANTINE_HEADERS, QUARANTINE_RULES

SOUND = {
    "ce_specversion": ["1.0"],
    "ce_id": ["d." + "0" * 32, "u." + "f" * 32],
    "ce_source": ["/", "/forward/host"],
    "ce_type": ["headrace.x", "headrace.forward.event"],
    "ce_subject": ["-", "ü"],
    "ce_time": ["2026-05-06T07:08:09Z", "2026-05-06t07:08:09.123456789+02:00"],
    "content-type": ["x", "application/json"],
    "ce_attributes": ["{}", '{"index":1}'],
    "reason": ["bad_json"],
    "part": ["1/1", "12/345"],
}
FAULTY = {
    "ce_specversion": ["", "1.1", "1.0 "],
    "ce_id": ["", "x." + "0" * 32, "d." + "0" * 31, "d." + "0" * 33, "d." + "ü" * 32],
    "ce_source": ["", "forward/host"],
    "ce_type": ["headrace.", "com.example.event", "headrace"],
    "ce_subject": [""],
    "ce_time": [
        "",
        "2026-05-06",
        "2026-05-06 07:08:09Z",
        "2026-05-06T07:08:09",
        "2026-05-06T07:08:09Z\n",
        "٢026-05-06T07:08:09Z",
    ],
    "content-type": [""],
    "ce_attributes": ["", "[]", "{}x"],
    "reason": [""],
    "part": ["", "1", "1/", "1/x", " 1/1"],
}
RULES = {**{str(name): rule for name, rule in QUARANTINE_RULES.items()}, **EVENT_RULES}


def test_each_header_has_a_rule_in_the_order_of_the_contract() -> None:
    assert tuple(EVENT_RULES) == HEADERS
    assert tuple(QUARANTINE_RULES) == QUARANTINE_HEADERS


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in SOUND.items() for text in texts])
def test_sound(name: str, text: str) -> None:
    assert RULES[name].obeyed(text)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FAULTY.items() for text in texts])
def test_faulty(name: str, text: str) -> None:
    assert not RULES[name].obeyed(text)
