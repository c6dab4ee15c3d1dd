"""One round: clients of five receivers, faults for a while, then peace; then the topics are judged."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from headrace_cli.machine.ports import free_port
from headrace_forward.client import ForwardClient

from tests.contract.receiver import Receiver
from tests.contract.stopping import stopped
from tests.faults.clients import DIALECTS, Client, finished, violations
from tests.faults.stack import Stack
from tests.system.cluster import write_denied

CLIENTS: Final = 2
"""Of each receiver."""

PEACE: Final = 120.0
"""Seconds after the last fault within which everything that clients hold must be acknowledged, and one frame more of each."""

Fault = Callable[[Stack, random.Random], Awaitable[None]]
"""What may happen: it does it for a while, and ends it."""


async def withheld(stack: Stack, chance: random.Random) -> None:
    """What Kafka says is late, or is never heard."""
    for proxy in stack.proxies.values():
        proxy.answers.clear()
    await asyncio.sleep(chance.uniform(0.1, 8))
    for proxy in stack.proxies.values():
        if chance.random() < 0.5:
            proxy.cut()
        proxy.answers.set()


async def cut(stack: Stack, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        for proxy in stack.proxies.values():
            proxy.cut()
        await asyncio.sleep(chance.uniform(0, 0.5))


def _broker(stack: Stack, chance: random.Random) -> int:
    return chance.choice(list(stack.brokers.nodes))


async def broker_frozen(stack: Stack, chance: random.Random) -> None:
    with stopped(stack.brokers.nodes[_broker(stack, chance)].pid):
        await asyncio.sleep(chance.uniform(0.5, 7))


async def _away(stack: Stack, chance: random.Random, *numbers: int, kill: bool = True) -> None:
    """Brokers end, and are back within seconds."""
    for number in numbers:
        await stack.brokers.end(number, kill=kill)
    await asyncio.sleep(chance.uniform(0, 6))
    await stack.brokers.begin(*numbers)


async def broker_killed(stack: Stack, chance: random.Random) -> None:
    await _away(stack, chance, _broker(stack, chance))


async def broker_stopped(stack: Stack, chance: random.Random) -> None:
    await _away(stack, chance, _broker(stack, chance), kill=False)


async def leader_killed(stack: Stack, chance: random.Random) -> None:
    await _away(stack, chance, await stack.brokers.leader(stack.kafka, stack.kafka.events_topic))


async def two_brokers_killed(stack: Stack, chance: random.Random) -> None:
    """Too few replicas are in sync, and no controller is elected."""
    await _away(stack, chance, *chance.sample(list(stack.brokers.nodes), 2))


async def broker_moved(stack: Stack, chance: random.Random) -> None:
    """A broker comes back at another address, and later at the one that it had: who knows the old one asks the others."""
    number = _broker(stack, chance)
    listener, proxy = stack.brokers.nodes[number].listener, stack.proxies[number]
    for port in (free_port(), listener.port):
        await stack.brokers.in_sync(stack.kafka, stack.kafka.events_topic)
        await stack.brokers.end(number)
        listener.port = port
        await proxy.move(port)
        await stack.brokers.begin(number)


def _receiver(stack: Stack, chance: random.Random) -> Receiver:
    return chance.choice(list(stack.receivers.values()))


async def receiver_frozen(stack: Stack, chance: random.Random) -> None:
    with stopped(_receiver(stack, chance).pid):
        await asyncio.sleep(chance.uniform(0.5, 8))


async def receiver_killed(stack: Stack, chance: random.Random) -> None:
    receiver = _receiver(stack, chance)
    receiver.kill()
    await receiver.start()


async def receiver_stopped(stack: Stack, chance: random.Random) -> None:
    receiver = _receiver(stack, chance)
    receiver.signal(signal.SIGTERM)
    await receiver.ended()
    await receiver.start()


async def clock_shifted(stack: Stack, chance: random.Random) -> None:
    """Of one receiver: by minutes, or so far that Kafka refuses the timestamps; also back, and again when it is set right."""
    clock = chance.choice(list(stack.clocks.values()))
    clock.write_text(str(chance.choice((-1, 1)) * chance.choice((5, 600, 86_400, 400 * 86_400))))
    await asyncio.sleep(chance.uniform(1, 5))
    clock.write_text("0")


async def denied(stack: Stack, chance: random.Random) -> None:
    """Nobody may write to one of the topics."""
    kafka = stack.kafka
    async with write_denied(kafka, chance.choice((kafka.events_topic, kafka.quarantine_topic, kafka.segments_topic))):
        await asyncio.sleep(chance.uniform(1, 8))


async def bombed(stack: Stack, chance: random.Random) -> None:
    """Sixteen clients of Forward send chunks that grow to the limits, again and again."""
    bomb = ForwardClient().packed(gzip.compress(bytes(256 << 20), 9), 1, compressed="gzip") * 4

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):  # the receiver may be away
                reader, writer = await asyncio.open_connection(*stack.receivers["forward"].address)
                writer.write(bomb)
                await reader.read(100)
                writer.close()
            await asyncio.sleep(0.1)

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*(one() for _ in range(16))), chance.uniform(2, 10))


OF_OTHERS: Final[Mapping[str, Fault]] = {
    "withheld": withheld,
    "cut": cut,
    "receiver frozen": receiver_frozen,
    "receiver killed": receiver_killed,
    "receiver stopped": receiver_stopped,
    "clock shifted": clock_shifted,
    "bombed": bombed,
}
OF_BROKERS: Final[Mapping[str, Fault]] = {"broker frozen": broker_frozen, "broker killed": broker_killed}
OF_ONE: Final[Mapping[str, Fault]] = {"denied": denied}
"""Only with one broker, which heeds rules."""
OF_THREE: Final[Mapping[str, Fault]] = {
    "broker stopped": broker_stopped,
    "broker moved": broker_moved,
    "leader killed": leader_killed,
    "two brokers killed": two_brokers_killed,
}
"""Only with three brokers."""
FAULTS: Final[Mapping[str, Fault]] = {**OF_OTHERS, **OF_BROKERS, **OF_ONE, **OF_THREE}


async def _attack(stack: Stack, chance: random.Random, together: Sequence[str]) -> list[str]:
    """The faults of `together` at the same time; without any, one fault, and where it is a broker's, often another one.

    Returns the names of those that happened.
    """
    several = len(stack.brokers.nodes) > 1
    happens = list(together) or [
        chance.choice([name for name in FAULTS if name not in (OF_ONE if several else OF_THREE)])
    ]
    if not together and happens[0] not in OF_OTHERS and chance.random() < 0.5:
        happens.append(chance.choice(list(OF_OTHERS)))
    await asyncio.gather(*(FAULTS[name](stack, chance) for name in happens))
    return happens


async def _lost(stack: Stack) -> list[str]:
    """What of the device's numbers is neither stored nor said to be lost, while it publishes on."""
    numbers = stack.numbers
    end = time.monotonic() + PEACE
    await numbers.go_on()
    while not await stack.told() and time.monotonic() < end:
        await numbers.go_on()
    problems, numbers.problems = numbers.problems, []
    if missing := [number for number in numbers.missing if number < numbers.device.sequence]:
        problems.append(
            f"logjam: {len(missing)} numbers are not either stored or said to be lost, the first {missing[0]}"
        )
    return problems


async def round_of(stack: Stack, seed: str, seconds: float, together: Sequence[str] = ()) -> dict[str, Any]:
    """Runs faults for about `seconds`, one after the other, and judges. `problems` of the result is empty if all is well.

    With `together`, each time these faults at once.
    """
    chance = random.Random(seed)
    ending = asyncio.Event()
    clients = [
        Client(dialect, stack.receivers[name], random.Random(f"{seed} {name} {number}"))
        for name, dialect in DIALECTS.items()
        for number in range(CLIENTS)
    ]
    tasks = [asyncio.create_task(client.run(ending)) for client in clients]
    tasks.append(asyncio.create_task(stack.numbers.publish(ending)))
    happened: list[str] = []
    end = time.monotonic() + seconds
    await asyncio.sleep(1)
    while time.monotonic() < end:
        happened += await _attack(stack, chance, together)
        await asyncio.sleep(chance.uniform(0, 1))
    ending.set()
    recovery = await finished(tasks, PEACE)
    frames = [frame for client in clients for frame in client.frames]
    problems = [problem for client in clients for problem in client.problems]
    problems += [
        f"{frame.protocol}: {frame.mark} is not acknowledged {PEACE:g} s after the last fault"
        for frame in frames
        if not frame.acknowledged
    ]
    problems += [
        f"{name} has ended" for name, receiver in stack.receivers.items() if receiver.exit_status() is not None
    ]
    problems += await _lost(stack)
    stored, rejects = await stack.stored()
    problems += violations(frames, stored, rejects)
    return {
        "seed": seed,
        "faults": happened,
        "frames": len(frames),
        "events": sum(len(frame.values) for frame in frames),
        "sent_again": sum(frame.attempts - 1 for frame in frames),
        "seconds_until_all_was_acknowledged": round(recovery, 1),
        "problems": sorted(set(problems)),
    }
