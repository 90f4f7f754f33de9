"""Services: events, fields and methods between one provider and many consumers.

Promises upward: a held sample is never altered. Each call runs at most once. Either side dies and comes
back while the other goes on, and no capacity is lost.
Needs from below: the core's samples, logs and calls, and a kernel that drops a dead process's locks.
"""

from holdfast.memory.service.declared import Service
from holdfast.memory.service.discovery import changes
from holdfast.memory.service.elements import FIELD, METHOD, Element, Event, Field, Method, Value
from holdfast.memory.service.proxy import Proxy
from holdfast.memory.service.service_stats import (
    ElementStats,
    ServiceStats,
    ServiceUser,
    faults_of_service,
    service_stats_of,
)
from holdfast.memory.service.skeleton import Departed, Skeleton
from holdfast.memory.service.subscribing import Subscription

__all__ = [
    "FIELD",
    "METHOD",
    "Departed",
    "Element",
    "ElementStats",
    "Event",
    "Field",
    "Method",
    "Proxy",
    "Service",
    "ServiceStats",
    "ServiceUser",
    "Skeleton",
    "Subscription",
    "Value",
    "changes",
    "faults_of_service",
    "service_stats_of",
]
