"""The rights of a client to a segment: by the client's certificate, and by Pravega's delegation tokens.

========================  ==============================================================================================
a client has              the rights
========================  ==============================================================================================
a certificate             that SEGMENT__RIGHTS gives its subject
any connection            that SEGMENT__RIGHTS gives `*`
a token, signed by the    READ: to read. READ_UPDATE: all. Of the segments that its claims name: `*`, a scope, or a stream
key SEGMENT__TOKEN_KEY
neither setting is given  to read, append and create; from this host, all
========================  ==============================================================================================

A token is a JWT with an HMAC, as Pravega's controller makes them (HS512). Requests for which Pravega demands READ need `read`,
and those for which it demands READ_UPDATE one of the other rights.
"""

from __future__ import annotations

import binascii
import hmac
import ipaddress
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:  # the command line reads the rights' names at each start
    from headrace_common.session.interface import Peer

ANYBODY: Final = "*"
_DIGESTS: Final = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}
_DECORATION: Final = re.compile("prn::|/scope:|stream:")
_KNOWN_TOKENS: Final = 1024
_LONGEST_KNOWN: Final = 4 << 10
"""Tokens whose content is kept, and the longest of them in bytes: clients choose the texts, and refused ones are kept, too."""


class Right(StrEnum):
    """A right of a client to a segment."""

    READ = "read"
    APPEND = "append"
    CREATE = "create"
    DESTROY = "destroy"
    """Seal, truncate and delete."""


ALL: Final = frozenset(Right)
_BY_PERMISSION: Final = {"READ": frozenset({Right.READ}), "READ_UPDATE": ALL}


class Permission(StrEnum):
    """Whether a client has a right."""

    YES = "yes"
    NO = "no"
    EXPIRED = "expired"
    """It would have it if its token were younger."""


@dataclass(frozen=True, slots=True)
class Token:
    """The content of a token that is signed with our key. `until`: its end (Unix, s), if it has one."""

    claims: Mapping[str, Any]
    until: float | None

    def gives(self, right: Right, segment: str) -> bool:
        """Returns whether one of its claims is about the segment, and gives this right."""
        return any(
            right in _BY_PERMISSION.get(str(permission), ()) and _is_about(resource, segment)
            for resource, permission in self.claims.items()
        )


class Rights:
    """The rights given by the settings. `token_key`: may be empty; `refused` is called for each refusal."""

    def __init__(
        self,
        rights: Mapping[str, frozenset[Right]],
        token_key: bytes,
        refused: Callable[[Peer, str, Right], None] = lambda peer, segment, right: None,
    ) -> None:
        self._rights = rights
        self._refused = refused
        self._key = token_key
        self._read = lru_cache(_KNOWN_TOKENS)(self._verify)

    def may(self, peer: Peer, right: Right, segment: str, token: str = "", now_ms: int = 0) -> Permission:
        """Returns whether the client may do this now."""
        if right in self._of(peer):
            return Permission.YES
        read = self._read if len(token) <= _LONGEST_KNOWN else self._verify
        known = read(token) if self._key and token else None
        if known is not None and known.gives(right, segment):
            if known.until is None or now_ms < known.until * 1000:
                return Permission.YES
            self._refused(peer, segment, right)
            return Permission.EXPIRED
        self._refused(peer, segment, right)
        return Permission.NO

    def _of(self, peer: Peer) -> frozenset[Right]:
        if not self._rights and not self._key:
            return ALL if _is_here(peer) else ALL - {Right.DESTROY}
        named = self._rights.get(peer.identity, frozenset()) if peer.certified else frozenset()
        return named | self._rights.get(ANYBODY, frozenset())

    def _verify(self, text: str) -> Token | None:
        """Returns the content of the token; None if it is malformed or not signed with our key."""
        try:
            signed, _, signature = text.encode("ascii").rpartition(b".")
            head, payload = (orjson.loads(_decode(part)) for part in signed.split(b"."))
            digest = _DIGESTS[head["alg"]]
            if not hmac.compare_digest(hmac.digest(self._key, signed, digest), _decode(signature)):
                return None
            until = payload.get("exp")
            return Token(payload, None if until is None else float(until))
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            return None


EVERYTHING: Final = Rights({ANYBODY: ALL}, b"")
"""All clients have all rights."""


def _decode(part: bytes) -> bytes:
    return urlsafe_b64decode(part + b"=" * (-len(part) % 4))


def _is_about(resource: str, segment: str) -> bool:
    name = _DECORATION.sub("", resource)
    return name in (ANYBODY, segment) or segment.startswith(name if name.endswith("/") else name + "/")


def _is_here(peer: Peer) -> bool:
    """Returns whether the client is on this host: it came by loopback."""
    address = ipaddress.ip_address(peer.address)
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)
