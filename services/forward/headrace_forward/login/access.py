"""Makes the handshake's rules from the settings."""

from __future__ import annotations

import socket
from typing import cast

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.networks import Network, network

from headrace_forward.login.handshake import ClientRule, LoginRules
from headrace_forward.settings import ClientSection, ForwardSection


def security(forward: ForwardSection) -> LoginRules | None:
    """Returns the rules for clients; None if every client may send. Resolves host names, once. Raises `ConfigError`
    if one fails.
    """
    if not forward.secured:
        return None
    key = None if forward.shared_key is None else forward.shared_key.get_secret_value().encode()
    users = {name.encode(): password.get_secret_value().encode() for name, password in forward.users.items()}
    rules = [_rule(client, key) for client in forward.clients]
    return LoginRules(forward.server_hostname, key if forward.allow_anonymous_source else None, users, rules)


def _rule(client: ClientSection, key: bytes | None) -> ClientRule:
    own = key if client.shared_key is None else client.shared_key.get_secret_value().encode()
    assert own is not None
    return ClientRule(_networks(client.host), own, frozenset(name.encode() for name in client.users))


def _networks(host: str) -> tuple[Network, ...]:
    try:
        return (network(host),)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"FORWARD__CLIENTS {host}: neither an address nor a network, and not found: {error}"
        ) from error
    return tuple(network(cast("str", address[4][0])) for address in found)
