"""The protocol's commands: `pulsar_pb2`, generated from pulsar.proto and the files that it imports.

Example:
    >>> from holdfast.protocol import pulsar_pb2 as pb
    >>> flow = pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=9))
    >>> pb.BaseCommand.FromString(flow.SerializeToString()).flow.messagePermits
    9
"""
