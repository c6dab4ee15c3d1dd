"""Any bytes give events, replies or `ProtocolError`, the same whole and in pieces; time and memory follow the bytes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from headrace_common.operations.settings import LimitSettings
from headrace_common.record import native
from headrace_common.session.memory import Memory
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.wire import json_frame, window

from tests.driving import NOW_MS, PEER
from tests.forward.test_handshake import LOGINS, judge_login
from tests.fuzz import growth, judging
from tests.fuzz.limits import LIMITS, Limit
from tests.fuzz.subjects import PROTOCOLS, made
from tests.lumberjack.driving import document
from tests.simulation.mutants import Mutant, mutants, mutated
from tests.tiers import sized

SEED = 1
MUTANTS = mutants(Path(__file__).with_name("mutants.toml"))
"""The product with a limit, a byte of an event, its id, its time or a login otherwise."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_any_input_is_the_same_whole_and_in_pieces(protocol: str) -> None:
    for number in range(sized(100, 500, 100_000)):
        seed = f"{SEED}-{number}"
        try:
            subject, sent, chance = made(protocol, seed)
            at = subject.cuts(sent, chance)
            whole, split = (subject.comparable(subject.drive(sent, places)) for places in ((), at))
            assert whole == split, f"cut at {at}: {sent}"
            judging.judge_seed(protocol, seed)
        except Exception as error:
            error.add_note(f"This is of input {number}.")
            raise


@pytest.mark.parametrize(
    ("protocol", "limit"),
    [
        pytest.param(protocol, limit, id=f"{protocol}: {limit.name}")
        for protocol, limits in LIMITS.items()
        for limit in limits
    ],
)
def test_a_limit_is_where_it_should_be(protocol: str, limit: Limit) -> None:
    judging.judge_limit(protocol, limit)


@pytest.mark.parametrize("place", ["id", "ephemeral_id", "beat", "dataset", "path"])
def test_a_memory_counts_what_it_keeps_of_an_origin(place: str) -> None:
    memory = Memory()
    session = LumberjackSession(PEER, LimitSettings(), memory)
    kept = 0
    for number in range(3):
        names = dict.fromkeys(("id", "ephemeral_id", "beat", "dataset", "path"), "x")
        names[place] = f"{number}" + ("x" * 3000 if place == "path" else "\U0001f600" * 850)
        kept += sys.getsizeof(names[place])
        log = {"file": {"path": names["path"]}, "offset": 0}
        beat = document(number, agent=names, log=log, event=names, **{"@metadata": {"beat": names["beat"]}})
        session.receive(window(1) + json_frame(1, beat), NOW_MS)
        assert [part for frame in session.frames() for part in frame.parts()]
    assert memory.used >= kept


@pytest.mark.long
@pytest.mark.parametrize("growing", growth.GROWING, ids=lambda growing: growing.name)
def test_time_is_linear_and_what_is_held_is_counted(growing: growth.Growing) -> None:
    assert growth.problem(growing) == ""


# Whether the fuzzer would find it


def _judge_many(protocol: str) -> None:
    for limit in LIMITS[protocol]:
        judging.judge_limit(protocol, limit)
    for login in LOGINS if protocol == "forward" else ():
        judge_login(*login)
    for number in range(200):
        judging.judge_seed(protocol, f"{SEED}-{number}")


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_truth_tells_a_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "NATIVE", None)  # it is no mutant
    with mutated(mutant), pytest.raises((AssertionError, ArithmeticError, LookupError, TypeError, ValueError)):
        _judge_many(mutant.protocol)
