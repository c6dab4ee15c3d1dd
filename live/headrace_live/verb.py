"""The verb `live`, which shows what runs. It imports its code only when it is called."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Annotated

import typer
from headrace_cli.ground import DEFAULT_STATE, CommandError
from headrace_cli.options import KafkaOption, LakeOption, StateOption, UrlOption, examples

app = typer.Typer()


@app.command(
    epilog=examples(
        "./headrace live",
        "./headrace live --url forward=http://10.0.0.1:8080 --url forward=http://10.0.0.2:8080 --kafka kafka-1:9092",
        "./headrace live --url forward=dns://headrace-forward-ops:8080 --host 0.0.0.0 --allow-host live.example.org",
    )
)
def live(
    state: StateOption = DEFAULT_STATE,
    url: UrlOption = None,
    kafka: KafkaOption = None,
    lake: LakeOption = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 admits other machines, :: those of IPv6, too.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 8080,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also answer to this name in a browser's address, several with commas; may be repeated.",
        ),
    ] = None,
    group: Annotated[
        str, typer.Option(metavar="NAME", help="The landing job's LAKE__GROUP: where it notes how far it is.")
    ] = "headrace-lake",
) -> None:
    """Serve the live page: what the services do, each second, in a browser. It reads, and changes nothing."""
    from headrace_cli.operating.exposition import Parts, parts_of
    from headrace_cli.stack.reach import kafka_settings
    from headrace_common.operations.tasks import stops
    from headrace_common.operations.variables import variable
    from headrace_reader.address import located

    from headrace_live.broker import KafkaWatch
    from headrace_live.server import LiveServer, allowed_names
    from headrace_live.service import LiveService

    known = not url or kafka is not None or variable("kafka", "bootstrap_servers") in os.environ
    settings = kafka_settings(state, kafka) if known else None
    tables = located(lake) if lake else state / "lake" if not url else None
    names = [name for text in allow_host or () for name in text.split(",")]
    logger = logging.getLogger("aiokafka")
    logger.propagate = False  # the page shows these problems, explained
    logger.addHandler(logging.NullHandler())

    async def find() -> Parts:
        try:
            return await parts_of(state, url or ())
        except CommandError:
            return []  # nothing runs at the moment

    async def serve() -> None:
        from aiohttp import web

        if url:
            await parts_of(state, url)  # raises if an address is malformed
        service = LiveService(find, KafkaWatch(settings, group=group) if settings is not None else None, tables)
        server = LiveServer(service, allowed_names(host, names))
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        stop = asyncio.Event()
        for number in stops():
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            # asyncio's "::" is IPv6 alone, its None both families
            await web.TCPSite(runner, None if host == "::" else host, port).start()
            typer.echo(f"The live page is http://{f'[{host}]' if ':' in host else host}:{port}/", err=True)
            service.start()
            await stop.wait()
        except OSError as error:
            raise CommandError(f"--port {port}: {os.strerror(error.errno) if error.errno else error}.") from error
        finally:
            await service.stop()
            await runner.cleanup()

    asyncio.run(serve())
