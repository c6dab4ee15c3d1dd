# ruff: noqa: E501
"""The product with one rule changed: a limit, a byte of an event, its id, its time, a login. The truth must tell each from the real one."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_INFLATE: Final = "headrace_common.session.inflate"
_WIN: Final = "headrace_common.record.windows_1252"
_JSON: Final = "headrace_common.record.json_object"
_CODE: Final = "headrace_common.record.transcoding"
_EVENTS: Final = "headrace_common.session.json_events"
_NAMES: Final = "headrace_lumberjack.identity"
_LOGIN: Final = "headrace_forward.handshake"
_BUILD: Final = "headrace_forward.entries.builder"
_MESSAGE: Final = "headrace_forward.events.message"

# fmt: off
MUTANTS: Final = (
    Mutant("ratio-dropped", _INFLATE, "size * limits.ratio", "1 << 62"),
    Mutant("ratio-of-one-more", _INFLATE, "size * limits.ratio", "(size + 1) * limits.ratio"),
    Mutant("ratio-reached", _INFLATE, "self._total > self._allowed:", "self._total >= self._allowed:"),
    Mutant("ratio-halved", _INFLATE, "size * limits.ratio", "size * limits.ratio // 2"),
    Mutant("ratio-from-less", _INFLATE, "self._total > self._limits.ratio_from and", "self._total >= self._limits.ratio_from and"),
    Mutant("ratio-anywhere", _INFLATE, "self._total > self._limits.ratio_from and ", ""),
    Mutant("total-reached", _INFLATE, "self._total > self._limits.total:", "self._total >= self._limits.total:"),
    Mutant("total-never", _INFLATE, "self._total > self._limits.total:", "False:"),
    Mutant("members-cut", _INFLATE, "while position < len(view):", "if position < len(view):"),
    Mutant("decimals-uncut", _JSON, '(found[3] or "")[:DECIMALS]', '(found[3] or "")', "courier"),
    Mutant("offset-added", _JSON, "seconds -= offset", "seconds += offset", "courier"),
    Mutant("offset-in-hours", _JSON, "(hours * 60 + minutes)", "(hours * 60)", "lumberjack"),
    Mutant("deep-is-at-the-limit", _JSON, "finish(deepest(raw)) > self._depth", "finish(deepest(raw)) >= self._depth", "courier"),
    Mutant("never-deep", _JSON, "may_be_deep(raw, self._depth) and finish", "False and finish", "logjam"),
    Mutant("origin-by-agent-alone", _NAMES, "(written, agent.id, agent.ephemeral_id, stream, dataset)", "(written, agent.id, stream, dataset)", "lumberjack"),
    Mutant("origin-of-any-dataset", _NAMES, "(written, agent.id, agent.ephemeral_id, stream, dataset)", "(written, agent.id, agent.ephemeral_id, stream)", "lumberjack"),
    Mutant("origin-of-any-stream", _NAMES, "(written, agent.id, agent.ephemeral_id, stream, dataset)", "(written, agent.id, agent.ephemeral_id, dataset)", "lumberjack"),
    Mutant("name-without-its-time", _NAMES, "hashed_field(fields.time.encode()), ", "", "lumberjack"),
    Mutant("name-without-its-place", _NAMES, 'begun + hashed_field(b"%d" % log.offset)', "begun", "lumberjack"),
    Mutant("canonical-as-spelled", _NAMES, "option=orjson.OPT_SORT_KEYS", "option=0", "lumberjack"),
    Mutant("host-of-any-length", _EVENTS, "len(text) <= NAME_BYTES and", "True or", "lumberjack"),
    Mutant("beat-before-index", "headrace_lumberjack.fields", "metadata.raw_index or metadata.index or metadata.beat", "metadata.beat or metadata.index or metadata.raw_index", "lumberjack"),
    Mutant("a-key-of-one-more", "headrace_lumberjack.wire", "if size > (self._limits.key if", "if size > 1 + (self._limits.key if", "lumberjack"),
    Mutant("a-pair-more", "headrace_lumberjack.wire", "count > self._limits.pairs", "count > self._limits.pairs + 1", "lumberjack"),
    Mutant("a-window-more", "headrace_lumberjack.wire", "count > self._limits.window", "count > self._limits.window + 1", "lumberjack"),
    Mutant("counted-from-the-front", "headrace_courier.events", "left = self.count - index", "left = index", "courier"),
    Mutant("oversized-at-the-limit", _EVENTS, "if size > most:", "if size >= most:", "courier"),
    Mutant("path-before-type", "headrace_courier.events", "filter(None, (fields.type, fields.path))", "filter(None, (fields.path, fields.type))", "courier"),
    Mutant("nonce-unhashed", "headrace_courier.events", "deterministic_id(PROTOCOL, self._payload.nonce,", "deterministic_id(PROTOCOL, b'',", "courier"),
    Mutant("an-entry-too-large", "headrace_courier.wire", "size > self._largest", "size > self._largest + 1", "courier"),
    Mutant("a-message-too-large", "headrace_courier.wire", '        if not endless and length > self._frame_bytes:\n            raise ProtocolError(f"a message of {length} bytes", limit=FRAME_BYTES)\n', "", "courier"),
    Mutant("ids-without-the-tag", "headrace_forward.entries.ids", "(tag, chunk, client) if client else (tag, chunk)", "(chunk, client) if client else (chunk,)"),
    Mutant("a-year-more", "headrace_forward.entries.ids", "- now) > NEAR", "- now) > NEAR + 1"),
    Mutant("a-year-less", "headrace_forward.entries.ids", "- now) > NEAR", "- now) >= NEAR"),
    Mutant("hex-is-no-hash", "headrace_forward.entries.ids", "if len(chunk) == 32:", "if len(chunk) == 33:"),
    Mutant("nanoseconds-not-carried", "headrace_forward.entries.values", "rfc3339(time.seconds + carry, nanoseconds)", "rfc3339(time.seconds, nanoseconds)"),
    Mutant("group-swapped", _BUILD, "GROUPS.get(time) if", "GROUPS.get(-3 - time if type(time) is int else time) if"),
    Mutant("attributes-not-counted", _BUILD, "len(value) + len(encoded) > self.event_bytes", "len(value) > self.event_bytes"),
    Mutant("levels-one-more", _CODE, "if len(opened) >= self._depth:", "if len(opened) > self._depth:"),
    Mutant("key-unnoted", _CODE, "self.notes.add(Note.OTHER_KEYS)", "pass"),
    Mutant("repeats-unnoted", _CODE, "self.notes.add(Note.REPEATED_KEYS)", "pass"),
    Mutant("numbers-unnoted", _CODE, "self.notes.add(Note.NUMBERS)", "pass"),
    Mutant("raw-of-what-was-read", _WIN, "noted((Note.INVALID_UTF8,), self.raw)", "noted((Note.INVALID_UTF8,), self.value)", "courier"),
    Mutant("infinity-positive", _CODE, 'if number > 0 else b\'"-Infinity"\'', 'if True else b\'"-Infinity"\''),
    Mutant("integers-signed", _CODE, "signed=byte >= _SIGNED", "signed=True"),
    Mutant("tag-one-more", _MESSAGE, "most = self._limits.tag_bytes", "most = self._limits.tag_bytes + 1"),
    Mutant("option-at-the-limit", _MESSAGE, "if len(message.element(message.option_index)) > self", "if len(message.element(message.option_index)) >= self"),
    Mutant("chunk-one-more", "headrace_forward.session", "len(option.chunk) > self._chunk_bytes", "len(option.chunk) > self._chunk_bytes + 1"),
    Mutant("login-without-nonce", _LOGIN, "_digest(salt, hostname, self._nonce, self._key), digest", "_digest(salt, hostname, b'', self._key), digest"),
    Mutant("login-with-any-key", _LOGIN, "if not hmac.compare_digest(_digest(salt, hostname, self._nonce, self._key), digest):", "if False:"),
    Mutant("login-with-the-wrong-key", _LOGIN, "if not hmac.compare_digest(_digest(salt", "if hmac.compare_digest(_digest(salt"),
    Mutant("login-without-its-name", _LOGIN, "_digest(salt, hostname, self._nonce, self._key), digest", "_digest(salt, b'', self._nonce, self._key), digest"),
    Mutant("any-user", _LOGIN, "if self._users and not self._is_user", "if False and not self._is_user"),
    Mutant("any-password", _LOGIN, "right and password is not None", "password is not None"),
    Mutant("unknown-user", _LOGIN, "right and password is not None", "right"),
    Mutant("app-env-of-one-more", "headrace_logjam.wire", "return len(frame) <= NAME_BYTES and _is_name", "return len(frame) <= NAME_BYTES + 1 and _is_name", "logjam"),
    Mutant("a-body-more", "headrace_logjam.wire", "if size > limits.event:", "if size > limits.event + 1:", "logjam"),
    Mutant("created-before-started", "headrace_logjam.events", "if started is not None and", "if created_ms == 0 and started is not None and", "logjam"),
    Mutant("a-name-is-none", "headrace_logjam.events", "if fields.named else unique_id()", "if not fields.named else unique_id()", "logjam"),
    Mutant("level-before", "headrace_segment.events", "yield self.before + at, _packed(self.before + at)", "yield self.before + at, _packed(self.before + start)", "segment"),
    Mutant("an-event-more", "headrace_segment.events", "if len(data) > limit:", "if len(data) > limit + 1:", "segment"),
)
