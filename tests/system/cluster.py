"""What an operator may do to a topic of a running Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_common.topics import plans

from tests.contract.waiting import until

_TOPIC, _LITERAL = 2, 3  # ResourceType, PatternType
_ANY = 1  # AclOperation, AclPermissionType
_ALL, _WRITE = 2, 4  # AclOperation
_DENY, _ALLOW = 2, 3  # AclPermissionType
_EVERYBODY = "User:ANONYMOUS"


@asynccontextmanager
async def admin(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def altered(kafka: KafkaSettings, topic: str, **configuration: object) -> AsyncIterator[None]:
    """The topic with other settings (names with ``_`` for ``.``); as it was, afterwards."""
    (plan,) = [plan for plan in plans(kafka, TopicSettings()) if plan.name == topic]
    changes = {name.replace("_", "."): str(value) for name, value in configuration.items()}
    await _configure(kafka, topic, {**plan.configuration, **changes})
    try:
        yield
    finally:
        await _configure(kafka, topic, dict(plan.configuration))


async def _configure(kafka: KafkaSettings, topic: str, configuration: dict[str, str]) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configuration)
    async with admin(kafka) as client:
        (response,) = await client.alter_configs([resource])
        assert response.resources[0][0] == 0, response

        async def there() -> bool:
            (described,) = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            has = {entry[0]: entry[1] for entry in described.resources[0][4]}
            return configuration.items() <= has.items()

        await until(there, f"{topic} is altered")


@asynccontextmanager
async def write_denied(kafka: KafkaSettings, topic: str) -> AsyncIterator[None]:
    """Nobody may write to the topic; everybody may still read it and see that it is there."""
    rules = ((_ALL, _ALLOW), (_WRITE, _DENY))
    async with admin(kafka) as client:

        async def heeds(count: int) -> bool:
            """Whether the broker has so many rules: the controller answers a moment before."""
            request = DescribeAclsRequest(_TOPIC, topic, _LITERAL, None, None, _ANY, _ANY)
            response = await client._send_request(request)
            assert response.error_code == 0, response
            return sum(len(acls) for *_, acls in response.resources) == count

        for operation, permission in rules:
            request = CreateAclsRequest(_TOPIC, topic, _LITERAL, _EVERYBODY, "*", operation, permission)
            response = await client._send_request(request)
            assert response.creation_responses[0][0] == 0, response
        await until(lambda: heeds(len(rules)), "the broker heeds the rules")
        try:
            yield
        finally:
            for operation, permission in rules:
                request = DeleteAclsRequest(_TOPIC, topic, _LITERAL, _EVERYBODY, "*", operation, permission)
                response = await client._send_request(request)
                assert response.filter_responses[0][0] == 0, response
            await until(lambda: heeds(0), "the broker has forgotten the rules")
