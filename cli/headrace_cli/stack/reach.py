"""Whether brokers that are not ours can be reached, and if not, why: Kafka's own client says so only after a minute."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

CONNECT_SECONDS: Final = 2.0


async def unreachable(bootstrap: str) -> str | None:
    """Why none of `bootstrap` (HOST:PORT, several with commas) takes a connection; None if one does.

    Takes a few seconds at most.
    """
    places = [item.strip().rpartition(":") for item in bootstrap.split(",")]
    found = await asyncio.gather(*(_connect(host.strip("[]"), int(port)) for host, _, port in places))
    return None if None in found else "; ".join(problem for problem in found if problem is not None)


async def _connect(host: str, port: int) -> str | None:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{host}:{port} does not answer"
    except socket.gaierror:
        return f"{host} does not resolve"
    except OSError as error:
        return f"{host}:{port} cannot be reached ({error.strerror or error})"
    writer.close()
    return None
