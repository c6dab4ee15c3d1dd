"""``python -m headrace_logjam``: the Logjam receiver."""

from __future__ import annotations

import zmq
from headrace_common.operations.networks import networks
from headrace_common.record.contract import WireProtocol
from headrace_common.service.parts import Parts, Runtime
from headrace_common.service.service import main

from headrace_logjam.access import AccessControl, Admission, Context, Curve, names_of
from headrace_logjam.devices.endpoints import Subscriptions
from headrace_logjam.peers.doors import Doors
from headrace_logjam.settings import PORT, LogjamSettings
from headrace_logjam.sockets import BoundSocket, PubSocket, PullSocket, RouterSocket, Sockets, Surroundings


def build(runtime: Runtime[LogjamSettings]) -> Parts:
    """A socket that answers; one that does not and one that publishes, unless their ports are 0; and the endpoints to consume."""
    settings, logjam = runtime.settings, runtime.settings.logjam
    context: Context = zmq.Context()
    admission = Admission(networks(logjam.allow), names_of(logjam.curve_clients))
    access = AccessControl(context, admission, runtime.metrics, runtime.receiver.limited)
    keys = Curve.of(logjam.curve_secret_key.get_secret_value())
    doors = Doors(context, runtime.receiver, logjam.peer_messages)
    around = Surroundings(runtime, context, doors, access, keys if logjam.curve_clients else None)
    pub = PubSocket(around) if logjam.pub_port else None
    sockets: list[BoundSocket] = [RouterSocket(around, settings.listen.port or PORT, pub)]
    if logjam.pull_port:
        sockets.append(PullSocket(around, pub))
    if pub is not None:
        sockets.append(pub)
    return Parts(sockets, Sockets(around, sockets, Subscriptions(runtime, context, keys)))


if __name__ == "__main__":
    main(WireProtocol.LOGJAM, LogjamSettings, build)
