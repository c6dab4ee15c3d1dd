"""An S3 endpoint on the loopback interface: moto's server in a separate process, with one bucket."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from headrace_cli.machine.ports import free_port
from headrace_cli.machine.tether import tethered

HOST = "127.0.0.1"
BUCKET = "headrace"
ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
REGION = "eu-central-1"
TIMEOUT = 600.0


class S3:
    """The server, what a job and a reader need for it (`environment`, `spark`, `storage_options`), and its objects."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = f"http://{HOST}:{free_port()}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "headrace", "AWS_SECRET_ACCESS_KEY": "not a secret", "AWS_REGION": REGION,
        }  # fmt: skip
        self.spark = {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": True,
            "spark.sql.streaming.checkpointFileManagerClass": ABORTABLE,
        }
        self.storage_options = {**self.environment, "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true"}
        self.log = folder / "s3.log"
        port = self.endpoint.rpartition(":")[2]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                tethered([sys.executable, "-m", "moto.server", "-H", HOST, "-p", port]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self.environment},
            )  # fmt: skip
        self._client = boto3.client(
            "s3", endpoint_url=self.endpoint, region_name=REGION, aws_access_key_id="headrace",
            aws_secret_access_key="not a secret",
        )  # fmt: skip
        self._make_bucket()

    def make_bucket(self, name: str) -> None:
        self._client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})

    def _make_bucket(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not self._has_bucket():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def _has_bucket(self) -> bool:
        try:
            self.make_bucket(BUCKET)
        except (BotoCoreError, ClientError):
            return False
        return True

    def keys(self, prefix: str) -> list[str]:
        """The names of all objects that begin with `prefix`."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def delete(self, prefix: str) -> None:
        for key in self.keys(prefix):
            self._client.delete_object(Bucket=BUCKET, Key=key)

    def copy(self, folder: Path, prefix: str) -> None:
        """Put the files below `folder` there."""
        for path in folder.rglob("*"):
            if path.is_file():
                self._client.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(folder).as_posix()}")

    def mirror(self, prefix: str, folder: Path) -> Path:
        """A copy of the objects below `prefix` in `folder`."""
        for key in self.keys(f"{prefix}/"):
            if not key.endswith("/"):
                target = folder / key
                target.parent.mkdir(parents=True, exist_ok=True)
                self._client.download_file(BUCKET, key, str(target))
        return folder / prefix

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
