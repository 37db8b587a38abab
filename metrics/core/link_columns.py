"""Columns that link runs: sources of one launch, and launches in a resume chain."""

from __future__ import annotations

from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import INT, TEXT, TIMESTAMP

# -- one launch (metrics.runs.same_run)
# ------------------------------------------------------------

STEP_TIME_FIGURES: Final = ("elapsed_s", "logged_tgs", "logged_samples_per_second")
"""Figures of a step's time. They depend on each other, so only the strongest counts as evidence."""

TRAINING_FIGURES: Final = ("loss", "grad_norm")
"""Figures of the training itself: two sources of one launch print them equal to the last digit."""

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
"""first, step: first and last step printed by a rank; all other columns: values of the last
step."""

# -- one continued by another (metrics.runs.resume_chains)
# -------------------------------------------------

RESUME_KEY_COLUMNS: Final = ("model", "params_total", "seq_len", "global_batch_size", "total_steps")
"""Facts that a resumed launch shares with the launch before, where both state them. A launch
known as resumed may plan more steps."""

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
        "loaded": pl.Boolean(),
        "model": TEXT,
        **dict.fromkeys(RESUME_KEY_COLUMNS[1:], INT),
    }
)
"""Columns compared between two launches before their losses are. interval: median number of steps
between two lines; began: the step after which training began, as the log says or shows; loaded: the
log says that a checkpoint was loaded."""
