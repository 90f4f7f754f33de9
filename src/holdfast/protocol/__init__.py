"""Commands of the Pulsar protocol and ours, generated from `pulsar.proto`.

Example:
    >>> from holdfast.protocol import pulsar_pb2 as pb
    >>> flow = pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=9))
    >>> pb.BaseCommand.FromString(flow.SerializeToString()).flow.messagePermits
    9
"""
