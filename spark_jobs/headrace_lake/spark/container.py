"""The entry point of the image: ``python -m headrace_lake.spark.container [ROLE] …``.

=========================  ==============================================================================================
``driver …``               what Kubernetes starts for ``spark-submit --deploy-mode cluster``: Spark's driver, in client mode
``executor``               what a driver on Kubernetes starts: an executor, which needs no Python
anything else, or nothing  the landing job in its own process, with these arguments: ``--once``, ``erase …``
=========================  ==============================================================================================

The roles, their arguments and the variables are those of Spark's own image (``resource-managers/kubernetes/docker/src/main/
dockerfiles/spark/entrypoint.sh`` of Spark 4). The process becomes what it starts: signals reach that directly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

_JAVA_OPTION: Final = "SPARK_JAVA_OPT_"


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Returns the program to become, with its arguments. Raises `KeyError` for a variable that Spark should have set."""
    role, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if role == "driver":
        address = environment["SPARK_DRIVER_BIND_ADDRESS"]
        bound = ["--conf", f"spark.driver.bindAddress={address}"]
        bound += ["--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"]
        return [f"{environment['SPARK_HOME']}/bin/spark-submit", *bound, "--deploy-mode", "client", *rest]
    if role == "executor":
        return _executor(environment)
    return [sys.executable, "-P", "-m", "headrace_lake", *arguments]


def _executor(environment: Mapping[str, str]) -> list[str]:
    numbered = {
        int(name.removeprefix(_JAVA_OPTION)): value
        for name, value in environment.items()
        if name.startswith(_JAVA_OPTION)
    }
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    home = environment["SPARK_HOME"]
    class_path = [
        environment.get("SPARK_CONF_DIR", f"{home}/conf"),
        environment.get("HADOOP_CONF_DIR", ""),
        environment.get("SPARK_CLASSPATH", ""),  # spark.executor.extraClassPath
        f"{home}/jars/*",
        environment.get("SPARK_EXTRA_CLASSPATH", ""),
        environment.get("SPARK_DIST_CLASSPATH", ""),
    ]
    options = {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--cores": "SPARK_EXECUTOR_CORES",
        "--app-id": "SPARK_APPLICATION_ID",
        "--hostname": "SPARK_EXECUTOR_POD_IP",
        "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }
    return [
        f"{environment['JAVA_HOME']}/bin/java",
        *(numbered[number] for number in sorted(numbered)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        os.pathsep.join(filter(None, class_path)),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *(word for option, name in options.items() for word in (option, environment[name])),
    ]


def main() -> int:
    """Becomes the program; returns an exit status only if it cannot."""
    try:
        wanted = command(sys.argv[1:], os.environ)
        os.execv(wanted[0], wanted)  # noqa: S606  (becoming it is the purpose)
    except KeyError as error:
        print(
            f"headrace_lake: {error.args[0]} is not set: Spark sets it where it starts a {sys.argv[1]}", file=sys.stderr
        )
    except OSError as error:
        print(f"headrace_lake: {wanted[0]} cannot be started: {error.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
