"""What a real API server says to the chart: its schemas, its defaults, its admission, and Helm's way of changing things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.helm.chart import SCENARIOS, Object, scenario
from tests.helm.cluster import Namespace, namespace

pytestmark = [pytest.mark.requires("helm", "k8s"), pytest.mark.long]

FOREIGN = {"PodMonitor", "PrometheusRule"}
"""Kinds whose operators are not in the cluster."""


@pytest.fixture(scope="module")
def place() -> Iterator[Namespace]:
    with namespace() as made:
        yield made


def judged(each: Object, namespace: str) -> Object:
    """The object in another namespace; a job of the same pod for a pod, which wants its account and its class to be there."""
    metadata = {**each["metadata"], "namespace": namespace}
    if each["kind"] != "Pod":
        return {**each, "metadata": metadata}
    template = {"metadata": {"labels": each["metadata"]["labels"]}, "spec": each["spec"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_server_takes_every_object_and_admits_every_pod(place: Namespace, name: str) -> None:
    """With strict validation: an unknown field is an error. The admission warns of a pod that is not "restricted"."""
    without = (
        {*FOREIGN, "Service"} if name == "ipv6" else FOREIGN
    )  # the server of the tests has no such addresses to give
    objects = [judged(each, place.name) for each in scenario(name) if each["kind"] not in without]
    options = ("--dry-run=server", "--validate=strict", "--warnings-as-errors", "--filename", "-")
    place.kubectl("create", *options, given=yaml.safe_dump_all(objects))


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
