"""Whatever the files and pages for clusters name exists, with the versions that all other tests use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import headrace_lake
import pytest
import yaml
from headrace_cli.machine.jars import listed
from headrace_common.operations.variables import each_setting, variable
from headrace_lake.configuration.settings import LakeProcessSettings

from tests.helm.spark_operator import faults

ROOT = Path(__file__).parent.parent.parent
(PYSPARK,) = re.findall(r"^pyspark==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
SETTINGS = {variable(section, name) for section, name, _ in each_setting(LakeProcessSettings)}
PAGES = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("lake*.md"))


@pytest.fixture
def application() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "deploy" / "spark" / "sparkapplication.yaml").read_text())


def test_the_operator_knows_every_field(application: dict[str, Any]) -> None:
    assert (application["apiVersion"], application["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    assert faults(application) == []
    spec = application["spec"]
    assert (spec["type"], spec["mode"], spec["restartPolicy"]["type"]) == ("Python", "cluster", "Always")
    assert all(isinstance(value, str) for value in spec["sparkConf"].values())
    assert all(isinstance(variable["value"], str) for variable in spec["driver"]["env"])


def test_what_the_operator_does_not_know_is_found(application: dict[str, Any]) -> None:
    driver = application["spec"]["driver"]
    driver["serviceAccountName"] = driver.pop("serviceAccount")
    application["spec"]["restartPolicy"]["type"] = "Sometimes"
    assert faults(application) == [".spec.driver.serviceAccountName", ".spec.restartPolicy.type"]
    application["spec"]["executor"]["instances"] = "two"
    with pytest.raises(ValueError, match="instances"):
        faults(application)


def test_it_names_what_exists(application: dict[str, Any]) -> None:
    spec = application["spec"]
    assert spec["sparkVersion"] == PYSPARK
    assert spec["image"] == f"headrace-lake:{headrace_lake.__version__}"
    assert spec["mainApplicationFile"].startswith("local:///")
    assert (ROOT / "spark_jobs" / "headrace_lake" / Path(spec["mainApplicationFile"]).name).is_file()
    variables = {item["name"]: item["value"] for item in spec["driver"]["env"]}
    assert variables.keys() <= SETTINGS
    assert variables["HEADRACE_OPS__PORT"] == str(spec["driver"]["ports"][0]["containerPort"])


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


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_settings_that_exist(page: str) -> None:
    named = set(re.findall(r"HEADRACE_[A-Z0-9_]+", (ROOT / page).read_text()))
    assert {name.removesuffix("_FILE") for name in named} <= SETTINGS


def test_no_module_hides_one_of_pythons() -> None:
    # spark-submit puts the folder of the file that it runs first on Python's path
    import sys

    modules = {path.stem for path in (ROOT / "spark_jobs" / "headrace_lake").glob("*.py")}
    assert not modules & sys.stdlib_module_names
