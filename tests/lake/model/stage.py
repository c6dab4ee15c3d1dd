"""Processes that take turns, a step at a time: a seed decides who goes on, and who dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random


class Killed(BaseException):
    """The process ends here."""


class Process:
    """Runs `body` in a thread that goes on only when the stage says so."""

    def __init__(self, stage: Stage, name: str, body: Callable[..., None]) -> None:
        self.name = name
        self.dead = self.doomed = False
        self.frozen_until = 0
        self.threads: list[Process] = []
        """What ends with it."""
        self._turn = threading.Semaphore(0)
        self._stage = stage
        self._body = body
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.doomed:
                self._body()
        except Killed:
            pass
        finally:
            self.dead = True
            self._stage.back.release()

    def step(self) -> None:
        """Gives the turn back, and waits for the next one. Raises `Killed` if there is none."""
        if not self.doomed:
            self._stage.back.release()
            self._turn.acquire()
        if self.doomed:
            raise Killed

    def go_on(self) -> None:
        self._turn.release()
        self._stage.back.acquire()


class Stage:
    """`steps`: how many were taken so far."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.steps = 0
        self.back = threading.Semaphore(0)
        self.processes: list[Process] = []
        self.on: Process | None = None
        """Whose turn it is."""

    def start(self, name: str, body: Callable[..., None]) -> Process:
        process = Process(self, name, body)
        self.processes.append(process)
        return process

    def step(self) -> None:
        """To be called wherever a process may be stopped."""
        if self.on is not None:
            self.on.step()

    def turn(self) -> bool:
        """One step of one of the processes; False if none can go on."""
        able = [each for each in self.processes if not each.dead and each.frozen_until <= self.steps]
        if not able:
            return False
        self.steps += 1
        self.on = self.chance.choice(able)
        try:
            self.on.go_on()
        finally:
            self.on = None
        return True

    def kill(self, process: Process) -> None:
        """It never takes another step, nor do its threads."""
        for thread in process.threads:
            self.kill(thread)
        if not process.dead:
            process.doomed = True
            process.go_on()
