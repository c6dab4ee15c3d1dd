"""`headrace snippet`: each client's configuration, for the stack that runs, with and without TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from headrace_cli.ground import CommandError
from headrace_cli.verbs.snippet import CLIENTS, PORTS, configuration, snippet

from tests.cli.conftest import Running


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_has_the_address_or_says_why_not(client: str) -> None:
    assert CLIENTS[client].parent.name in PORTS
    for trust in ("", "/etc/ca.pem"):
        text = configuration(client, "logs.example.org", 4711, trust)
        assert "$" not in text
        speaks = "logs.example.org" in text
        assert speaks or (client, trust) in {("python", "/etc/ca.pem"), ("logjam", "/etc/ca.pem"), ("logstash", "")}
        assert ("4711" in text) is speaks
        assert ("/etc/ca.pem" in text) is (speaks and bool(trust))
        if client in ("filebeat", "log-courier"):
            (told,) = yaml.safe_load(text).keys() & {"output.logstash", "network"}
            assert told


def test_the_addresses_are_the_stacks_or_the_usual_ones(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert snippet("filebeat", tmp_path) == 0
    assert "127.0.0.1:5044" in capsys.readouterr().out
    services = {"lumberjack": {"address": "127.0.0.1:6044"}, "forward": {"address": "0.0.0.0:24224"}}
    path = running(services=services).path
    assert snippet("logstash", path, "logs.example.org", "/x/ca.pem") == 0
    out = capsys.readouterr().out
    assert 'hosts => ["logs.example.org"]' in out
    assert "6044" in out
    assert "/x/ca.pem" in out
    assert snippet("fluentd", path) == 0
    assert "0.0.0.0" not in capsys.readouterr().out
    with pytest.raises(CommandError, match="runs without courier"):
        snippet("log-courier", path)
