"""Data keys: values as operators write them, the registry of all keys, the reference."""
