"""Tables and checkpoint on `s3a://`: two drivers at once, exact rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from headrace_cli.machine.jars import jars
from headrace_cli.machine.ports import free_port
from headrace_cli.machine.tether import tethered

from tests.contract.waiting import wait_for
from tests.lake.conditional_writes import CHECKPOINT, LAKE
from tests.lake.lander import TIMEOUT, Bench, Lander, with_spark
from tests.lake.stream import check_landed

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

REGION = "eu-central-1"
CHECKPOINTS = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


class S3:
    """The server, moto's in a process of its own, and what a job (`spark`) and all (`environment`) need for it."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = f"http://127.0.0.1:{free_port()}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "headrace", "AWS_SECRET_ACCESS_KEY": "not a secret", "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip
        self.spark = {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": True,
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
        }
        self.log = folder / "s3.log"
        port = self.endpoint.rpartition(":")[2]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                tethered([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self.environment},
            )  # fmt: skip
        self._client = boto3.client(
            "s3", endpoint_url=self.endpoint, region_name=REGION, aws_access_key_id="headrace",
            aws_secret_access_key="not a secret",
        )  # fmt: skip
        wait_for(lambda: self.make_bucket("headrace"), "a bucket", 600)

    def make_bucket(self, name: str) -> bool:
        """Returns whether the bucket is made."""
        try:
            self._client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        except (BotoCoreError, ClientError):
            assert self._process.poll() is None, self.log.read_text()
            return False
        return True

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3]:
    made = S3(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for LAKE__JARS, with both sets."""
    folder = tmp_path_factory.mktemp("jars")
    for name in ("spark", "s3"):
        for jar in jars(name).glob("*.jar"):
            (folder / jar.name).symlink_to(jar)
    return folder


def start(bench: Bench, s3: S3, class_path: Path, checkpoint: str, *, once: bool = False) -> Lander:
    return bench.start(
        path=LAKE, checkpoint=checkpoint, once=once, batch_records=100_000 if once else 1_000, jars=class_path,
        spark=json.dumps(s3.spark), variables=s3.environment,
    )  # fmt: skip


@pytest.mark.full
def test_of_two_jobs_that_start_at_once_one_goes_on(
    bench: Bench, s3: S3, class_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They make the tables, claim them and land at the same time; only conditional writes keep their commits apart."""
    bench.send(8_000, resend_every=100)
    places = [f"{CHECKPOINT}-{name}" for name in "ab"]
    jobs = dict(zip(places, [start(bench, s3, class_path, place) for place in places], strict=True))
    for job in jobs.values():
        job.next("starting")
    wait_for(lambda: not all(job.alive() for job in jobs.values()), "one of them stops", TIMEOUT)
    ((where, goes_on),) = [(place, job) for place, job in jobs.items() if job.alive()]
    (stopped,) = [job for job in jobs.values() if job is not goes_on]
    assert stopped.wait() == 1, stopped.tail()
    assert "another job has taken over" in stopped.reason() or "another job claimed the tables" in stopped.reason()
    bench.send(400, mark="b")
    goes_on.next("landed")
    goes_on.terminate()
    assert goes_on.wait() == 0, goes_on.tail()
    last = start(bench, s3, class_path, where, once=True)
    assert last.wait() == 0, last.tail()
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    check_landed(LAKE, bench.sent)


class Proxy(BaseHTTPRequestHandler):
    """A server of S3's protocol. It ignores If-None-Match."""

    endpoint: str
    protocol_version = "HTTP/1.1"

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "if-none-match"}
        with closing(HTTPConnection(self.endpoint.removeprefix("http://"))) as onward:
            onward.request(self.command, self.path, body, headers)
            told = onward.getresponse()
            answer = told.read()
        self.send_response_only(told.status)
        for name, value in told.getheaders():
            if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        pass


def test_a_commit_is_a_conditional_write(s3: S3, class_path: Path) -> None:
    """A second driver cannot overwrite a commit. A server that ignores the condition is found out at the start."""

    class To(Proxy):
        endpoint = s3.endpoint

    with ThreadingHTTPServer(("127.0.0.1", 0), To) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {**s3.spark, "spark.hadoop.fs.s3a.path.style.access": "true"}
        s3.make_bucket("deaf")
        options["spark.hadoop.fs.s3a.bucket.deaf.endpoint"] = f"http://127.0.0.1:{server.server_address[1]}"
        variables = {**with_spark(), **s3.environment}
        program = [sys.executable, "-m", "tests.lake.conditional_writes", str(class_path), json.dumps(options)]
        done = subprocess.run(program, env=variables, capture_output=True, text=True, check=False)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert "the server ignores If-None-Match: a second driver could overwrite its commits" in said.pop("deaf")
    assert said == {"said": [], "written": ["written", "FileAlreadyExistsException", "written"]}
    of_commit = [line for line in s3.log.read_text().splitlines() if "_delta_log/00000000000000000000.json" in line]
    assert not [line for line in of_commit[:2] if "HEAD" in line], "nobody looks first: the server decides"
    assert any(" 412 " in line and "PUT" in line for line in of_commit)
