"""Ports that nobody else is given before they are used: other workers, and all who connect, are given ports all the time."""

from __future__ import annotations

import socket
import sys

HOST = "127.0.0.1"


class Reserved:
    """A free `port` of the loopback interface, until it is given back.

    On Linux who sets SO_REUSEADDR, as every server does, can listen there all the same. Elsewhere nobody could, so it is not
    held: it was free a moment ago, and no more.
    """

    def __init__(self) -> None:
        self._holds = socket.socket()
        self._holds.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holds.bind((HOST, 0))
        self.port: int = self._holds.getsockname()[1]
        if sys.platform != "linux":
            self._holds.close()

    def give_back(self) -> None:
        self._holds.close()
