"""Recompute throughput and MFU of finished training runs from their logs, by one formula.

    from fairmfu.ingest import read_logs
    from fairmfu.metrics import analyse
    from fairmfu.reports import compare

ingest   logs of training runs to tables, in memory or in a store
metrics  tables to throughput, MFU and comparisons, by one formula
reports  metrics to sentences, charts, pages, nightly reports

Tasks, step by step: docs/python.md.
"""
