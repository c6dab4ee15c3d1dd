"""Who waits for a slice: the least virtual time is first, whatever changes meanwhile, and a look does not go through all."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from headrace_common.fairness.workers import Account, Worker, WorkerQueue


class Connection(Worker):
    """Is charged to an account. `looks`: how often anyone's time was read."""

    looks = 0

    def __init__(self, account: Account) -> None:
        self.account = account

    def virtual_time(self) -> float:
        return self.charged().used

    def charged(self) -> Account:
        Connection.looks += 1
        return self.account

    def granted(self) -> bool:
        raise AssertionError


class Pump(Connection):
    """Has a time that changes at any moment."""

    def charged(self) -> None:  # type: ignore[override]
        return None

    def virtual_time(self) -> float:
        return self.account.used


def times(workers: list[Worker]) -> list[float]:
    return [worker.virtual_time() for worker in workers]


@pytest.mark.parametrize("seed", range(20))
def test_the_least_time_is_next_whatever_changes(seed: int) -> None:
    """Accounts are charged while their connections wait, the shared one gets credit, and connections change between the two."""
    chance = random.Random(seed)
    shared = Account()
    queue = WorkerQueue(shared)
    owned = [Account() for _ in range(20)]
    connections = [Connection(account) for account in owned]
    pumps = [Pump(Account()) for _ in range(3)]
    waiting: set[Worker] = set()

    def add(worker: Worker) -> None:
        queue.add(worker)
        waiting.add(worker)

    for _ in range(2000):
        number = chance.randrange(20)
        connection = connections[number]
        match chance.randrange(8):
            case 0:
                owned[number].used += chance.choice((0.0, 1.0, 5.0))
            case 1:
                shared.used += chance.choice((1.0, -1.0))
            case 2:  # many bytes have come, or the few are all
                connection.account = shared if connection.account is not shared else owned[number]
                if connection in waiting:
                    add(connection)
            case 3:  # a debt is forgiven
                owned[number].used -= 1.0
                if connection in waiting:
                    add(connection)
            case 4:
                chance.choice(pumps).account.used = chance.uniform(0.0, 20.0)
            case 5:
                gone = chance.choice([*connections, *pumps])
                queue.remove(gone)
                waiting.discard(gone)
            case 6:
                add(chance.choice([connection, *pumps]))
            case _:
                if waiting:
                    least = min(times(list(waiting)))
                    assert queue.least() == least
                    worker = next(queue.turn())
                    assert worker.virtual_time() == least
                    waiting.remove(worker)
        assert bool(queue) == bool(waiting)
        assert all((each in queue) == (each in waiting) for each in (*connections, *pumps))
    everyone = list(queue.turn())
    assert times(everyone) == sorted(times(list(waiting)))


def test_of_equals_the_one_that_came_first_is_next() -> None:
    shared = Account(1.0)
    queue = WorkerQueue(shared)
    accounts = (shared, Account(1.0), shared, Account(1.0))
    workers = [*(Connection(account) for account in accounts), Pump(Account(1.0)), Connection(shared)]
    for worker in workers:
        queue.add(worker)
    queue.add(workers[0])  # it keeps its place
    assert list(queue.turn()) == workers
    assert not queue


@pytest.mark.parametrize("small", [True, False], ids=["few bytes", "many bytes"])
def test_a_turn_costs_the_same_however_many_wait(small: bool) -> None:
    def looks(waiting: int) -> int:
        shared = Account()
        queue = WorkerQueue(shared)
        for number in range(waiting):
            queue.add(Connection(shared if small else Account(float(number % 7))))
        before = Connection.looks
        for worker in islice(queue.turn(), 10):
            assert isinstance(worker, Connection)
            worker.account.used += 1.0
        assert queue.least() < 2.0 if not small else queue.least() == 10.0
        return Connection.looks - before

    assert looks(100) == looks(5_000) < 100
