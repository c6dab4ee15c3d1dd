"""The stack's own CURVE keys, for trying ZeroMQ with encryption on one machine. They are made once and kept beside the
certificates.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zmq

from headrace_cli.errors import CommandError
from headrace_cli.stack.state import replace_file

CLIENT: Final = "client"
"""What the client that has the other pair of keys is called in the source of its events."""


@dataclass(frozen=True)
class CurveKeys:
    """Files of one line, each a key in Z85: the receiver's pair and a client's."""

    folder: Path

    @property
    def server(self) -> tuple[Path, Path]:
        """The public and the secret key."""
        return self.folder / "curve.pub", self.folder / "curve.key"

    @property
    def client(self) -> tuple[Path, Path]:
        return self.folder / "curve-client.pub", self.folder / "curve-client.key"


def ensure(folder: Path) -> CurveKeys:
    """Make the pairs that are missing. Raises `CommandError` when the folder cannot be used."""
    made = CurveKeys(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for public, secret in (made.server, made.client):
            if not secret.exists():
                replace_file(secret, zmq.curve_keypair()[1] + b"\n")
            replace_file(public, zmq.curve_public(secret.read_bytes().strip()) + b"\n", 0o644)
    except (OSError, ValueError, zmq.ZMQError) as error:
        raise CommandError(f"The keys in {folder} cannot be used: {error}.") from error
    return made
