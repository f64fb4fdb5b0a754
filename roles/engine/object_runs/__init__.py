"""Runs on API objects from the operator's machine: how one reaches the API, begins, is recorded, and ends."""

from roles.engine.object_runs.begin import (
    TimeLimit,
    check_namespaces,
    cluster_session,
    desired_of_cluster,
    desired_or_listing,
    dry_run,
    planned_run,
    read_objects,
    recorded_objects,
)
from roles.engine.object_runs.connect import ConnectedCluster, KeptRecords, connect_cluster, connect_servers, connect_some, open_session
from roles.engine.object_runs.run import Consents, ObjectRun

__all__ = [
    "ConnectedCluster",
    "Consents",
    "KeptRecords",
    "ObjectRun",
    "TimeLimit",
    "check_namespaces",
    "cluster_session",
    "connect_cluster",
    "connect_servers",
    "connect_some",
    "desired_of_cluster",
    "desired_or_listing",
    "dry_run",
    "open_session",
    "planned_run",
    "read_objects",
    "recorded_objects",
]
