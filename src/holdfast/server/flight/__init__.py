"""Reads of topics over the network: Arrow Flight in a process of its own.

Promises upward: what is sent is below `visible`, verified, and of topics that whoever asks may consume from;
the rules are the server's own, asked for each call. The broker's loop does nothing for a read but answer that
question, and a death of this process costs nobody but its readers, who come again.
Needs from below: the broker's files (`holdfast.columns.files`) and the core's columns. Arrow is imported
in that process only.
"""
