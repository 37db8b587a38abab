"""The Trainer's last dict, in a log, all_results.json or wandb-summary.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from ..spec import last_digit_unit

RESULTS_FILE: Final = (
    r'\{\s*"(?:epoch|num_input_tokens_seen|total_flos|(?:train|eval)_\w+)": '
    r'(?=.*"train_samples_per_second": )'
)
"""First bytes of a file of results with the rate of the whole training."""

CLOSING_KEYS: Final = (
    *("train_runtime", "train_samples_per_second", "train_steps_per_second"),
    *("total_flos", "num_input_tokens_seen", "epoch"),
)
"""Figures of the whole training; the others are losses and scores."""

MAX_FIGURE: Final = 1e30
"""Above all FLOPs of a training."""

MAX_STEP_ERROR: Final = Decimal("0.4")


def with_last_step(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the last dict, and the last step if certain.

    The last step is steps per second times seconds. Both are rounded, since 5.0 to four digits.
    """
    try:
        seconds, rate = (Decimal(fields[name]) for name in ("seconds", "train_steps_per_second"))
        off = (seconds * last_digit_unit(rate) + rate * last_digit_unit(seconds)) / 2
    except (KeyError, ArithmeticError, ValueError, TypeError):
        return dict(fields)
    step = round(seconds * rate)
    sure = off < MAX_STEP_ERROR and abs(seconds * rate - step) <= off
    return {**fields, "step": str(step)} if sure else dict(fields)


def results_facts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return closing figures of a file, and the planned steps if certain.

    Weights & Biases has the same names, some with `train/` (integrations/integration_utils.py
    WandbCallback.on_log).
    The Trainer divides the planned steps and samples by the time, also after resuming.
    """
    printed_values = ((key, values.get(key, values.get(f"train/{key}"))) for key in CLOSING_KEYS)
    figures = {
        key: value
        for key, value in printed_values
        if type(value) in (int, float) and 0 < value < MAX_FIGURE
    }
    if not {"train_runtime", "train_samples_per_second"} <= figures.keys():
        return {}
    printed = {"seconds" if key == "train_runtime" else key: str(n) for key, n in figures.items()}
    step = with_last_step(printed).get("step", "0")
    facts = {"closing_figures": json.dumps(figures)}
    return facts | ({"total_steps": step} if int(step) > 0 else {})
