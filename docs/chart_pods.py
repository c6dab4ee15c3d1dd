"""The values of the Helm chart for any pod, whatever runs in it, and the forms of texts in them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from chart_parts import Kubernetes, Value, form, kubernetes
from pydantic import Field, WithJsonSchema

QUANTITY: Final = r"^[1-9][0-9]*(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$"
"""Bytes, as Kubernetes writes them."""

MILLICORES: Final = r"^([1-9][0-9]*m|[1-9][0-9]*(\.[0-9]+)?|0\.[0-9]+)$"
PROMETHEUS_TIME: Final = r"^[1-9][0-9]*(ms|s|m|h)$"
GO_TIME: Final = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"
NAME: Final = r"^([a-z]([-a-z0-9]*[a-z0-9])?)?$"
CIDR: Final = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$"

ObjectName = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]
"""Name of an object of Kubernetes; or none."""

SecretKey = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$")]
Host = Annotated[str, Field(pattern=r"^[^\s,]+$")]
LabelName = Annotated[str, Field(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")]


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _with(*required: str, **properties: Any) -> dict[str, Any]:
    """An object with fields that it must have, and others."""
    return {"type": "object", "required": list(required), "properties": properties}


_TEXT: Final = {"type": "string"}
_WORD: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_AMOUNTS: Final = {
    "type": ["object", "null"],
    "additionalProperties": {
        "type": ["string", "number", "null"],
        "minimum": 0,
        "pattern": r"^[0-9]+(\.[0-9]+)?(m|[kMGTPE]|[KMGTPE]i|[eE][0-9]+)?$",
    },
}
_NETWORKS: Final = {"type": "array", "items": {**_TEXT, "pattern": CIDR}}

FORMS: Final[dict[str, dict[str, Any]]] = {
    "Resources": _closed(requests=_AMOUNTS, limits=_AMOUNTS, claims={"type": "array"}),
    "Labels": {
        "type": "object",
        "propertyNames": {"pattern": rf"^([a-z0-9.-]+/)?{_WORD}$"},
        "additionalProperties": {**_TEXT, "pattern": f"^({_WORD})?$"},
    },
    "Variable": _with("name", name=_TEXT, value=_TEXT),
    "Named": _with("name", name=_TEXT),
    "Mount": _with("name", "mountPath", name=_TEXT, mountPath=_TEXT),
    "Container": _with("name", "image", name=_TEXT, image=_TEXT),
    "Toleration": _with(
        operator={"enum": ["Exists", "Equal"]}, effect={"enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]}
    ),
    "Rule": _with("expr", expr=_TEXT),
    "AnyObject": _with("apiVersion", "kind", "metadata", apiVersion=_TEXT, kind=_TEXT),
    "Block": {**_closed(cidr={**_TEXT, "pattern": CIDR}, **{"except": _NETWORKS}), "required": ["cidr"]},
    "Peer": _closed(podSelector={"type": "object"}, namespaceSelector={"type": "object"}, ipBlock=form("Block"))
    | {"minProperties": 1},
    # without fields it would admit everything
    "Egress": _closed(to={"type": "array", "items": form("Peer")}, ports={"type": "array"}) | {"minProperties": 1},
}
"""The fields of objects of Kubernetes that the chart checks, by the name of the form."""

Resources = Annotated[Kubernetes, WithJsonSchema(form("Resources"))]
Labels = Annotated[dict[str, str], WithJsonSchema(form("Labels"))]
Variable = Annotated[Kubernetes, WithJsonSchema(form("Variable"))]
Named = Annotated[Kubernetes, WithJsonSchema(form("Named"))]
Mount = Annotated[Kubernetes, WithJsonSchema(form("Mount"))]
Container = Annotated[Kubernetes, WithJsonSchema(form("Container"))]
Toleration = Annotated[Kubernetes, WithJsonSchema(form("Toleration"))]
Rule = Annotated[Kubernetes, WithJsonSchema(form("Rule"))]
AnyObject = Annotated[Kubernetes, WithJsonSchema(form("AnyObject"))]
Peer = Annotated[Kubernetes, WithJsonSchema(form("Peer"))]
Egress = Annotated[Kubernetes, WithJsonSchema(form("Egress"))]


class Pod(Value):
    """Values that any pod may be given: `podDefaults` holds it for all, each part its own beside it."""

    priority_class_name: ObjectName = Field("", description="Priority class.")
    pod_annotations: dict[str, str] = Field({}, description="Annotations of the pods.")
    pod_labels: Labels = Field({}, description="Labels of the pods.")
    node_selector: Labels = Field({}, description="Labels of the nodes that may run it.")
    tolerations: list[Toleration] = Field([], description="Tolerations.")
    affinity: Kubernetes = kubernetes("Affinity.")
    host_aliases: list[Kubernetes] = Field([], description="Lines of /etc/hosts.")
    dns_policy: Literal["", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"] = Field(
        "", description="DNS policy; default: ClusterFirst."
    )
    dns_config: Kubernetes = kubernetes("Name servers, search domains and options.")
    extra_env: list[Variable] = Field([], description="More environment variables, as Kubernetes writes them.")
    extra_env_from: list[Kubernetes] = Field([], description="ConfigMaps and Secrets whose keys become variables.")
    extra_volumes: list[Named] = Field([], description="More volumes.")
    extra_volume_mounts: list[Mount] = Field([], description="Mounts of these volumes in our container.")
    init_containers: list[Container] = Field([], description="Containers that run before ours.")
    extra_containers: list[Container] = Field([], description="Containers that run beside ours.")


class OwnImage(Value):
    """The image of one part."""

    image: str = Field(
        "", description="Its whole image, such as `registry.example.org/team/NAME@sha256:…`; default: by `image` above."
    )


class Account(Value):
    create: bool = Field(True, description="Make the ServiceAccount.")
    name: ObjectName = Field("", description="Its name; without `create`, one that is there (`default` if empty).")


class Network(Value):
    ip_family_policy: Literal["", "SingleStack", "PreferDualStack", "RequireDualStack"] = Field(
        "", description="Policy of every Service; default: the cluster's."
    )
    ip_families: list[Literal["IPv4", "IPv6"]] = Field(
        [],
        max_length=2,
        json_schema_extra={"uniqueItems": True},
        description="Families of every Service, the first one first. With IPv6 the parts listen on `::`, too.",
    )


class Service(Value):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field("ClusterIP", description="Type of the Service.")
    annotations: dict[str, str] = Field({}, description="Annotations, for example for the cloud's balancer.")
    port: int | None = Field(None, ge=1, le=65_535, description="Port of the Service; default: the protocol's own.")
    node_port: int | None = Field(None, ge=1, le=65_535, description="Port on every node; default: a free one.")
    node_ports: dict[str, Annotated[int, Field(ge=1, le=65_535)]] = Field(
        {}, description="The same for further ports, by their names: `logjam-pull`, `logjam-pub`, `heartbeat`."
    )
    load_balancer_ip: str = Field(
        "", alias="loadBalancerIP", pattern=r"^[0-9a-fA-F.:]*$", description="Address to ask the balancer for."
    )
    load_balancer_class: str = Field("", pattern=r"^\S*$", description="Class of the balancer.")
    load_balancer_source_ranges: list[Annotated[str, Field(pattern=CIDR)]] = Field(
        [], description="Networks that the balancer admits; default: all."
    )
    external_traffic_policy: Literal["", "Cluster", "Local"] = Field(
        "", description="`Local` keeps the clients' addresses."
    )
    internal_traffic_policy: Literal["", "Cluster", "Local"] = Field(
        "", description="`Local`: clients of the cluster reach only pods of their own node."
    )
    traffic_distribution: Literal["", "PreferClose", "PreferSameZone", "PreferSameNode"] = Field(
        "", description="Pods that clients of the cluster prefer; default: any."
    )
