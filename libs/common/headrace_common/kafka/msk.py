"""Logins at Amazon MSK by IAM: tokens for SASL OAUTHBEARER that AWS's own signer makes.

A token is a URL that is signed with the process's credentials (SigV4, `kafka-cluster:Connect`, 900 s), in base64url. The
credentials come from where every AWS client looks: variables, a role for a service account (IRSA), a pod, a machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

from headrace_common.operations.errors import ConfigError

PIP: Final = "pip install './libs/common[msk]'"


def signer() -> Callable[[], Awaitable[tuple[str, float]]]:
    """Returns a maker of tokens of the identity that this process has at AWS, with the seconds for which each is valid.

    It raises whatever AWS's library raises. Raises `ConfigError` if that is not installed, or if no region is known.
    """
    # as AWS's own clients look for it; a role for a service account sets the first
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError("KAFKA__SASL_MECHANISM AWS_MSK_IAM needs AWS_REGION or AWS_DEFAULT_REGION")
    try:  # tens of megabytes that only this login needs
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError as error:
        raise ConfigError(f"KAFKA__SASL_MECHANISM AWS_MSK_IAM needs AWS's signer ({error}): {PIP}") from error

    async def sign() -> tuple[str, float]:
        try:
            token, ends_ms = await asyncio.to_thread(MSKAuthTokenProvider.generate_auth_token, region)
        except AttributeError as error:  # the signer does not look whether it has found any
            raise ValueError("no credentials of AWS were found") from error
        return token, ends_ms / 1000 - time.time()

    return sign
