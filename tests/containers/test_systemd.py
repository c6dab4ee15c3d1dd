"""The units under a real systemd, which is the first process of a container: started, killed, stopped, misled."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import docker
import pytest
from headrace_cli.ground import ROOT
from headrace_cli.stack.stack import LAKE_OPS_PORT, SERVICES
from headrace_common.operations.errors import EXIT_CONFIG
from headrace_common.operations.settings import LimitSettings
from testcontainers.core.network import Network

from tests.containers.building import TAG, built
from tests.containers.running import KafkaContainer
from tests.contract.receiver import HOST
from tests.contract.waiting import wait_for
from tests.sending import send_shop

pytestmark = [pytest.mark.requires("docker", "compose"), pytest.mark.full]

PORTS = {service.name: service.listeners[0].port for service in SERVICES}
OPS = {**{service.name: service.ops_port for service in SERVICES}, "lake": LAKE_OPS_PORT}
PYTHON = "/opt/headrace/bin/python"
LAKE = "/var/lib/headrace/lake"
START = 600
OWN_RIGHTS: dict[str, Any] = {
    # what a container lacks and systemd needs; not `privileged`, which a daemon without all capabilities refuses
    "cap_add": ["ALL"],
    "cap_drop": ["SYS_RESOURCE"],
    "security_opt": ["seccomp=unconfined"],
    "cgroupns": "host",
    "tmpfs": {"/run": "", "/run/lock": "", "/tmp": "exec"},
    "tty": True,
}


class Machine:
    """A container with systemd. `run` is a shell of root."""

    def __init__(self, container: Any) -> None:
        self._container = container

    def run(self, command: str) -> str:
        status, output = self._container.exec_run(["bash", "-c", f"cd /checkout && {command}"])
        text = str(output.decode(errors="replace"))
        assert status == 0, f"{command}: {text}\n{self.journal()}"
        return text

    def ready(self, part: str) -> bool:
        probe = [PYTHON, "-m", "headrace_common.operations.probe"]
        asked = {"HEADRACE_OPS__PORT": str(OPS[part]), "HEADRACE_OPS__HOST": HOST}
        return bool(self._container.exec_run(probe, environment=asked).exit_code == 0)

    def says(self, unit: str, *properties: str) -> list[str]:
        said = dict(
            line.partition("=")[::2]
            for line in self.run(f"systemctl show {unit} -p {','.join(properties)}").split("\n")
        )
        return [said[name] for name in properties]

    def journal(self) -> str:
        return str(
            self._container.exec_run(["journalctl", "--no-pager", "--lines=60", "--unit=headrace*"]).output.decode()
        )

    def published(self, port: int) -> int:
        self._container.reload()
        return int(self._container.ports[f"{port}/tcp"][0]["HostPort"])

    def copy(self, folder: str, into: Path) -> None:
        """A folder of the machine."""
        archive = io.BytesIO(b"".join(self._container.get_archive(folder)[0]))
        with tarfile.open(fileobj=archive) as found:
            found.extractall(into, filter="data")


def commands() -> list[str]:
    """What the page says to paste, without the packages, which come from the images."""
    page = (ROOT / "docs" / "deploy.md").read_text().partition("## systemd\n")[2]
    pasted = re.findall(r"^    (.+)$", page, re.MULTILINE)
    assert len(pasted) == 9
    return [line for line in pasted if not re.search(r"venv|pip", line)]


@pytest.fixture
def machine(client: docker.DockerClient, network: Network, broker: KafkaContainer) -> Iterator[Machine]:
    built()
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        groups = {"/sys/fs/cgroup": {"bind": "/sys/fs/cgroup", "mode": "rw"}}
    else:
        groups = {
            "/sys/fs/cgroup": {"bind": "/sys/fs/cgroup", "mode": "ro"},
            "/sys/fs/cgroup/systemd": {"bind": "/sys/fs/cgroup/systemd", "mode": "rw"},
        }
    image = f"headrace-systemd:{TAG}"
    folder = Path(__file__).parent / "systemd"
    # the folder alone is the builder's context: the image needs nothing but other images
    build = ["docker", "build", "--quiet", "--build-arg", f"TAG={TAG}", "--tag", image, str(folder)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    files = {str(ROOT / "deploy" / "systemd"): {"bind": "/checkout/deploy/systemd", "mode": "ro"}}
    container = client.containers.run(
        image, detach=True, network=network.name, volumes={**groups, **files},
        ports={f"{port}/tcp": (HOST, None) for port in PORTS.values()}, **OWN_RIGHTS,
    )  # fmt: skip
    try:
        found = Machine(container)
        wait_for(
            lambda: "running" in str(container.exec_run(["systemctl", "is-system-running"]).output),
            "systemd runs",
            START,
        )
        yield found
    finally:
        container.remove(force=True, v=True)


def test_the_units_run_as_the_page_installs_them(machine: Machine, tmp_path: Path) -> None:
    *install, reload, enable = commands()
    for command in install:
        machine.run(command)
    machine.run(f"sed -i 's/localhost:9092/{KafkaContainer.INSIDE}/' /etc/headrace/headrace.env")
    machine.run(f"{reload} && {enable}")
    machine.run("systemctl enable --now " + " ".join(f"headrace@{name}" for name in PORTS))
    for part in OPS:
        wait_for(lambda: machine.ready(part), f"{part} is ready", START)  # noqa: B023  (at once)

    for name in PORTS:
        (pid,) = machine.says(f"headrace@{name}", "MainPID")
        status = dict(line.partition(":")[::2] for line in machine.run(f"cat /proc/{pid}/status").splitlines())
        assert int(status["Uid"].split()[0]) > 0
        assert (int(status["CapBnd"], 16), status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == (0, "1", "2")
        (files,) = re.findall(r"^Max open files +(\d+)", machine.run(f"cat /proc/{pid}/limits"), re.MULTILINE)
        assert int(files) > LimitSettings().connections  # the unit asks for more than a container may give
        send_shop(name, HOST, machine.published(PORTS[name]))
    ask = f"import urllib.request as r; print(r.urlopen('http://{HOST}:{LAKE_OPS_PORT}/metrics').read().decode())"
    landed = f'{PYTHON} -c "{ask}"'
    wait_for(
        lambda: f"headrace_lake_events_total {len(PORTS)}.0" in machine.run(landed), "every event has landed", START
    )
    machine.copy(LAKE, tmp_path)
    rows = deltalake.DeltaTable(tmp_path / "lake" / "events").to_pyarrow_table(columns=["protocol"])
    assert sorted(rows["protocol"].to_pylist()) == sorted(PORTS)

    machine.run("systemctl kill --signal=KILL --kill-who=main headrace@forward")
    wait_for(lambda: machine.says("headrace@forward", "NRestarts") == ["1"], "systemd starts it again", START)
    wait_for(lambda: machine.ready("forward"), "forward is ready again", START)
    machine.run("systemctl stop 'headrace*'")
    for unit in (*(f"headrace@{name}" for name in PORTS), "headrace-lake"):
        assert machine.says(unit, "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]

    machine.run(
        "echo HEADRACE_LISTEN__PORT=many >> /etc/headrace/forward.env && systemctl start headrace@forward || true"
    )
    wait_for(lambda: machine.says("headrace@forward", "ActiveState") == ["failed"], "wrong settings end it", START)
    assert machine.says("headrace@forward", "ExecMainStatus", "NRestarts")[0] == str(EXIT_CONFIG)
    assert "HEADRACE_LISTEN__PORT" in machine.journal()
