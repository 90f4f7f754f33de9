"""The tests: what each folder holds and when it runs is said in docs/testing.md."""
