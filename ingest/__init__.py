"""Logs of training runs as tables, in memory or in a store.

    from fairmfu.ingest import FairmfuError, Store, ingest_logs, read_logs

    tables = read_logs("titan.log", "xtuner.log", facts={"gpus": 8})

read_logs     logs as tables, in memory
Store         a folder (or an address) with tables, for SQL
ingest_logs   read new logs into a store
FairmfuError  every error that a user can fix

Next steps with the tables: `metrics`, `reports`. Tasks by example: docs/python.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairmfu.ingest.core.errors import FairmfuError
    from fairmfu.ingest.pipeline.api import ingest_logs, read_logs
    from fairmfu.ingest.store.store import Store
else:
    from fairmfu.ingest.core.lazy_exports import on_demand

    __getattr__ = on_demand(
        __name__,
        {
            "FairmfuError": ".core.errors",
            "Store": ".store.store",
            "ingest_logs": ".pipeline.api",
            "read_logs": ".pipeline.api",
        },
    )

__all__ = ["FairmfuError", "Store", "ingest_logs", "read_logs"]
