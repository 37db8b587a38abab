"""XTuner v1 (xtuner/v1/train/trainer.py), variants A0 (2025-07) to Q (2026-07).

One line per optimizer step and rank. `time` leaves data loading out (`data_time` has it);
`text_tokens` are this rank's tokens without padding, `tgs` is text_tokens / time. The same key
changed its meaning between variants, so the set of keys decides (see `_complete`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ingest.log_format import GIB, EventLine, FactLine, LogFormat, StepLine

TRAINER: Final = "InternLM/xtuner/xtuner/v1/train/trainer.py@b934f46"


def _complete(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Counts whose meaning depends on the variant.

    M to O print `step_consumed_tokens` over all ranks as an integer before the losses; O repeats
    the key for this rank as a float; P and later print only this rank's. `reduced_` (K, L) and
    `total_consumed_tokens` beside an integer step count (M to O) are sums over all ranks.
    """
    step_tokens = printed.get("step_consumed_tokens")
    if step_tokens is not None and step_tokens.isdigit():
        row["step_tokens"] = float(step_tokens)
        if total := printed.get("total_consumed_tokens"):
            row["consumed_tokens"] = float(total)
    elif total := printed.get("reduced_consumed_tokens"):
        row["consumed_tokens"] = float(total)
    if row.get("rank_tokens") is None and step_tokens and row.get("step_tokens") is None:
        row["rank_tokens"] = float(step_tokens)
    if row.get("loss") is None and "local_loss" in printed:
        row["loss"] = float(printed["local_loss"])


XTUNER_V1: Final = LogFormat(
    name="xtuner-v1",
    framework="xtuner",
    versions="2025-07 … 1.0.1 and later (variants A0-Q)",
    signature=r"\[XTuner\].* Step \d+/\d+ .*(?:text_tokens|total_loss): ",
    looks_like_step=r"^\[XTuner\].* Step \d+/\d+ (?!internal_metrics)",
    clock=r"\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\]",
    launch=r"XTuner Training Environment",
    evidence=("elapsed", "stamp"),
    elapsed_covers="step",
    elapsed_excludes_data=True,
    rate_covers="step",
    rate_excludes_data=True,
    complete=_complete,
    implies={
        "document_mask": ("true", "XTuner v1 always gives attention the documents' cu_seqlens"),
    },
    steps=(
        StepLine(
            anchor="] ",
            regex=r"^\[XTuner\](?:\[RANK \d+\])?(?:\[[^\]]*\])+ (?:Epoch (?P<epoch>\d+) )?"
            r"Step (?P<step>\d+)/(?P<total>\d+) (?P<pairs>(?!internal_metrics)\S.*)",
            pair=r"(?P<key>[A-Za-z_]\w*): *(?P<value>(?:\d+ days?, )?\d+:\d\d:\d\d"
            r"|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|-inf)(?: GB)?(?=[,\s]|$)",
            columns={
                "epoch": "epoch",
                "step": "step",
                "lr": "learning_rate",
                "time": "elapsed_s",
                "data_time": "data_s",
                "text_tokens": "rank_tokens",
                "seqlen_tokens": "rank_slots",
                "reduced_llm_loss": "loss",
                "grad_norm": "grad_norm",
                "max_memory": ("peak_memory_bytes", GIB),
                "tgs": "logged_tgs",
                "efficient_attn_ratio": "attention_ratio",
            },
            example="[XTuner][RANK 0][2026-11-20 11:30:15][INFO] Step 1/32 data_time: 0.0578 lr: "
            "0.000020 time: 4.9770 text_tokens: 4008.0 total_loss: 1.722, reduced_llm_loss: 1.684 "
            "max_memory: 15.90 GB reserved_memory: 17.87 GB grad_norm: 13.948 tgs: 805.3 "
            "e2e_tgs: 796.1 ",
            printed_by=f"{TRAINER} Trainer._log_step",
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor="Elapsed time",
            regex=r"\[SUCCESS\].*(?:[Cc]heckpoint|save).*Elapsed time[^\d]*(?P<seconds>[\d.]+)",
            kind="checkpoint",
            example="[XTuner][2026-11-20 11:30:15][SUCCESS] save checkpoint Elapsed time 1.25 s",
            printed_by=TRAINER,
            composed=True,
        ),
        EventLine(
            anchor="Training finished in",
            regex=r"Training finished in (?P<seconds>[\d.]+) seconds",
            kind="end",
            example="[XTuner][2026-11-20 11:30:15][INFO] Training finished in 12.50 seconds",
            printed_by=TRAINER,
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor="grad_accumulation_steps: ",
            regex=r"grad_accumulation_steps: (?P<gradient_accumulation>\d+)",
            example="[XTuner][RANK 0][2026-11-20 11:30:15][INFO] grad_accumulation_steps: 2",
            printed_by=TRAINER,
            composed=True,
        ),
    ),
)
