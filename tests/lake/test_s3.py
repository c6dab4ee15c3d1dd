"""Tables and checkpoint on `s3a://`: two drivers at once, exact rows."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from headrace_cli.machine.jars import jars
from headrace_common.operations.settings import KafkaSettings
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.contract.receiver import variables as variables_of
from tests.contract.waiting import wait_for
from tests.lake.conditional_writes import CHECKPOINT, LAKE
from tests.lake.lander import TIMEOUT, Lander, spark_variables
from tests.lake.runs import Runs
from tests.lake.stream import check_landed

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

REGION = "eu-central-1"
CHECKPOINTS = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


class S3:
    """Moto, and what a job (`spark`) and all (`environment`) need for it. For the bucket `deaf` it ignores conditions."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, str]] = []
        """Method, path and status of each request."""
        self._moto = DomainDispatcherApplication(create_backend_app)
        self.server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        endpoint = f"http://127.0.0.1:{self.server.port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "headrace", "AWS_SECRET_ACCESS_KEY": "not a secret", "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip
        self.spark = {
            "spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
        }  # fmt: skip
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        known = {"aws_access_key_id": "headrace", "aws_secret_access_key": "not a secret"}
        client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION, **known)
        for bucket in ("headrace", "deaf"):
            client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path.startswith("/deaf/"):
            environ.pop("HTTP_IF_NONE_MATCH", None)

        def begin(status: str, *rest: Any) -> Any:
            self.answers.append((method, path, status[:3]))
            return start_response(status, *rest)

        return self._moto(environ, begin)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    made = S3()
    yield made
    made.server.shutdown()


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for LAKE__JARS, with both sets."""
    folder = tmp_path_factory.mktemp("jars")
    for name in ("spark", "s3"):
        for jar in jars(name).glob("*.jar"):
            (folder / jar.name).symlink_to(jar)
    return folder


def start(runs: Runs, s3: S3, class_path: Path, checkpoint: str, *, once: bool = False) -> Lander:
    return runs.start(
        path=LAKE, checkpoint=checkpoint, once=once, batch_records=100_000 if once else 1_000, jars=class_path,
        spark=json.dumps(s3.spark), variables=s3.environment,
    )  # fmt: skip


@pytest.mark.full
def test_of_two_jobs_that_start_at_once_one_goes_on(
    runs: Runs, s3: S3, class_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They make the tables, claim them and land at the same time; only conditional writes keep their commits apart."""
    runs.send(8_000, resend_every=100)
    places = [f"{CHECKPOINT}-{name}" for name in "ab"]
    jobs = dict(zip(places, [start(runs, s3, class_path, place) for place in places], strict=True))
    for job in jobs.values():
        job.next("starting")
    wait_for(lambda: not all(job.alive() for job in jobs.values()), "one of them stops", TIMEOUT)
    ((where, goes_on),) = [(place, job) for place, job in jobs.items() if job.alive()]
    (stopped,) = [job for job in jobs.values() if job is not goes_on]
    assert stopped.wait() == 1, stopped.tail()
    assert "another job has taken over" in stopped.reason() or "another job claimed the tables" in stopped.reason()
    runs.send(400, mark="b")
    goes_on.next("landed")
    goes_on.terminate()
    assert goes_on.wait() == 0, goes_on.tail()
    last = start(runs, s3, class_path, where, once=True)
    assert last.wait() == 0, last.tail()
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    check_landed(LAKE, runs.sent)


def test_a_commit_is_a_conditional_write(s3: S3, class_path: Path) -> None:
    """A second driver cannot overwrite a commit. A server that ignores the condition is found out at the start."""
    program = [sys.executable, "-m", "tests.lake.conditional_writes", str(class_path), json.dumps(s3.spark)]
    variables = {**variables_of(KafkaSettings()), **spark_variables(), **s3.environment}
    done = subprocess.run(program, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert "the server ignores If-None-Match: a second driver could overwrite its commits" in said.pop("deaf")
    assert said == {"said": [], "written": ["written", "FileAlreadyExistsException", "written"]}
    commit = "/table/_delta_log/" + "0" * 20 + ".json"
    answers = [(method, status) for method, path, status in s3.answers if path.endswith(commit)]
    assert "HEAD" not in (method for method, _ in answers[:2]), "nobody looks first: the server decides"
    assert ("PUT", "412") in answers
