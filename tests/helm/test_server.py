"""What a real API server says to the chart: its schemas, its defaults, its admission, and Helm's way of changing things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.helm.chart import SCENARIOS, RefusedError, scenario, workloads
from tests.helm.cluster import Namespace, kubectl, namespace, pod_of

pytestmark = [pytest.mark.requires("helm", "k8s"), pytest.mark.long]

FOREIGN = {"PodMonitor", "PrometheusRule"}
"""Kinds whose operators are not in the cluster."""

GIVEN = ("default", "site", "landing")
"""ServiceAccounts that an example names, and the one that a controller makes."""


@pytest.fixture(scope="module")
def place() -> Iterator[Namespace]:
    with namespace() as made:
        for account in GIVEN:
            try:  # no controller makes the first where there is an API server alone; where there is one, it may come first
                made.kubectl("create", "serviceaccount", account)
            except RefusedError as error:
                if "already exists" not in str(error):
                    raise
        kubectl("create", "priorityclass", "ingest", "--value=1000")  # the one that an example names
        try:
            yield made
        finally:
            kubectl("delete", "priorityclass", "ingest")


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_server_takes_every_object_and_admits_every_pod(place: Namespace, name: str) -> None:
    """With strict validation: an unknown field is an error. The admission enforces pod security "restricted"."""
    objects = [each for each in scenario(name) if each["kind"] not in FOREIGN]
    if name == "ipv6":  # the server of the tests has no such addresses to give
        objects = [each for each in objects if each["kind"] != "Service"]
    accounts = [each for each in objects if each["kind"] == "ServiceAccount"]
    options = ("create", "--dry-run=server", "--validate=strict", "--filename", "-")
    moved = [{**each, "metadata": {**each["metadata"], "namespace": place.name}} for each in objects]
    made = yaml.safe_dump_all([each for each in moved if each["kind"] == "ServiceAccount"])
    if accounts:  # the admission of pods looks for them
        place.kubectl("create", "--validate=strict", "--filename", "-", given=made)
    place.kubectl(*options, given=yaml.safe_dump_all([each for each in moved if each["kind"] != "ServiceAccount"]))
    for each, _ in workloads(objects):
        said = place.kubectl(*options, given=pod_of(each))
        assert "dry run" in said
    if accounts:
        place.kubectl("delete", "--filename", "-", given=made)


def test_install_upgrade_rollback_and_removal() -> None:
    with namespace() as place:
        said = place.install()
        for text in ("STATUS: deployed", "for development", "headrace-forward.%s:24224", "helm test headrace -n %s"):
            assert text.replace("%s", place.name) in said
        assert place.get("deployment", "headrace-forward")["spec"]["replicas"] == 2
        (job,) = place.get("jobs")
        place.upgrade("--set", "receivers.forward.replicas=3,topics.settings.topics.events_partitions=24")
        assert place.get("deployment", "headrace-forward")["spec"]["replicas"] == 3
        assert [each["metadata"]["name"] for each in place.get("jobs")] != [job["metadata"]["name"]]
        place.upgrade("--set", "receivers.logjam.settings.logjam.endpoints.one=tcp://device:9606")
        assert place.get("statefulset", "headrace-logjam")["spec"]["serviceName"] == "headrace-logjam-consumers"
        place.helm("rollback", "1")
        assert place.get("deployment", "headrace-logjam")["spec"]["replicas"] == 2
        place.helm("uninstall")
        assert place.get("deployments") == place.get("statefulsets") == place.get("services") == []
        (kept,) = place.get("persistentvolumeclaims")
        assert kept["metadata"]["name"] == "headrace-lake"  # the tables outlive the release
