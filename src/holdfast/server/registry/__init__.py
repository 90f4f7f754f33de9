"""The registry of schemas: their definitions, and which changes of them are compatible."""
