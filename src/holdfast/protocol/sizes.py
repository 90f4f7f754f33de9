"""Sizes that both ends of a connection must agree on."""

FRAME_PADDING_BYTES = 64 << 10
"""The most that a frame has around a message of the largest size: the command and the metadata."""
ENTRY_PADDING_BYTES = 10 << 10
"""The most that an entry has beside its message, as with Pulsar: the keys of an encrypted one."""
COMMIT_PARTS_MAX = 20_000
"""Parts of a sink's commit, at most: stages times topics."""
COMMIT_BYTES_MAX = 64 * COMMIT_PARTS_MAX
"""Bytes of the command: a part has fewer than 64."""
