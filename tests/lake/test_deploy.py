"""The image's entry point by the words and variables that Spark gives it, and the versions that pages name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import headrace_lake
import pytest
from headrace_cli.ground import ROOT
from headrace_cli.machine.jars import listed

(PYSPARK,) = re.findall(r"^pyspark==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
PAGES = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("lake*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_the_versions_that_are_tested(page: str) -> None:
    text = (ROOT / page).read_text()
    jars = {f"{jar.group}:{jar.artifact}:{jar.version}" for name in ("spark", "s3") for jar in listed(name)}
    short = {jar.partition(":")[2] for jar in jars}
    elsewhere = re.compile(r"<!-- not in jars.txt -->.*?<!-- end -->")
    named = set(re.findall(r"`((?:[\w.-]+:)?[a-z][\w.-]+:\d[\w.-]*)`", elsewhere.sub("", text)))
    assert named <= jars | short, "jars.txt has another version, or none of it"
    (hadoop,) = (jar.version for jar in listed("s3") if jar.artifact == "hadoop-aws")
    assert all(f":{hadoop}`" in mention for mention in elsewhere.findall(text)), "another version of Hadoop"
    assert set(re.findall(r"(?:PySpark|Spark) (\d+\.\d+\.\d+)", text)) <= {PYSPARK}
    assert set(re.findall(r"headrace-lake:([\d.]+\d)", text)) <= {headrace_lake.__version__}


EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://driver:7078", "SPARK_EXECUTOR_ID": "3", "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1", "SPARK_EXECUTOR_POD_IP": "10.0.0.9", "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "lake-exec-3", "SPARK_EXECUTOR_MEMORY": "1g", "SPARK_CLASSPATH": "/more",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number} x" for number in range(11)},
}  # fmt: skip


def test_the_image_is_the_job_spark_submit_or_an_executor(tmp_path: Path) -> None:
    """By its first argument. Programs in the place of the real ones print their arguments."""
    for name in ("bin/spark-submit", "bin/java", "bin/python"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        program.chmod(0o755)
    folder = str(tmp_path)

    def become(*arguments: str, **variables: str) -> list[str]:
        given = {"PATH": f"{folder}/bin:/usr/bin:/bin", "SPARK_HOME": folder, "JAVA_HOME": folder, **variables}
        command = ["/bin/bash", str(ROOT / "spark_jobs" / "entrypoint.sh"), *arguments]
        return subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout.splitlines()

    for arguments in ([], ["erase", "--where", "a = 'b c'"]):
        assert become(*arguments) == [f"{folder}/bin/python", "-P", "-m", "headrace_lake", *arguments]

    submitted = ["--properties-file", "/opt/spark/conf/spark.properties", "--class", "x", "local:///job.py", "--once"]
    words = become("driver", *submitted, SPARK_DRIVER_BIND_ADDRESS="10.0.0.8")
    assert words[0] == f"{folder}/bin/spark-submit"
    assert words[-len(submitted) - 2 :] == ["--deploy-mode", "client", *submitted]
    assert "spark.driver.bindAddress=10.0.0.8" in words

    words = become("executor", **EXECUTOR)
    assert words[:14] == [f"{folder}/bin/java", *(f"-Dn={number} x" for number in range(11)), "-Xms1g", "-Xmx1g"]
    assert words[words.index("-cp") + 1] == f"{folder}/conf:/more:{folder}/jars/*"
    backend = words.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert " ".join(words[backend + 1 :]) == (
        "--driver-url spark://driver:7078 --executor-id 3 --cores 2 --app-id spark-1 --hostname 10.0.0.9"
        " --resourceProfileId 0 --podName lake-exec-3"
    )
