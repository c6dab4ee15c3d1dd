"""The pages for clusters name the versions that all other tests use."""

from __future__ import annotations

import re
from pathlib import Path

import headrace_lake
import pytest
from headrace_cli.machine.jars import listed

ROOT = Path(__file__).parent.parent.parent
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
