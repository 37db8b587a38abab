"""What runs are tied to each other by, as columns: of one launch, or by which one goes on."""

from __future__ import annotations

from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import INT, TEXT, TIMESTAMP

# -- one launch (metrics.runs.same_run)
# ------------------------------------------------------------

STEP_TIME_FIGURES: Final = ("elapsed_s", "logged_tgs", "logged_samples_per_second")
"""Figures of a step's time; they depend on each other, so only the strongest counts."""

TRAINING_FIGURES: Final = ("loss", "grad_norm")
"""What training itself gives: two sources of one launch print the same to the last digit."""

REDUCED_FIGURES: Final = (*TRAINING_FIGURES, "step_tokens")
"""Figures that every rank prints alike."""

COMPARED_FIGURES: Final = (*STEP_TIME_FIGURES, "data_s", *REDUCED_FIGURES)

LAST_STEP_SCHEMA: Final = pl.Schema(
    {"run_id": pl.String, "rank": pl.String}
    | dict.fromkeys(("first", "step"), pl.Int64)
    | dict.fromkeys(
        ("stamp", *COMPARED_FIGURES, *(f"unit_{name}" for name in COMPARED_FIGURES)), pl.Float64
    )
)
"""first, step: the first and the last step that a rank prints; all else as of its last one."""

# -- one continued by another (metrics.runs.resume_chains)
# -------------------------------------------------

RESUME_KEY_COLUMNS: Final = ("model", "params_total", "seq_len", "global_batch_size", "total_steps")
"""What a resumed launch has in common with the one before, where both say it. One that says that it
was resumed may go on for longer than was planned."""

LAUNCH_COURSE_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "sha256": TEXT,
        "launch": INT,
        "framework": TEXT,
        "step_unit": TEXT,
        "utc": pl.Boolean(),
        "first_step": INT,
        "last_step": INT,
        "interval": INT,
        "first_stamp": TIMESTAMP,
        "last_stamp": TIMESTAMP,
        "began": INT,
        "model": TEXT,
        **dict.fromkeys(RESUME_KEY_COLUMNS[1:], INT),
    }
)
"""What is asked of two launches before their losses are. interval: the median number of steps
between two lines; began: the step behind which it says, or shows, that training began."""
