"""Dispatch: which consumer gets which entries, acknowledgements, redelivery and resets."""
