"""A receiver in a container, in the network of this machine, where the tests' broker is."""

from __future__ import annotations

import signal
from typing import Any

from headrace_cli.machine.ports import free_port
from testcontainers.core.container import DockerContainer
from typing_extensions import override

from tests.containers.building import reference
from tests.contract.receiver import Receiver, variables

HARDENED: dict[str, Any] = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
"""As the compose file and the chart run every image."""


class Contained(Receiver):
    """A receiver's image, run without any right. What the suites ask of a process they ask of it, too."""

    @property
    def container(self) -> Any:
        """Docker's own object."""
        return self._container.get_wrapped_container()

    @override
    def spawn(self) -> None:
        self.port = free_port()
        given = {"listen": {"port": self.port}, "ops": {"port": free_port()}}
        sections = {name: {**given.get(name, {}), **self._sections.get(name, {})} for name in {*given, *self._sections}}
        self._container = DockerContainer(reference(self.protocol)).with_kwargs(network="host", **HARDENED)
        for name, value in variables(self.kafka, sections).items():
            if name.startswith("HEADRACE_") and "__" in name:
                self._container.with_env(name, value)
        self._container.start()

    @override
    def exit_status(self) -> int | None:
        self.container.reload()
        return self.container.attrs["State"]["ExitCode"] if self.container.status == "exited" else None

    @override
    def signal(self, number: signal.Signals) -> None:
        self.container.kill(number.name)

    @override
    def stop(self) -> None:
        self._container.stop()

    @override
    def said(self) -> str:
        return self.container.logs().decode(errors="replace")
