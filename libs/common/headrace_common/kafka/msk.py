"""Logins at Amazon MSK by IAM: tokens for SASL OAUTHBEARER that AWS's own signer makes.

A token is a URL that is signed with the process's credentials (SigV4, `kafka-cluster:Connect`, 900 s), in base64url. The
credentials come from where every AWS client looks: variables, a role for a service account (IRSA), a pod, a machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from headrace_common.operations.errors import ConfigError

PIP: Final = "pip install './libs/common[msk]'"

_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""Variables from which AWS's own clients take a region; a role for a service account sets the first."""


def signer(fetch_time: float) -> Callable[[], Awaitable[tuple[str, float]]]:
    """Returns a maker of tokens of the identity that this process has at AWS, with the seconds for which each is valid.

    It raises whatever AWS's library raises. Raises `ConfigError` if that is not installed, or if no region is known.
    """
    region = next((os.environ[name] for name in _REGIONS if os.environ.get(name)), "")
    if not region:
        raise ConfigError(f"KAFKA__SASL_MECHANISM AWS_MSK_IAM needs {' or '.join(_REGIONS)}")
    try:  # tens of megabytes that only this login needs
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore.config import Config
        from botocore.credentials import CredentialProvider
        from botocore.exceptions import NoCredentialsError
        from botocore.session import Session
    except ImportError as error:
        raise ConfigError(f"KAFKA__SASL_MECHANISM AWS_MSK_IAM needs AWS's signer ({error}): {PIP}") from error

    session = Session()
    # A thread that waits for STS cannot be stopped, and a process that ends waits for its threads.
    limits = Config(connect_timeout=fetch_time / 2, read_timeout=fetch_time / 2, retries={"total_max_attempts": 1})
    session.set_default_client_config(limits)

    class Found(CredentialProvider):  # type: ignore[misc]  # botocore has no types
        """The credentials as they are now. The session renews those that end."""

        def load(self) -> Any:
            found = session.get_credentials()
            if found is None:
                raise NoCredentialsError
            return found.get_frozen_credentials()

    async def sign() -> tuple[str, float]:
        make = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider
        token, ends_ms = await asyncio.to_thread(make, region, Found())
        return token, ends_ms / 1000 - time.time()

    return sign
