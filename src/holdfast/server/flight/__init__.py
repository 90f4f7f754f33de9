"""Reads of topics over the network: Arrow Flight in a process of its own.

Promises upward: rows are below `visible`, verified, and of topics from which the caller may consume. For each
call the process asks the server for the caller's role and grants; a read costs the broker's loop nothing
else. A death of this process affects only its readers, which retry. Needs from below: the broker's files
(`holdfast.columns.files`) and the core's columns. Only that process imports Arrow.
"""
