"""Logins at Amazon MSK by IAM: tokens for SASL OAUTHBEARER that AWS's own signer makes.

A token is a URL that is signed with the process's credentials (SigV4, `kafka-cluster:Connect`, 900 s), in base64url. The
credentials come from where every AWS client looks: variables, a role for a service account (IRSA), a pod, a machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from headrace_common.kafka.tokens import FETCH_TIME, SharedToken
from headrace_common.operations.errors import ConfigError
from headrace_common.operations.settings import KafkaSettings

PIP: Final = "pip install 'headrace-common[msk]'"

_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""Variables from which AWS's own clients take a region; a role for a service account sets the first."""


class MskTokens(SharedToken):
    """Tokens of the identity that this process has at AWS."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Imports AWS's signer. Raises `ConfigError` if it is not installed, or if no region is known."""
        super().__init__(settings)
        region = next((os.environ[name] for name in _REGIONS if os.environ.get(name)), "")
        if not region:
            raise ConfigError(f"KAFKA__SASL_MECHANISM AWS_MSK_IAM needs {' or '.join(_REGIONS)}")
        self._sign = _signer(region)

    @property
    @override
    def origin(self) -> str:
        return "AWS's signer"

    @override
    async def fetch(self) -> tuple[str, float]:
        try:
            async with asyncio.timeout(self.fetch_time):
                token, ends_ms = await asyncio.to_thread(self._sign)
        except TimeoutError:
            raise self.error(f"no credentials within {self.fetch_time:g} s") from None
        except Exception as error:  # whatever its sources of credentials raise
            raise self.error(str(error) or type(error).__name__) from None
        return token, ends_ms / 1000 - time.time()


def _signer(region: str) -> Callable[[], tuple[str, int]]:
    """Returns a maker of a token and of the time of its end (Unix, ms). It may block, and raises what AWS's library raises."""
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
    limits = Config(connect_timeout=FETCH_TIME / 2, read_timeout=FETCH_TIME / 2, retries={"total_max_attempts": 1})
    session.set_default_client_config(limits)

    class Found(CredentialProvider):  # type: ignore[misc]  # botocore has no types
        """The credentials as they are now. The session renews those that end."""

        def load(self) -> Any:
            found = session.get_credentials()
            if found is None:
                raise NoCredentialsError
            return found.get_frozen_credentials()

    def sign() -> tuple[str, int]:
        made: tuple[str, int] = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Found())
        return made

    return sign
