"""List the requests of clients: handler, refusal and error codes of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import Busy, NotFound
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar import commands, fields, lookup, schemas, seeking
from holdfast.server.pulsar.commands import Refused

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection


@dataclass(frozen=True)
class Request:
    """One kind of request. Its message has a `request_id`, which the answer repeats."""

    name: str
    """The field of its message in BaseCommand."""
    handle: Callable[[Connection, Any], Awaitable[bytes | None]]
    """Returns the answer's frame; None: it has answered by itself."""
    refuse: Callable[[int, Refused], bytes] = commands.error
    codes: Mapping[type[Exception], pb.ServerError] = field(default_factory=dict)
    """Codes of errors that differ from the usual ones."""
    large: bool = False
    """Its answer can be much larger than the request: a connection carries out one of these at a time."""

    async def carry_out(self, connection: Connection, message: Any) -> bytes | None:
        """Handle a request, unless a field of it has no effect here.

        Raises:
            Unsupported: the text says which field, and what to do.
        """
        fields.require_served(self.name, message)
        return await self.handle(connection, message)


_OF_CONSUMERS: dict[type[Exception], pb.ServerError] = {
    NotFound: pb.SubscriptionNotFound,
    Busy: pb.ConsumerBusy,
}

REQUESTS: dict[int, Request] = {
    pb.BaseCommand.PARTITIONED_METADATA: Request(
        "partitionMetadata", lookup.partitions, lookup.no_partitions
    ),
    pb.BaseCommand.LOOKUP: Request("lookupTopic", lookup.broker_of, lookup.no_broker),
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE: Request("getTopicsOfNamespace", lookup.topics, large=True),
    pb.BaseCommand.WATCH_TOPIC_LIST: Request(
        "watchTopicList", lambda on, message: on.watches.open(message), large=True
    ),
    pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE: Request(
        "watchTopicListClose", lambda on, message: on.watches.close(message)
    ),
    pb.BaseCommand.PRODUCER: Request(
        "producer", lambda on, message: on.producers.open(message), codes={Busy: pb.ProducerBusy}
    ),
    pb.BaseCommand.CLOSE_PRODUCER: Request("close_producer", lambda on, message: on.producers.close(message)),
    pb.BaseCommand.SUBSCRIBE: Request("subscribe", lambda on, message: on.consumers.subscribe(message)),
    pb.BaseCommand.CLOSE_CONSUMER: Request(
        "close_consumer", lambda on, message: on.consumers.close(message), codes=_OF_CONSUMERS
    ),
    pb.BaseCommand.UNSUBSCRIBE: Request(
        "unsubscribe", lambda on, message: on.consumers.unsubscribe(message), codes=_OF_CONSUMERS
    ),
    pb.BaseCommand.SEEK: Request("seek", seeking.seek, codes=_OF_CONSUMERS),
    pb.BaseCommand.GET_LAST_MESSAGE_ID: Request(
        "getLastMessageId", seeking.last_message_id, codes=_OF_CONSUMERS
    ),
    pb.BaseCommand.CONSUMER_STATS: Request(
        "consumerStats", lambda on, message: on.consumers.stats(message), lookup.no_stats, _OF_CONSUMERS
    ),
    pb.BaseCommand.GET_SCHEMA: Request("getSchema", schemas.get, schemas.not_got, large=True),
    pb.BaseCommand.GET_OR_CREATE_SCHEMA: Request(
        "getOrCreateSchema", schemas.get_or_create, schemas.not_created
    ),
}
"""By the type of the command."""
