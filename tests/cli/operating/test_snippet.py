"""`headrace snippet`: each client's configuration, for the stack that runs, with and without TLS."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
import yaml
from headrace_cli.ground import CommandError
from headrace_cli.operating.snippets import CLIENTS, NAMED, Address, SnippetClient, snippet

from tests.cli.conftest import Running
from tests.contract.conftest import DIALECTS
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import HOST, Receiver
from tests.contract.topic import events, own_topics
from tests.contract.waiting import until

PLAIN = Address("logs.example.org", 4711)
TLS = Address("logs.example.org", 4711, "/etc/ca.pem")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.snippet.name)
def test_a_client_has_the_address_or_says_why_not(client: SnippetClient) -> None:
    for address, found, why in (
        (PLAIN, client.snippet.plain, client.snippet.plain_note),
        (TLS, client.snippet.tls, client.snippet.tls_note),
    ):
        assert bool(found) is not bool(why)
        if why:
            with pytest.raises(CommandError, match=re.escape(why)):
                client.text(address)
            continue
        text = client.text(address)
        assert "logs.example.org" in text
        assert "4711" in text
        assert ("/etc/ca.pem" in text) is bool(address.ca)
        assert "$" not in text


@pytest.mark.parametrize("address", [PLAIN, TLS])
def test_what_is_yaml_is_yaml(address: Address) -> None:
    beats = yaml.safe_load(NAMED["filebeat"].text(address))["output.logstash"]
    assert beats["hosts"] == ["logs.example.org:4711"]
    assert beats.get("ssl.certificate_authorities") == ([address.ca] if address.ca else None)
    courier = yaml.safe_load(NAMED["log-courier"].text(address))["network"]
    assert courier["servers"] == ["logs.example.org:4711"]
    assert courier["transport"] == ("tls" if address.ca else "tcp")
    assert courier.get("ssl ca", "") == address.ca


def test_the_addresses_are_the_stacks(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    path = running(services={"lumberjack": {"listen": "127.0.0.1:6044", "ca": "/x/ca.pem", "keys": None}}).path
    assert snippet("filebeat", path) == 0
    assert '"127.0.0.1:6044"' in capsys.readouterr().out
    assert snippet("logstash", path, "logs.example.org") == 0
    out = capsys.readouterr().out
    assert 'hosts => ["logs.example.org"]' in out
    assert "/x/ca.pem" in out


def test_an_address_that_nobody_can_connect_to_is_replaced(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    path = running(services={"forward": {"listen": "0.0.0.0:24224", "ca": None}}).path
    assert snippet("fluentd", path) == 0
    assert "0.0.0.0" not in capsys.readouterr().out


def test_a_stack_that_cannot_serve_the_client(running: Running) -> None:
    logjam = {"listen": "127.0.0.1:9604", "ca": None, "keys": "/x"}
    path = running(services={"logjam": logjam, "forward": {"listen": "h:1", "ca": "/x"}}).path
    with pytest.raises(CommandError, match="speaks no CURVE"):
        snippet("logjam", path)
    with pytest.raises(CommandError, match="speaks no TLS"):
        snippet("python", path)
    with pytest.raises(CommandError, match="runs without lumberjack"):
        snippet("filebeat", path)


def test_without_a_stack_it_is_for_the_usual_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snippet("filebeat", tmp_path) == 0
    said = capsys.readouterr()
    assert "127.0.0.1:5044" in said.out
    assert "Nothing runs" in said.err


@pytest.mark.kafka
async def test_a_logger_configured_so_is_heard(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topics = await asyncio.to_thread(own_topics, kafka.bootstrap)
    (forward,) = (each for each in DIALECTS if each.name == "forward" and not each.variant)
    receiver = Receiver.of(forward, topics, tmp_path)
    receiver.spawn()
    try:
        await receiver.listens()
        program = NAMED["python"].text(Address(HOST, receiver.port)) + "logger.close()\n"
        await asyncio.to_thread(exec, program, {})
        found = await until(lambda: events(topics), "the event")
    finally:
        receiver.stop()
    assert [(event.json, event["ce_subject"]) for event in found] == [({"message": "hello"}, "app.web")]
