"""Amazon MSK's login: what its tokens are, for how long they are used, and what is said when there is none.

Nobody is asked: the signer signs with the credentials that it finds, here in variables.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from headrace_common.kafka import tokens
from headrace_common.kafka.client import client_arguments
from headrace_common.kafka.msk import PIP
from headrace_common.kafka.tokens import TokenError, shared_token
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings

REGION = "eu-central-1"
KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


def by_iam(**other: Any) -> KafkaSettings:
    return KafkaSettings(**{"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM", **other})


@pytest.fixture(autouse=True)
def at_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This process has credentials, and finds no others."""
    monkeypatch.setattr(tokens, "TOKEN_PAUSE", 0.0)
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


async def test_no_region_or_signer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=f"^[^\n]+{re.escape(PIP)}$"):
        client_arguments(by_iam())
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(ConfigError, match=r"needs AWS_REGION or AWS_DEFAULT_REGION$"):
        client_arguments(by_iam())


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"), "no credentials of AWS"),
        (("SECRET_ACCESS_KEY",), "Partial credentials found"),
    ],
)
async def test_no_credentials(monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], says: str) -> None:
    for name in missing:
        monkeypatch.delenv(f"AWS_{name}")
    with pytest.raises(TokenError, match=f"no token from AWS's signer: {says}"):
        await shared_token(by_iam()).token()
