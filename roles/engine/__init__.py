"""The machinery. Each package below has a face of its own; docs/architecture.md says which way imports run."""
