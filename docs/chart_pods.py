"""The values of the Helm chart for any pod, whatever runs in it, and the forms of texts in them."""

from __future__ import annotations

from typing import Final, Literal

from chart_parts import Kubernetes, Value, kubernetes
from pydantic import Field

QUANTITY: Final = r"^[1-9][0-9]*(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$"
"""Bytes, as Kubernetes writes them."""

MILLICORES: Final = r"^([1-9][0-9]*m|[1-9][0-9]*(\.[0-9]+)?|0\.[0-9]+)$"
PROMETHEUS_TIME: Final = r"^[1-9][0-9]*(ms|s|m|h)$"
GO_TIME: Final = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"
NAME: Final = r"^([a-z]([-a-z0-9]*[a-z0-9])?)?$"


class Pod(Value):
    """Values that any pod may be given: `podDefaults` holds it for all, each part its own beside it."""

    priority_class_name: str = Field("", description="Priority class.")
    pod_annotations: dict[str, str] = Field({}, description="Annotations of the pods.")
    pod_labels: dict[str, str] = Field({}, description="Labels of the pods.")
    node_selector: dict[str, str] = Field({}, description="Labels of the nodes that may run it.")
    tolerations: list[Kubernetes] = Field([], description="Tolerations.")
    affinity: Kubernetes = kubernetes("Affinity.")
    host_aliases: list[Kubernetes] = Field([], description="Lines of /etc/hosts.")
    dns_policy: Literal["", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"] = Field(
        "", description="Where names come from; default: the cluster."
    )
    dns_config: Kubernetes = kubernetes("Name servers, search domains and options.")
    extra_env: list[Kubernetes] = Field([], description="More environment variables, as Kubernetes writes them.")
    extra_env_from: list[Kubernetes] = Field([], description="ConfigMaps and Secrets whose keys become variables.")
    extra_volumes: list[Kubernetes] = Field([], description="More volumes.")
    extra_volume_mounts: list[Kubernetes] = Field([], description="Where our container mounts them.")
    init_containers: list[Kubernetes] = Field([], description="Containers that run before ours.")
    extra_containers: list[Kubernetes] = Field([], description="Containers that run beside ours.")


class OwnImage(Value):
    """The image of one part."""

    image: str = Field(
        "", description="Its whole image, such as `registry.example.org/team/NAME@sha256:…`; default: by `image` above."
    )


class Account(Value):
    create: bool = Field(True, description="Make the ServiceAccount.")
    name: str = Field("", description="Its name; without `create`, one that is there (`default` if empty).")


class Network(Value):
    ip_family_policy: Literal["", "SingleStack", "PreferDualStack", "RequireDualStack"] = Field(
        "", description="Of every Service; default: the cluster's."
    )
    ip_families: list[Literal["IPv4", "IPv6"]] = Field(
        [], max_length=2, description="Of every Service, the first one first. With IPv6 the parts listen on `::`, too."
    )
