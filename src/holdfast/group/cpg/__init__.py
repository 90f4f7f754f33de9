"""The group on Corosync: views, stability and flow control over closed process groups.

`library` calls libcpg. `wire` is the format of messages. `outbox` and `inbox` divide and join events.
`forming` decides on views; `engine` is the group. docs/internals/group.md has the reasoning.
"""

from holdfast.group.cpg.engine import CpgGroup
from holdfast.group.cpg.library import library as load_library

__all__ = ["CpgGroup", "load_library"]
