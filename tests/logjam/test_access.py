"""Who may connect: by address, by key, and how many at a time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
import zmq
import zmq.asyncio
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.networks import networks
from headrace_common.operations.settings import KafkaSettings, environment, load
from headrace_logjam.access import DOMAIN, Access, CurvePair
from headrace_logjam.settings import LogjamSettings

from tests.contract.receiver import HOST
from tests.contract.topic import events
from tests.contract.waiting import PATIENCE, until
from tests.logjam.driving import asking, event
from tests.logjam.test_service import ACCEPTED, Logjam, connected, heard, marked, silent

PUBLIC = "D73jWM3prZk5Zw7X)q:)g3^^6hu(]}mr0WbR]UC!"
SECRET = "Z!TitXa0O4Hrbfdy=UCwh<<jj>!<T8Va?d3a1/P4"


@pytest.mark.parametrize(
    ("allow", "keys", "client", "source"),
    [
        ("", False, None, "127.0.0.1"),
        ("127.0.0.0/8", False, None, "127.0.0.1"),
        ("10.0.0.0/8, 2001:db8::/32", False, None, None),
        ("", True, 0, "shop-1"),
        ("127.0.0.1", True, 0, "shop-1"),
        ("10.0.0.0/8", True, 0, None),
        ("", True, 1, None),  # a stranger's key
        ("", True, None, None),
        ("", False, 0, None),  # no keys here
    ],
)
async def test_who_may_come_and_how_it_is_called(
    context: zmq.asyncio.Context, allow: str, keys: bool, client: int | None, source: str | None
) -> None:
    pair, pairs = CurvePair.of(""), [CurvePair.of("") for _ in range(2)]
    guard = Access(cast("Any", context), networks(allow), {"shop-1": pairs[0].public.decode()} if keys else {})
    guard.start()
    server, visitor = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    server.setsockopt(zmq.ZAP_DOMAIN, DOMAIN.encode())
    if keys:
        pair.serve(cast("Any", server))
    if client is not None:
        pairs[client].ask(cast("Any", visitor), pair.public.decode())
    visitor.setsockopt(zmq.IMMEDIATE, 1)
    visitor.connect(f"tcp://{HOST}:{server.bind_to_random_port(f'tcp://{HOST}')}")
    sent = asyncio.ensure_future(visitor.send(b"x"))
    if source is None:
        assert not await server.poll(300)
        sent.cancel()
    else:
        frame = await asyncio.wait_for(server.recv(copy=False), PATIENCE)
        assert frame.get("User-Id" if keys else "Peer-Address") == source
    guard.stop()


def curve(server: bytes, public: bytes, secret: bytes) -> dict[str, bytes]:
    return {"CURVE_SERVERKEY": server, "CURVE_PUBLICKEY": public, "CURVE_SECRETKEY": secret}


@pytest.mark.kafka
async def test_with_curve_the_name_of_the_key_is_the_source(
    topics: KafkaSettings, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    server, secret = zmq.curve_keypair()
    known, stranger = zmq.curve_keypair(), zmq.curve_keypair()
    section: dict[str, object] = {
        "curve_secret_key": secret.decode(),
        "curve_clients": json.dumps({"shop-1": known[0].decode()}),
        "allow": "127.0.0.1, 10.0.0.0/8",
    }
    with Logjam(topics, tmp_path, logjam=section) as receiver:
        await receiver.start()
        body, other = marked(), marked()
        client = connected(context, zmq.DEALER, receiver.port, **curve(server, *known))
        await client.send_multipart(asking(event(body)))
        assert await heard(client) == ACCEPTED
        push = connected(context, zmq.PUSH, receiver.pull_port, **curve(server, *known))
        await push.send_multipart(event(other))
        for each in (body, other):
            (stored,) = await until(lambda each=each: events(topics, each["mark"]), "it is stored")
            assert stored["ce_source"] == "/logjam/shop-1"
        elsewhere = f"127.0.0.3:0;{HOST}:{receiver.port}"
        for refused, port, keys in ((1, receiver.port, stranger), (2, elsewhere, known)):
            client = connected(context, zmq.DEALER, port, **curve(server, *keys))
            await client.send_multipart(asking(event(marked())))  # at once: one that was refused waits for ever to send
            await receiver.shows(refused, "connections_closed_total", why="handshake")
            await silent(client, 0.2)
        assert receiver.lines("client refused")[-1]["peer"] == "127.0.0.3"
        assert receiver.lines("any host that reaches the ports may connect") == []


@pytest.mark.parametrize(
    ("section", "values", "says"),
    [
        ("logjam", {"allow": "nowhere"}, "'nowhere' is neither an address nor a network"),
        ("logjam", {"curve_secret_key": "x"}, "HEADRACE_LOGJAM__CURVE_SECRET_KEY: not a CURVE key"),
        (
            "logjam",
            {"curve_secret_key": SECRET},
            "CURVE_SECRET_KEY needs LOGJAM__CURVE_CLIENTS or LOGJAM__CURVE_DEVICES",
        ),
        ("logjam", {"curve_clients": json.dumps({"a": PUBLIC})}, "CURVE_CLIENTS needs LOGJAM__CURVE_SECRET_KEY"),
        ("logjam", {"curve_devices": json.dumps({"a": PUBLIC})}, "CURVE_DEVICES: a: no endpoint is called so"),
        ("logjam", {"pub_port": 9606}, "PUB_PORT needs LOGJAM__DEVICE"),
        ("logjam", {"endpoints": '{"a": "http://x"}'}, "ENDPOINTS__A: String should match"),
        ("logjam", {"endpoints": "tcp://x:1"}, "HEADRACE_LOGJAM__ENDPOINTS: Input should be a valid dictionary"),
        ("tls", {"cert": "/a.pem", "key": "/b.pem"}, "TLS__CERT means nothing to ZeroMQ"),
        ("tls", {"minimum": "1.3"}, "TLS__MINIMUM means nothing to ZeroMQ"),
        ("listen", {"trusted_proxies": "10.0.0.1"}, "LISTEN__TRUSTED_PROXIES means nothing to ZeroMQ"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_that_are_wrong_or_mean_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, section: str, values: dict[str, object], says: str
) -> None:
    for name, value in environment(section, **values).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as refused:
        load(LogjamSettings)
    assert says in str(refused.value)
    assert SECRET not in str(refused.value)
