"""The values of the Helm chart, declared once. `generate.py` writes values.yaml, values.schema.json and the tables from here.

What a part of Headrace can be told (`settings`, `secrets`) comes from the settings classes; the rest is declared below. An
unknown name is refused at every level, except inside objects that Kubernetes itself defines.
"""

from __future__ import annotations

from typing import Annotated, Literal

from chart_parts import Kubernetes, Value, kubernetes, secrets_of, settings_of
from chart_pods import (
    GO_TIME,
    MILLICORES,
    NAME,
    PROMETHEUS_TIME,
    QUANTITY,
    Account,
    AnyObject,
    Egress,
    Host,
    LabelName,
    Labels,
    Named,
    Network,
    ObjectName,
    OwnImage,
    Peer,
    Pod,
    Resources,
    Rule,
    SecretKey,
    Service,
)
from headrace_common.operations.variables import Bytes
from pydantic import Field


class Image(Value):
    registry: str = Field(
        "",
        pattern=r"^([A-Za-z0-9.-]+(:[0-9]+)?/([a-z0-9._-]+/)*)?$",
        description="Prefix of each image's name, such as `registry.example.org/team/`.",
    )
    tag: str = Field(
        "",
        pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$",
        description="Tag of our images; default: the chart's appVersion.",
    )
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        "IfNotPresent", description="Pull policy of all images."
    )
    pull_secrets: list[ObjectName] = Field([], description="Names of Secrets of type dockerconfigjson.")


class Sasl(Value):
    existing_secret: ObjectName = Field("", description="Secret with user name and password; for a SASL protocol.")
    username_key: SecretKey = Field("username", description="The user name's key in it.")
    password_key: SecretKey = Field("password", description="The password's key in it.")


class Ca(Value):
    existing_secret: ObjectName = Field("", description="Secret with the CA that signed the other side's certificates.")
    key: SecretKey = Field("ca.crt", description="The CA's key in it.")


class KafkaCertificate(Value):
    existing_secret: ObjectName = Field(
        "", description="Secret with the certificate that all parts show to your own brokers."
    )
    certificate_key: SecretKey = Field("tls.crt", description="The certificate's key in it.")
    key_key: SecretKey = Field("tls.key", description="The private key's key in it.")
    password_key: str = Field("", description="The key of the private key's password in it, if that is encrypted.")


class OAuth(Value):
    existing_secret: ObjectName = Field(
        "", description="Secret with client id and client secret; for `sasl_mechanism: OAUTHBEARER`."
    )
    client_id_key: SecretKey = Field("client-id", description="The client id's key in it.")
    client_secret_key: SecretKey = Field("client-secret", description="The client secret's key in it.")
    ca: Ca = Field(Ca(), description="CA of the endpoint that gives tokens; default: those that systems trust.")


class Storage(Value):
    size: str = Field("8Gi", pattern=QUANTITY, description="Size of the volume.")
    storage_class: ObjectName = Field("", description="Storage class; default: the cluster's.")
    access_modes: list[Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]] = Field(
        ["ReadWriteOnce"], min_length=1, description="Access modes of the volume."
    )
    existing_claim: ObjectName = Field("", description="Use this claim instead of making one.")
    ephemeral: bool = Field(False, description="Use an emptyDir: everything is lost with the pod.")


class DevelopmentKafka(Pod):
    image: str = Field("apache/kafka:4.3.1", min_length=1, description="Image of the development broker.")
    heap: str = Field("512m", pattern=r"^[1-9]\d*[mg]$", description="Heap of the broker's JVM.")
    retention_bytes: Bytes = Field(
        268_435_456, ge=1_048_576, description="`retention.bytes` of each partition, so that the volume never fills."
    )
    storage: Storage = Field(Storage(), description="The broker's volume.")
    resources: Resources = Field(
        {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "1536Mi"}},
        description="Requests and limits.",
    )


class Kafka(Value):
    enabled: bool = Field(
        True, description="Run a broker for development: one node, no replicas. With false, bring your own Kafka."
    )
    settings: Kubernetes = settings_of(
        "kafka", "Settings of section `kafka`, the same for every part: your own brokers."
    )
    sasl: Sasl = Field(Sasl(), description="Login at your own brokers by a password.")
    oauth: OAuth = Field(OAuth(), description="Login by tokens; their endpoint is `settings.oauth_endpoint`.")
    ca: Ca = Field(Ca(), description="CA of your own brokers; default: those that systems trust.")
    certificate: KafkaCertificate = Field(
        KafkaCertificate(), description="Certificate that all parts show to your own brokers (mTLS)."
    )
    service_account_annotations: dict[str, str] = Field(
        {},
        description="Annotations of every part's ServiceAccount, such as the role for `sasl_mechanism: AWS_MSK_IAM` (IRSA).",
    )
    development: DevelopmentKafka = Field(DevelopmentKafka(), description="The development broker.")


class Topics(Pod, OwnImage):
    image: str = Field(
        "", description="Image of the job; default: the segment service's, or where that is off, another receiver's."
    )
    enabled: bool = Field(
        True, description="Make the topics: with your own Kafka before each installation and upgrade, by a hook."
    )
    settings: Kubernetes = settings_of("topics")
    resources: Resources = Field(
        {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
        description="Requests and limits.",
    )


class Route(Value):
    parent_refs: list[Named] = Field([], description="Gateways (`name`, `sectionName`, …); empty: no route.")
    kind: Literal["TCPRoute", "TLSRoute"] = Field(
        "TCPRoute", description="TLSRoute passes TLS on by the name that clients ask for."
    )
    hostnames: list[Host] = Field([], description="Names that clients ask for; a TLSRoute needs them.")


class CertManager(Value):
    enabled: bool = Field(False, description="Ask cert-manager for a certificate.")
    issuer_ref: Kubernetes = kubernetes("The issuer: name, kind, group.")
    dns_names: list[Host] = Field([], description="Names in the certificate, besides the Service's.")
    duration: str = Field("2160h", pattern=GO_TIME, description="Lifetime of the certificate.")
    renew_before: str = Field("720h", pattern=GO_TIME, description="Time before its end at which it is renewed.")


class ClientCa(Value):
    existing_secret: ObjectName = Field(
        "", description="Secret with a CA: clients must present a certificate that it signed."
    )
    key: SecretKey = Field("ca.crt", description="The CA's key in it.")


class Tls(Value):
    existing_secret: ObjectName = Field("", description="Secret of type kubernetes.io/tls with certificate and key.")
    cert_manager: CertManager = Field(
        CertManager(), description="A certificate from cert-manager, instead of `existingSecret`."
    )
    client_ca: ClientCa = Field(ClientCa(), description="Certificates of clients.")


class Autoscaling(Value):
    enabled: bool = Field(False, description="Scale between the two numbers of replicas.")
    type: Literal["hpa", "keda"] = Field("hpa", description="`hpa`, or `keda` for a ScaledObject with triggers.")
    min_replicas: int = Field(2, ge=1, description="Fewest replicas.")
    max_replicas: int = Field(10, ge=1, description="Most replicas.")
    cpu: str = Field(
        "700m", pattern=MILLICORES, description="Aim: CPU of a pod, on average. A receiver uses one core at most."
    )
    scale_down_seconds: int = Field(300, ge=0, le=3600, description="Seconds of lower need after which a pod goes.")
    behavior: Kubernetes = kubernetes("`behavior` of the HPA (KEDA makes one, too), instead of `scaleDownSeconds`.")
    metrics: list[Kubernetes] = Field([], description="More metrics of the HPA, such as `headrace_budget_used_bytes`.")
    triggers: list[Kubernetes] = Field([], description="KEDA's triggers; default: CPU.")


class Disruption(Value):
    enabled: bool = Field(True, description="Limit how many pods a drained node may take away at once.")
    max_unavailable: Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^[0-9]{1,3}%$")] = Field(
        1, description="Number of pods, or their share as `25%`."
    )


class TopologySpread(Value):
    enabled: bool = Field(True, description="Spread the replicas of a receiver.")
    topology_keys: list[LabelName] = Field(
        ["kubernetes.io/hostname", "topology.kubernetes.io/zone"],
        description="Labels of nodes: replicas are spread over their values.",
    )
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = Field(
        "ScheduleAnyway", description="`DoNotSchedule`: a pod that cannot be spread waits."
    )


class ReceiverDefaults(Pod):
    replicas: int = Field(2, ge=0, description="Number of pods, without autoscaling.")
    settings: Kubernetes = settings_of("receiver")
    resources: Resources = Field(
        {"requests": {"cpu": "100m", "memory": "192Mi"}, "limits": {"memory": "768Mi"}},
        description="Requests and limits. The memory limit must hold `limits.process_budget` twice, 128 MiB, and with TLS 96 MiB "
        "for each 1,000 clients.",
    )
    service: Service = Field(Service(), description="The Service for clients.")
    gateway: Route = Field(Route(), description="A route of the Gateway API to the main port.")
    tls: Tls = Field(Tls(), description="TLS towards clients. Logjam has none.")
    autoscaling: Autoscaling = Field(Autoscaling(), description="Number of pods by load.")
    pod_disruption_budget: Disruption = Field(Disruption(), description="PodDisruptionBudget.")
    topology_spread: TopologySpread = Field(TopologySpread(), description="Spread over nodes and zones.")
    pre_stop_seconds: int = Field(
        5,
        ge=0,
        le=300,
        description="Seconds in which a pod that ends still takes clients, until the cluster has stopped sending it any.",
    )


class Forward(ReceiverDefaults, OwnImage):
    enabled: bool = Field(True, description="Run the Forward receiver (24224).")
    settings: Kubernetes = settings_of("forward")
    secrets: Kubernetes = secrets_of("forward")


class Lumberjack(ReceiverDefaults, OwnImage):
    enabled: bool = Field(True, description="Run the Lumberjack receiver (5044).")
    settings: Kubernetes = settings_of("lumberjack")


class Courier(ReceiverDefaults, OwnImage):
    enabled: bool = Field(True, description="Run the Courier receiver (5043).")
    settings: Kubernetes = settings_of("courier")


class Logjam(ReceiverDefaults, OwnImage):
    enabled: bool = Field(
        True, description="Run the Logjam receiver (9604, 9605). With `logjam.endpoints` it is a StatefulSet."
    )
    settings: Kubernetes = settings_of("logjam")


class Segment(ReceiverDefaults, OwnImage):
    enabled: bool = Field(True, description="Run the segment service (12345).")
    settings: Kubernetes = settings_of("segment")


class Receivers(Value):
    forward: Forward = Field(Forward(enabled=True), description="Fluentd Forward.")
    lumberjack: Lumberjack = Field(Lumberjack(enabled=True), description="Beats, Elastic Agent, Logstash.")
    courier: Courier = Field(Courier(enabled=True), description="log-courier.")
    logjam: Logjam = Field(Logjam(enabled=True), description="Logjam's producers and devices.")
    segment: Segment = Field(Segment(enabled=True), description="Pravega's writers and readers.")


class Operator(Value):
    executors: int = Field(2, ge=1, description="Number of executors; never more than the events topic has partitions.")
    executor_memory: str = Field("1g", pattern=r"^[1-9]\d*[mg]$", description="Heap of an executor.")
    executor_cores: int = Field(1, ge=1, description="Tasks of an executor at a time.")
    driver_memory_overhead: str = Field(
        "512m", pattern=r"^[1-9]\d*[mg]$", description="Python, and what the JVM holds beside its heap."
    )


class Lake(Pod, OwnImage):
    mode: Literal["deployment", "operator", "none"] = Field(
        "deployment",
        description="`deployment`: one pod; `operator`: a SparkApplication for the kubeflow operator; `none`: it runs elsewhere.",
    )
    settings: Kubernetes = settings_of("lake")
    secrets: Kubernetes = secrets_of("lake")
    storage: Storage = Field(
        Storage(size="20Gi"),
        description="Volume for tables and checkpoint, at /var/lib/headrace, unless `settings.lake.path` is a URL.",
    )
    resources: Resources = Field(
        {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "3Gi"}},
        description="Requests and limits: at least the heap (`lake.settings.lake.driver_memory`) and 1 GiB.",
    )
    termination_grace_period_seconds: int = Field(120, ge=30, description="Time to finish the batch.")
    service_account: Account = Field(Account(), description="ServiceAccount of the landing job.")
    service_account_annotations: dict[str, str] = Field({}, description="For example the role that may use the bucket.")
    operator: Operator = Field(Operator(), description="Only with `mode: operator`.")
    env_from_secret: ObjectName = Field(
        "", description="Secret whose keys become variables, such as AWS_ACCESS_KEY_ID."
    )


class NetworkPolicy(Value):
    enabled: bool = Field(True, description="Restrict who reaches the pods.")
    clients: list[Peer] = Field([], description="Peers that may reach the receivers' ports; default: everybody.")
    operations: list[Peer] = Field(
        [{"namespaceSelector": {}}], description="Peers that may reach health and metrics: pods of this cluster."
    )
    egress: bool = Field(False, description="Also restrict where the pods connect to: DNS, and `kafka`.")
    kafka: list[Egress] = Field(
        [], description="Rules (`to`, `ports`) for your own brokers, the devices and the object store; with `egress`."
    )


class Monitoring(Value):
    pod_monitor: bool = Field(False, description="A PodMonitor for all parts.")
    service_monitor: bool = Field(False, description="ServiceMonitors, each with a headless Service of its own.")
    interval: str = Field("30s", pattern=PROMETHEUS_TIME, description="Time between two scrapes.")
    labels: Labels = Field({}, description="Labels that your Prometheus selects monitors and rules by.")
    rules: bool = Field(
        False,
        description="A PrometheusRule with the alerts of files/alerts.yml; with one of our monitors, for this release alone.",
    )
    disabled_rules: list[str] = Field([], description="Names of alerts to leave out.")
    rule_labels: dict[str, str] = Field({}, description="More labels of each alert, for your routes.")
    extra_rules: list[Rule] = Field([], description="Rules of your own, in a group beside ours.")
    runbooks: str = Field(
        "",
        pattern=r"^(https?://.+)?$",
        description="URL where your people find docs/runbooks.md: each alert links to its section (`runbook_url`).",
    )
    dashboards: bool = Field(False, description="A ConfigMap with the dashboard, for Grafana's sidecar.")
    dashboard_labels: dict[str, str] = Field(
        {"grafana_dashboard": "1"}, description="Labels that the sidecar selects by."
    )


class Live(Pod, OwnImage):
    enabled: bool = Field(False, description="Run the live page: one pod, and a headless Service for each part.")
    hosts: list[Host] = Field(
        [],
        description="More names in a browser's address that it answers to, such as an Ingress's; the Service's are known.",
    )
    samples: bool = Field(
        False,
        description="Show what clients sent to all who can open the page: messages.",
    )
    resources: Resources = Field(
        {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "384Mi"}},
        description="Requests and limits.",
    )


class PodSecurity(Value):
    run_as_user: int | None = Field(
        10001, ge=1, description="User id of the receivers and of the jobs; null: the cluster chooses (OpenShift)."
    )
    lake_user: int | None = Field(185, ge=1, description="User id of the landing job: that of Spark's images; or null.")
    kafka_user: int | None = Field(
        1000, ge=1, description="User id of the development broker: that of its image; or null."
    )


class Probe(Pod, OwnImage):
    enabled: bool = Field(True, description="`helm test`: an event by each protocol, found on the topic.")
    timeout_seconds: int = Field(120, ge=10, description="Seconds that it may take.")


class Values(Value):
    name_override: str = Field("", pattern=NAME, description="Instead of the chart's name in the objects' names.")
    fullname_override: str = Field(
        "", pattern=NAME, description="Instead of the whole beginning of the objects' names."
    )
    labels: Labels = Field({}, description="Labels of every object.")
    image: Image = Field(Image(), description="Registry, tag and pulling of our images.")
    pod_defaults: Pod = Field(
        Pod(), description="Values of every pod. Each part may have its own beside its other values: those win."
    )
    service_account: Account = Field(Account(), description="ServiceAccount of all parts but the landing job.")
    network: Network = Field(Network(), description="Families of addresses.")
    extra_objects: list[AnyObject] = Field([], description="More objects, rendered as templates.")
    kafka: Kafka = Field(Kafka(), description="Kafka.")
    topics: Topics = Field(Topics(), description="The topics.")
    receiver_defaults: ReceiverDefaults = Field(
        ReceiverDefaults(), description="Values of every receiver. Each may have others in `receivers`."
    )
    receivers: Receivers = Field(Receivers(), description="The receivers: every value of `receiverDefaults`, and:")
    lake: Lake = Field(Lake(), description="The landing job.")
    network_policy: NetworkPolicy = Field(NetworkPolicy(), description="NetworkPolicies.")
    monitoring: Monitoring = Field(Monitoring(), description="Prometheus and Grafana, by their operators.")
    live: Live = Field(Live(), description="The live page: it shows in a browser what the parts do each second.")
    pod_security: PodSecurity = Field(PodSecurity(), description="User ids; everything else is `restricted`.")
    test: Probe = Field(Probe(), description="`helm test`.")
