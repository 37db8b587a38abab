"""Charts draw what is there, the page is one safe offline file, the same store is the same page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from math import sin

import polars as pl
import pytest

from ingest.schema import frame_schema
from metrics import inputs, throughput
from metrics.fairness import compare
from metrics.utilization import operator_table, run_metrics
from reports import charts, page, theme

EVIL = "</script><script>alert(1)</script>"
LOGGED_TFLOPS = {"torchtitan": 331.0, "xtuner": 412.0, "deepspeed": 298.0}
EQUAL = dict.fromkeys(LOGGED_TFLOPS, 5_830.0)
FACTS = {
    "model": "llama3-8b",
    "seq_len": "8192",
    "gpus": "8",
    "precision": "bf16",
    "trainable": "full",
    "accelerator": "NVIDIA H100 80GB HBM3",
    "packed": "true",
    "global_batch_size": "16",
    "recompute": "none",
}


def a_table(name, rows):
    schema = frame_schema(name)
    return pl.DataFrame([{c: row.get(c) for c in schema} for row in rows], schema=schema)


def a_run(framework, tgs, *, name="", run_id="", steps=40, facts=FACTS, logged="logged_tflops"):
    """Rows of one made-up run, by table; the step time wobbles by up to 1 %."""
    run_id, name = run_id or f"id-{framework}", name or f"{framework}-8b"
    claim = {"logged_tflops": LOGGED_TFLOPS[framework], "logged_mfu": 0.335}
    return {
        "sources": [
            {
                "sha256": run_id,
                "path": f"logs/{name}.log",
                "log_format": framework,
                "lines": steps + 4,
                "step_lines": steps,
                "known_lines": 2,
                "other_lines": 1,
                "unread_lines": 1,
                "companion_lines": 0,
                "other_kinds": [{"count": 1, "line": 3, "example": f"hello {name}"}],
            }
        ],
        "runs": [
            {
                "run_id": run_id,
                "sha256": run_id,
                "name": name,
                "launch": 1,
                "framework": framework,
                "log_format": framework,
                "first_line": 1,
                "last_line": steps,
                "step_unit": "optimizer_step",
                "elapsed_covers": "step",
                "elapsed_excludes_data": False,
                "rate_excludes_data": False,
                "evidence": ["elapsed"],
                "synthetic": True,
            }
        ],
        "facts": [
            {"run_id": run_id, "name": k, "value": v, "origin": "log:2", "line": 2, "sequence": i}
            for i, (k, v) in enumerate(facts.items())
        ],
        "steps": [
            {
                "run_id": run_id,
                "line": 2 + step,
                "step": step,
                "elapsed_s": 16_384 / tgs * (1 + 0.01 * sin(step)) * (3 if step in (1, 20) else 1),
                "loss": 12 / step**0.3,
                logged: claim[logged],
            }
            for step in range(1, steps + 1)
        ],
        "events": [{"run_id": run_id, "line": 22, "kind": "checkpoint", "text": name}],
        "unread": [{"sha256": run_id, "line": 9, "reason": f"cut off ({name})", "text": name}],
    }


def a_store(*runs):
    names = ("sources", "runs", "facts", "steps", "events", "unread")
    return {name: a_table(name, [row for run in runs for row in run[name]]) for name in names}


def parts(tables):
    """What the command gives to `page.render`."""
    metrics = run_metrics(tables)
    held = inputs.holding(tables["facts"])
    by_name = {
        row["run_id"]: {f["name"]: f for f in held.filter(run_id=row["run_id"]).to_dicts()}
        for row in metrics.to_dicts()
    }
    return {
        "metrics": metrics,
        "comparison": compare(metrics),
        "windows": throughput.windows(
            tables["steps"], tables["runs"], inputs.typed(held), tables["events"]
        ),
        "facts_held": held,
        "operators": {
            row["run_id"]: operator_table(by_name[row["run_id"]], {"attention_ratio": None})
            for row in metrics.to_dicts()
        },
        "sources": tables["sources"],
        "unread": tables["unread"],
    }


def equal_runs(**rates):
    return parts(a_store(*(a_run(name, tgs) for name, tgs in (EQUAL | rates).items())))
