"""The store of a broker: journal, ledgers, snapshots, recovery, acknowledgements."""
