"""Syslog: messages of RFC 5424 and 3164, and text; in RELP and without it."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.fuzz.chance import Chance
from tests.fuzz.truth import ADDRESS, RANDOM, RECEIVED, Part, Told, base64, named, source, text_of, tree
from tests.fuzz.truth.values import NO_UTF8, moment, word

TEXTS: Final = (*NO_UTF8, b"", b"m", b"a\0b\n\nc", b" x", b"\xef\xbb", b"]", b"<1>", '"é\\'.encode())
PLAIN: Final = ("", "a", "h1.example.org", "[x", "~" * 255)


def told(s: Chance) -> Told:
    found = Told()
    greeting = b"relp_version=1"
    found.sent.append([b"1 open %d %b\n" % (len(greeting), greeting)])
    for number in range(2, 2 + s.choice((0, 1, 2, 9))):
        raw, part = message(s, "relp")
        data = b" " + raw if raw or s.perhaps(0.5) else b""
        found.sent.append([b"%d syslog %d%b\n" % (number, len(raw), data)])
        found.parts.append(part)
        found.replies.append((number, b"200 OK"))
    return found


def streamed(s: Chance) -> Told:
    """Messages behind their counts, and lines."""
    found = Told()
    for _ in range(s.choice((0, 1, 2, 9))):
        raw, part = message(s, "syslog")
        if s.perhaps(0.5) or b"\n" in raw or b"\0" in raw:
            data = b"%d %b%b" % (len(raw), raw, s.choice((b"", b"\n")))
        else:
            data = raw + s.choice((b"\n", b"\0", b"\r\n"))
        found.sent.append([data])
        found.parts.append(part)
    if s.perhaps(0.2):
        found.sent.append([b"(a"])
        found.parts.append(_part("syslog", b"(a", {"facility": 1, "severity": 5}, b"(a"))
    return found


def message(s: Chance, protocol: str) -> tuple[bytes, Part]:
    """A message, and the event that it is."""
    priority, text = s.randrange(192), s.choice(TEXTS)
    body: dict[str, Any] = {"facility": priority // 8, "severity": priority % 8}
    if s.perhaps(0.2):
        raw = b"<%d>%b" % (priority, b"(" + text)
        return raw, _part(protocol, raw, body, b"(" + text)
    if s.perhaps(0.3):
        written, tag, pid = "Oct 11 22:14:15", s.choice(("su", "a/b")), s.choice(("", "[17]"))
        host = s.choice(("", "h1", "10.0.0.1"))
        old = f"<{priority}>{written} {host}{' ' * bool(host)}{tag}{pid}: ".encode()
        body |= {"timestamp": written, "hostname": host, "app_name": tag, "proc_id": pid[1:-1]}
        return old + text, _part(protocol, old + text, body, text)
    written, time = moment(s)
    if " " in written or not written:
        written, time = "-", None
    names = [s.choice(PLAIN) for _ in range(4)]
    head = " ".join([f"<{priority}>1", written, *(name or "-" for name in names), ""]).encode()
    data, elements = _elements(s)
    behind = b" " + text if text or s.perhaps(0.5) else b""
    raw = head + data + behind
    body |= {"timestamp": "" if written == "-" else written} | dict(
        zip(("hostname", "app_name", "proc_id", "msg_id"), names, strict=True)
    )
    body["structured_data"] = elements
    meta = "sequenceId" in elements.get("meta", {}) and bool(body["timestamp"]) and bool(names[0] or "." in written)
    name = named(protocol.encode(), raw) if meta and protocol == "relp" else RANDOM
    return raw, _part(protocol, raw, body, text, time, name)


def _elements(s: Chance) -> tuple[bytes, dict[str, Any]]:
    written, found = b"", dict[str, Any]()
    for name in s.sample(("meta", "a@1", "x"), s.randrange(4)):
        written += b"[" + name.encode()
        pairs = found.setdefault(name, {})
        for key in s.choices(("sequenceId", "ip", "q"), k=s.randrange(4)):
            value = s.choice((word(s).encode(), b"7", b"\xe9", b'"]\\x'))
            escaped = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"]", b"\\]")
            written += b" " + key.encode() + b'="' + escaped + b'"'
            pairs.setdefault(key, []).append(text_of(value))
        for key, values in pairs.items():
            pairs[key] = values if len(values) > 1 else values[0]
        written += b"]"
    return written or b"-", found


def _part(
    protocol: str, raw: bytes, body: dict[str, Any], text: bytes, time: str | None = None, name: str = RANDOM
) -> Part:
    subject, host = body.get("app_name") or "-", body.get("hostname") or ADDRESS
    stored = {key: value for key, value in body.items() if value or key in ("facility", "severity")}
    stored["message"] = text_of(text.removesuffix(b"\n"))
    about: dict[str, Any] = {} if time else {"time": "received"}
    try:
        raw.decode()
    except UnicodeDecodeError:
        about |= {"notes": ["invalid_utf8"], "raw": base64(raw)}
    written = tree(json.dumps(stored).encode())
    return Part(written, name, subject, source(protocol, host), time or RECEIVED, about)
