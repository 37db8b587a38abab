"""A bad row in a built-in table: the commands that must work without it."""

from __future__ import annotations

import sys
from pathlib import Path

from click.testing import CliRunner

from fairmfu.cli import main
from tests.support.folders import ROOT

TITAN = ROOT / "sample_logs" / "synthetic" / "torchtitan"


def clear_caches() -> None:
    """Forget every model, accelerator and era that was built, and all that was computed of them."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("fairmfu.metrics", "fairmfu.reports")):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def assert_commands_work(folder: Path) -> None:
    """Check help, and the runs of a Torchtitan log, from which an MFU follows."""
    store = ["--store", str(folder / "store")]
    for words in (["-h"], ["models", "-h"], ["ingest", str(TITAN), *store]):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, (words, done.output, done.exception)
    done = CliRunner().invoke(main, ["runs", "--format", "csv", *store])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "llama-3-8b" in done.stdout
