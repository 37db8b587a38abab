"""Logs of training runs as tables, in memory or in a store.

    from ingest import FairmfuError, Store, ingest_logs, read_logs

    tables = read_logs("titan.log", "xtuner.log", facts={"gpus": 8})

read_logs     logs as tables, in memory
Store         a folder (or an address) that keeps them, and answers SQL
ingest_logs   read what is new into a store
FairmfuError  every error that a user can mend

What to do with the tables: `metrics`, `reports`. All of it by task: docs/python.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.errors import FairmfuError
    from ingest.logs import ingest_logs, read_logs
    from ingest.store import Store
else:
    from ingest.on_demand import on_demand

    __getattr__ = on_demand(
        __name__,
        {
            "FairmfuError": "ingest.errors",
            "Store": "ingest.store",
            "ingest_logs": "ingest.logs",
            "read_logs": "ingest.logs",
        },
    )

__all__ = ["FairmfuError", "Store", "ingest_logs", "read_logs"]
