"""The verbs of this package, as the command line takes them. Each imports its code only when it is called."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from headrace_cli.ground import DEFAULT_STATE, CommandError, check_known
from headrace_cli.operating.options import KafkaOption, LakeOption, StateOption, UrlOption, examples

app = typer.Typer()


@app.command(
    epilog=examples(
        "./headrace tap --protocol forward --where body.level=error",
        "./headrace tap --from 10m --stream 'shop.*' --format json | jq .body",
        "./headrace tap --quarantine --last 20",
    )
)
def tap(
    state: StateOption = DEFAULT_STATE,
    kafka: KafkaOption = None,
    protocol: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only events that came by this protocol; may be repeated.")
    ] = None,
    stream: Annotated[str, typer.Option(metavar="PATTERN", help="Only this stream; * and ? match anything.")] = "",
    source: Annotated[str, typer.Option(metavar="PATTERN", help="Only this source, for example '/forward/*'.")] = "",
    identity: Annotated[str, typer.Option("--id", metavar="ID", help="Only the event with this id.")] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=VALUE", help="Only events with this value, as body.user.name=alice; all of several must hold."
        ),
    ] = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Show the quarantine topic instead: what was not understood, and why.")
    ] = False,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="now (the default), beginning, an ISO time, or how long ago: 10m."),
    ] = "",
    last: Annotated[int | None, typer.Option(min=1, max=10_000, help="The last N that are there, and no more.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after N.")] = None,
    style: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="pretty, json (a line each) or raw (the values alone).")
    ] = "pretty",
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on at the topic's end, or stop there.")
    ] = True,
) -> None:
    """Show what passes on the topic: decoded, filtered, live until Ctrl-C. It joins no group and changes nothing."""
    from headrace_common.protocol import installed

    from headrace_cli.operating.watch import tap as verb
    from headrace_cli.operating.watch.records import Filters, parse_where

    check_known("--format", [style], verb.Format)
    check_known("--protocol", protocol or (), [each.name for each in installed()])
    if quarantine and any(text.startswith("body") for text in where or ()):
        raise CommandError("--where body.…: what is in quarantine has no body; attributes.… has a value.", status=2)
    filters = Filters(protocol or (), stream, source, identity, where=[parse_where(text) for text in where or ()])
    options = verb.TapOptions(filters, quarantine, begin, last, limit, verb.Format(style), follow)
    raise typer.Exit(verb.tap(state, kafka, options))


@app.command(
    epilog=examples(
        "./headrace snippet",
        "./headrace snippet filebeat > output.yml",
        "./headrace snippet fluent-bit --host logs.example.org",
    )
)
def snippet(
    client: Annotated[
        str | None, typer.Argument(help="The client, for example filebeat; without one, all are listed.")
    ] = None,
    state: StateOption = DEFAULT_STATE,
    host: Annotated[
        str, typer.Option(metavar="NAME", help="What clients call this machine; default: where the receiver listens.")
    ] = "",
) -> None:
    """Print a client's configuration for this stack: its addresses, and TLS if it speaks that."""
    from headrace_cli.operating import snippets as verb

    raise typer.Exit(verb.list_clients() if client is None else verb.snippet(client, state, host))


@app.command(
    epilog=examples(
        "./headrace top",
        "./headrace top --url forward=http://10.0.0.1:8080 --url forward=http://10.0.0.2:8080",
        "./headrace top --once --json",
    )
)
def top(
    state: StateOption = DEFAULT_STATE,
    url: UrlOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one table, from two looks a second apart, and end.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print JSON, for programs.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.5, max=3600, help="Time between two looks.")] = 2,
) -> None:
    """Show how each service does, live: connections, rates, acknowledgements, what waits, lag. Replicas are added up."""
    from headrace_cli.operating.watch import top as verb

    raise typer.Exit(verb.top(state, url or (), once=once, as_json=as_json, every=every))


@app.command(
    epilog=examples(
        "./headrace validate",
        "./headrace validate forward lake --config headrace.yaml",
        "./headrace validate --offline --strict --json",
    )
)
def validate(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help="forward, lake, topics, …; default: all parts.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file with settings; the environment overrides it.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask Kafka.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A doubt counts as wrong, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Check settings, certificates, limits, Kafka and its topics before anything starts. Exit status 78 if one is wrong."""
    from headrace_cli.operating import validate as verb

    raise typer.Exit(verb.validate(verb.ValidateOptions(parts or (), config, offline, strict, as_json)))


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
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 admits other machines.")] = "127.0.0.1",
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
    samples: Annotated[
        bool | None,
        typer.Option(
            "--samples/--no-samples",
            help="Show what clients sent: messages. Default: only where nobody else can look, on loopback.",
        ),
    ] = None,
) -> None:
    """Serve the live page: what the services do, each second, in a browser. It reads, and changes nothing."""
    from headrace_common.operations.tasks import stops
    from headrace_common.operations.variables import variable

    from headrace_cli.lake.address import located
    from headrace_cli.operating.exposition import Parts, parts_of
    from headrace_cli.operating.live.broker import KafkaWatch
    from headrace_cli.operating.live.server import LiveServer, allowed_names, is_loopback
    from headrace_cli.operating.live.service import LiveService
    from headrace_cli.stack.reach import kafka_settings

    known = not url or kafka is not None or variable("kafka", "bootstrap_servers") in os.environ
    settings = kafka_settings(state, kafka) if known else None
    tables = located(lake) if lake else state / "lake" if not url else None
    names = [name for text in allow_host or () for name in text.split(",")]
    show = is_loopback(host) if samples is None else samples
    logger = logging.getLogger("aiokafka")
    logger.propagate = False  # what is wrong is on the page, as what reads its warnings explains it
    logger.addHandler(logging.NullHandler())

    async def find() -> Parts:
        try:
            return await parts_of(state, url or ())
        except CommandError:
            return []  # nothing runs at the moment

    async def serve() -> None:
        from aiohttp import web

        if url:
            await parts_of(state, url)  # what is no address is said
        service = LiveService(find, KafkaWatch(settings, group=group) if settings is not None else None, tables)
        server = LiveServer(service, settings, tables, allowed_names(host, names), show=show)
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        stop = asyncio.Event()
        for number in stops():
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            await web.TCPSite(runner, host, port).start()
            typer.echo(f"The live page is http://{f'[{host}]' if ':' in host else host}:{port}/", err=True)
            service.start()
            await stop.wait()
        except OSError as error:
            raise CommandError(f"--port {port}: {os.strerror(error.errno) if error.errno else error}.") from error
        finally:
            await service.stop()
            await runner.cleanup()

    asyncio.run(serve())
