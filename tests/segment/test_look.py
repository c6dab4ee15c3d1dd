"""``python -m headrace_segment ls|cat|info|seal|delete``, as a person calls it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings, environment
from headrace_segment import look as module
from headrace_segment.wire.original import AT_TAIL, END_OF_SEGMENT, NoSuchSegment, SegmentIsSealed, SegmentRead

from tests.contract.receiver import Receivers, variables
from tests.contract.waiting import PATIENCE
from tests.segment.client import Client, new_writer
from tests.segment.speaking import block, events, read

pytestmark = pytest.mark.kafka
HELLO, WORLD = events(b"hello"), events(b"world!")


async def look(kafka: KafkaSettings, *words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "headrace_segment", *words],
        env={**variables(kafka), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )


async def test_segments_are_looked_at_and_ended(own_segments: KafkaSettings, start: Receivers) -> None:
    service = await start(own_segments, segment={"tail_wait": 60})
    writer = new_writer()
    async with await Client.connect(service.address) as client, await Client.connect(service.address) as reader:
        await client.setup("eins", writer)
        await client.append(0, HELLO + WORLD, writer)
        await client.setup("zwei", new_writer())
        listed = await look(own_segments, "ls")
        assert listed.returncode == 0, listed.stderr
        _, first, second = listed.stdout.decode().splitlines()
        assert first.split()[:4] == [str(len(HELLO + WORLD)), "0", "1", "open"]
        assert (first.split()[-1], second.split()[-1]) == ("eins", "zwei")
        info = await look(own_segments, "info", "eins")
        assert f"writer   {writer.hex()}  level {len(HELLO + WORLD)} (bytes)" in info.stdout.decode()
        assert (await look(own_segments, "cat", "eins")).stdout == HELLO + WORLD
        assert (await look(own_segments, "cat", "eins", "--offset", str(len(HELLO)))).stdout == WORLD

        reader.say(read("eins", len(HELLO + WORLD)))
        sealed = await look(own_segments, "seal", "eins")
        assert (sealed.returncode, sealed.stdout) == (0, b"eins: sealed\n"), sealed.stderr
        ended = SegmentRead("eins", len(HELLO + WORLD), AT_TAIL | END_OF_SEGMENT, b"")
        assert await reader.reply() == ended
        client.say(block(len(HELLO + WORLD), HELLO, writer))
        assert await client.reply() == SegmentIsSealed("eins")

        assert (await look(own_segments, "delete", "zwei", "--yes")).stdout == b"zwei: deleted\n"
        reader.say(read("zwei"))
        assert await reader.reply() == NoSuchSegment("zwei")


async def test_what_cannot_be_done_is_said_in_one_line(own_segments: KafkaSettings) -> None:
    for words, more, status, says in (
        (("info", "nowhere"), {}, 1, "there is no segment nowhere"),
        (("seal", "nowhere"), {}, 1, "there is no segment nowhere"),
        (("frobnicate",), {}, 2, ""),
        (("ls",), environment("segment", tail_weight=1), 78, "there is no such setting"),
    ):
        done = await look(own_segments, *words, **more)
        assert (done.returncode, says in done.stderr.decode()) == (status, True)


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, 130), (BrokenPipeError, 74)])
def test_who_interrupts_it_or_reads_no_more_sees_no_stack(
    error: type[BaseException], status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def ended(*_: object) -> None:
        raise error

    monkeypatch.setattr(module, "_run", ended)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert module.main(["ls"]) == status
