"""Consolidation: the pods of a cluster on fewer or cheaper machines."""
