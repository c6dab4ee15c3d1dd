"""What the image's entry point becomes, by the words and variables that Spark gives it."""

from __future__ import annotations

from headrace_lake.spark.container import command

EXECUTOR = {
    "SPARK_HOME": "/opt/spark",
    "JAVA_HOME": "/java",
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "lake-exec-3",
    "SPARK_EXECUTOR_MEMORY": "1g",
}


def test_a_driver_is_spark_submit_in_client_mode() -> None:
    given = ["--properties-file", "/opt/spark/conf/spark.properties", "--class", "x", "local:///job.py", "--once"]
    words = command(["driver", *given], {"SPARK_HOME": "/opt/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.8"})
    assert words[0] == "/opt/spark/bin/spark-submit"
    assert words[-len(given) :] == given
    assert words[-len(given) - 2 : -len(given)] == ["--deploy-mode", "client"]
    assert "spark.driver.bindAddress=10.0.0.8" in words


def test_an_executor_gets_its_options_in_their_order() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in range(11)}
    words = command(["executor"], {**EXECUTOR, **options})
    assert words[0] == "/java/bin/java"
    assert words[1:12] == [f"-Dn={number}" for number in range(11)]
    assert words[12:14] == ["-Xms1g", "-Xmx1g"]
    assert words[words.index("-cp") + 1] == "/opt/spark/conf:/opt/spark/jars/*"
    backend = words.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert dict(zip(words[backend + 1 :: 2], words[backend + 2 :: 2], strict=True)) == {
        "--driver-url": "spark://driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "lake-exec-3",
    }
