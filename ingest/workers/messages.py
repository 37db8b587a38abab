"""Errors of a cluster and its workers."""

from __future__ import annotations

from typing import Final

from ..core.errors import ClusterError, ErrorKind, StoreError, UnreadableSourceError

NO_CLUSTER: Final = ErrorKind(
    "no-cluster",
    "Ray: no cluster at {address} ({error}).",
    "No Ray cluster accepts a connection.",
    ClusterError,
    fix="start one with: ray start --head; or give another address with --ray-address",
)
VERSIONS_DIFFER: Final = ErrorKind(
    "versions-differ",
    "Ray: {host} has fairmfu {installed}, the driver {driver}.",
    "A node of a cluster has another version of fairmfu.",
    ClusterError,
    fix="install the same version on all nodes",
)
STORE_NOT_SHARED: Final = ErrorKind(
    "store-not-shared",
    "{path}: a worker wrote this part, and it is not visible here.",
    "The nodes of a cluster do not share the store's file system.",
    ClusterError,
    fix="put the store on a file system that all nodes share",
)
WORKER_LOST: Final = ErrorKind(
    "worker-lost",
    "Ray: the worker of a task was lost {times} times ({error}). What was stored before is intact.",
    "A worker of a cluster ends again and again during the same task.",
    ClusterError,
    fix="give workers more memory, or use --engine local",
)
READER_LOST: Final = ErrorKind(
    "reader-lost",
    "{path}: the worker that read it was lost {times} times ({error}). Nothing was stored from it.",
    "A worker of a cluster ends again and again while it reads the same log.",
    UnreadableSourceError,
    fix="read it alone with --engine local, and check how much memory it takes",
)
NODE_NOT_WRITABLE: Final = ErrorKind(
    "node-not-writable",
    "{store}: {why} (on {host}).",
    "A node of a cluster cannot write to the store.",
    StoreError,
    fix="{remedy}",
)
LOG_NOT_SHARED: Final = ErrorKind(
    "log-not-shared",
    "{path}: does not exist on {host}, a node of the cluster.",
    "The nodes of a cluster do not share the file system of a log.",
    UnreadableSourceError,
    fix="put logs on a file system that all nodes share, or use --engine local",
)
