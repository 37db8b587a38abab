"""Units and meanings of METRICS and COMPARISON, for docs/reference/columns.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairmfu.ingest.core.schema import FACT_NAMES, RUN_COLUMNS, Column, FactName


def _as_in(columns: Mapping[str, Column | FactName], *names: str) -> dict[str, tuple[str, str]]:
    """Return unit and meaning of columns copied unchanged from the log."""
    return {name: (columns[name].unit, columns[name].meaning) for name in names}


METRIC_MEANINGS: Final[dict[str, tuple[str, str]]] = {
    # what run it is
    **_as_in(RUN_COLUMNS, "run_id", "name", "framework", "log_format"),
    **_as_in(FACT_NAMES, "framework_version"),
    **_as_in(RUN_COLUMNS, "synthetic"),
    "model": ("", "known name of the shape; otherwise as given or printed"),
    "accelerator": ("", "accelerator as printed or given"),
    "device": ("", "one name for all spellings of that accelerator"),
    **_as_in(
        FACT_NAMES,
        *("gpus", "seq_len", "global_batch_size", "micro_batch_size", "gradient_accumulation"),
        *("replicas", "replica_groups", "tensor_parallel", "pipeline_parallel"),
        *("context_parallel", "expert_parallel", "zero_stage", "offload"),
    ),
    "compile": ("", "torch.compile, true or false"),
    **_as_in(FACT_NAMES, "torch", "cuda", "nccl", "driver", "commit"),
    "packed": (
        "",
        "samples are packed to the full sequence length: true, false, or partly, for packs that "
        "may be shorter",
    ),
    **_as_in(FACT_NAMES, "attention", "quantization"),
    "inferred": ("", "facts of this row inferred from the framework or the numbers"),
    **_as_in(FACT_NAMES, "precision"),
    "recompute": ("", "activation checkpointing: none, full or selective"),
    "trainable": ("", "trainable weights: full, lora or frozen"),
    "step_unit": ("", "unit of one step: optimizer_step, micro_step, or log_line of unknown steps"),
    **_as_in(RUN_COLUMNS, "rate_excludes_data"),
    "steps": ("steps", "steps with a line in the log"),
    # rates
    "tokens_per_second": ("tokens/s", "steady, over all GPUs"),
    "tgs": (
        "tokens/s/GPU",
        "steady: without start-up, warm-up, checkpoints, evaluation, profiling",
    ),
    "tgs_low": ("tokens/s/GPU", "lower end of the 95 % interval of tgs"),
    "tgs_high": ("tokens/s/GPU", "upper end of the 95 % interval of tgs"),
    "tgs_slots": ("tokens/s/GPU", "tgs including padding; null if the padding is unknown"),
    "tgs_median": ("tokens/s/GPU", "median of the steady windows"),
    "tgs_p5": ("tokens/s/GPU", "5th percentile of the steady windows"),
    "tgs_p95": ("tokens/s/GPU", "95th percentile of the steady windows"),
    "tgs_mad": ("tokens/s/GPU", "median distance of the steady windows from their median"),
    "tgs_trimmed": ("tokens/s/GPU", "tokens over seconds of the windows between p5 and p95"),
    "tgs_with_spikes": (
        "tokens/s/GPU",
        "tgs with windows that are far slower than the others for no known reason; null without",
    ),
    "tgs_without_spikes": ("tokens/s/GPU", "tgs without such windows"),
    "tgs_end_to_end": ("tokens/s/GPU", "from the start of training to the last step line"),
    "seconds_per_step": ("s", "time of a steady step; its unit is step_unit"),
    "seconds_per_step_low": ("s", "lower end of the 95 % interval of seconds_per_step"),
    "seconds_per_step_high": ("s", "upper end of the 95 % interval of seconds_per_step"),
    "samples_per_second": ("samples/s", "steady, over all GPUs; null if the batch varies"),
    "samples_per_update": (
        "samples",
        "global batch: samples of an optimizer update over all GPUs, as a fact, or as the only "
        "number that fits the logged samples/s and step times",
    ),
    "tokens_per_update": (
        "tokens",
        "tokens of an optimizer update over all GPUs, with padding; null if they vary",
    ),
    "peak_memory_bytes": ("bytes", "largest logged peak of the GPU allocator"),
    "memory_slope": (
        "bytes/h",
        "lasting growth of that peak, at the time of a steady step; 0 if it does not grow",
    ),
    "memory_changes": (
        "",
        "changes of that peak inside the run, for other reasons than the tokens of a step: kind "
        "(growth to the end, or jump), from_step, to_step, bytes_before, bytes_after; null with "
        "fewer than 8 windows",
    ),
    "joules_per_token": (
        "J/token",
        "energy of the GPUs alone for one token, in steady windows; null without energy or power",
    ),
    "kwh_per_billion_tokens": ("kWh", "the same for 1 billion tokens"),
    "power_w": ("W", "mean power of one GPU in steady windows"),
    "energy_source": ("", "origin of the energy: the log, or samples beside it and their clock"),
    "startup_s": (
        "s",
        "from the first time stamp to the first step line, without the usual time of its steps",
    ),
    "memory_growth": (
        "",
        "growth of the logged peak memory from the first lines to the last, as a share; null with "
        "few lines",
    ),
    "losses": (
        "",
        "median losses at fixed counts: unit (tokens over all GPUs, or steps), count (powers of 2 "
        "and one between), loss",
    ),
    # utilisation
    "mfu": (
        "",
        "tgs x F / P as a fraction; exact attention, each operator with the peak of its precision; "
        "a vision tower counts",
    ),
    "mfu_language_model": (
        "",
        "mfu without the vision tower; null for models without one",
    ),
    "mfu_full_attention": ("", "mfu as if every token attended to the whole sequence"),
    "mfu_conservative": (
        "",
        "mfu with the peak of the fastest precision in use; below 16 bits only",
    ),
    "mfu_bf16": ("", "mfu with the BF16 peak for all operators"),
    "mfu_bf16_full_attention": ("", "mfu_bf16 with full attention"),
    "hfu_low": (
        "",
        "HFU, lower bound: with the FLOPs of activation checkpointing; null if recompute is "
        "unknown",
    ),
    "hfu_high": ("", "HFU, upper bound"),
    "hfu_language_model_low": (
        "",
        "hfu_low without the vision tower; null for models without one",
    ),
    "hfu_language_model_high": ("", "hfu_high without the vision tower"),
    "implied": (
        "",
        "impossible MFU above 100 %; then mfu is null, and a warning gives the likely cause",
    ),
    # what F and P are of
    "params_total": ("parameters", "parameters of the model's shape"),
    "work": ("", "key of the model's layers and widths; runs with equal keys train the same model"),
    "attention_pattern": ("", "attention mask: causal or not, windows, chunks, document borders"),
    "attended_pairs": ("pairs/token", "attended pairs per token in a layer without a window"),
    "trained": ("", "trainable weights, with rank and targets of adapters"),
    "flops_per_token": ("FLOP/token", "F: forward and backward, exact attention"),
    "flops_per_token_full_attention": ("FLOP/token", "F with full attention"),
    "flops_source": ("", "fact and origin of given FLOPs; null: the formula's"),
    "peak_flops": ("FLOP/s", "P: dense peak, weighted over the operators' precisions as in mfu"),
    "peak_source": ("", "row of the peak table, with its certainty and source"),
    # what the rates are of
    "token_basis": (
        "",
        "tokens that count: non_padding, packed (no padding), slots (with padding), or given (by "
        "a mean)",
    ),
    "time_basis": (
        "",
        "times behind tgs: elapsed, rate, clock, stamp or engine (time stamps of the engine's "
        "lines)",
    ),
    "end_to_end_basis": ("", "source of the end-to-end time"),
    "excluded_share": ("", "share of the time that step lines cover left out of tgs"),
    "excluded_causes": ("", "causes of excluded_share"),
    "data_share": ("", "share of step time spent waiting for data"),
    "windows": ("windows", "steady windows"),
    "effective_windows": (
        "windows",
        "effective sample size: independent windows with the same information",
    ),
    "interval_freedom": (
        "",
        "degrees of freedom of the interval of the rate; null if many, as where rounding sets it",
    ),
    "no_interval": ("", "reason for a missing interval"),
    "steady_from": ("steps", "last step before the first steady window"),
    "wall_s": ("s", "wall time of the launch"),
    "wall_basis": (
        "",
        "source of wall_s: stamp, clock (of the lines), runtime (printed or stamped around the "
        "steps), or the lines' own times added up (elapsed, rate)",
    ),
    "time_lost": ("", "time beyond steady training: cause, windows, seconds and share"),
    "slowest_steps": (
        "",
        "windows that lost most time beyond the steady pace, the longest first: from_step, "
        "to_step, seconds, lost_s, cause",
    ),
    "levels": (
        "",
        "lasting speeds of the run, if there are several: steps, rate, change, GPU-hours lost; "
        "null with too few windows",
    ),
    "drift": ("", "steady change of speed from the first steady step to the last, as a share"),
    "drift_low": ("", "lower end of the 95 % interval of drift"),
    "drift_high": ("", "upper end of the 95 % interval of drift"),
    "pauses": (
        "",
        "time outside of the step timer, by stamps, where it changes inside the run: steps, "
        "seconds per step, share of a step",
    ),
    "evidence_gap": ("", "tgs by the best other kind of time, over tgs, minus 1"),
    "evidence_windows": ("windows", "windows compared for evidence_gap"),
    "evidence_cause": ("", "cause of evidence_gap, if the log confirms one"),
    "token_gap": ("", "another count of the tokens over the used one, minus 1"),
    "token_counts": ("", "compared token counts, as text"),
    "tokens_per_gpu_step": ("tokens", "tokens of one step on one GPU, mean of the steady windows"),
    "attention_ratio": ("", "sum of n_i^2 over documents / sum of pack^2, mean over tokens"),
    "image_counts": (
        "",
        "logged image tokens and bounds of the sum of their squares, per token: tokens, "
        "squares_low, squares_high, squares_packed, multiple, contradictions",
    ),
    "sequence_length": ("tokens", "logged length of a sample, mean over tokens"),
    "formula": ("", "version of the formula of this row"),
    # what the log says of its own speed
    "logged_tgs": ("tokens/s/GPU", "logged TGS, median of the steady windows"),
    "logged_tflops": ("TFLOP/s/GPU", "logged TFLOP/s, by the framework's own formula; median"),
    "logged_mfu": ("", "logged MFU as a fraction, by the framework's formula and peak; median"),
    "logged_tgs_total": ("tokens/s/GPU", "total tokens over total time, from the logged rates"),
    "logged_samples_per_second": ("samples/s", "logged samples/s over all ranks; median"),
    "logged_samples_running": ("samples/s", "the engine's last mean since its start"),
    "logged_formula": ("", "framework and version of the formula behind these figures"),
    "logged_reproduced": ("", "true if that formula reproduces every line, to its last digit"),
    "logged_lines": ("lines", "lines compared with that formula"),
    "logged_lines_reproduced": ("lines", "lines reproduced"),
    "logged_unexplained": ("", "logged over predicted, median"),
    "logged_flops_per_token": ("FLOP/token", "FLOPs per token by the framework's own formula"),
    "logged_peak": ("FLOP/s", "peak used by the framework"),
    "logged_unit": ("", "unit error in the framework's TFLOP/s"),
    "logged_flops_low": ("FLOP/token", "lower bound implied by the logged figures"),
    "logged_flops_high": ("FLOP/token", "upper bound implied by the logged figures"),
    "logged_hypothesis": ("", "another value of one fact that would reproduce all lines"),
    "logged_not_compared": ("", "logged figures that could not be checked, and the missing facts"),
    "logged_lengths": ("tokens", "sequence lengths of single lines, implied by the figures alone"),
    "proven": (
        "",
        "facts confirmed by the logged figures: no other common value reproduces every line",
    ),
    # what is doubtful
    "error": ("", "failure of fairmfu while analysing the run: what, where, and an identifier"),
    "missing": ("", "missing facts, without which a figure is null"),
    "warnings": ("", "messages about the run's figures"),
    "warning_kinds": ("", "identifier of each warning: docs/reference/messages.md"),
    "doubts": ("", "warnings that may change a figure by more than 1 %"),
    # files and launches
    "sources": ("", "files of the run"),
    "members": ("", "run ids of the launches in these files; the first is the run itself"),
    **_as_in(RUN_COLUMNS, "launch"),
    "started_at": ("", "first time stamp, as printed"),
    "outcome": ("", "how the launch ended"),
    "outcome_text": ("", "log line that shows the outcome"),
    "last_step": ("", "last logged step"),
    "total_steps": ("steps", "steps that the launch was to train, if logged"),
    "continues": ("", "run id of the resumed launch"),
    "repeated_steps": ("steps", "steps logged here and trained again by a later launch"),
    "goodput": (
        "tokens/s/GPU",
        "surviving tokens of the chain of resumed launches over its wall time",
    ),
    "goodput_share": (
        "",
        "GPU time of the surviving tokens at the steady pace without slow time of unknown cause, "
        "over the GPU time spent",
    ),
    "goodput_launches": ("launches", "launches of the chain, up to this one"),
    "lost_to_restarts_s": ("s", "time lost to retrained steps, hangs, gaps and later start-ups"),
    "ranks": ("ranks", "ranks that print steps"),
    "rank_steps": ("steps", "steady steps with several ranks compared"),
    "rank_spread": ("", "(slowest - fastest) / median over the ranks' times"),
    "slowest_rank": ("", "rank with the longest time, as printed"),
    "slowest_share": ("", "share of the steps in which that rank was slowest"),
    "slow_ranks": (
        "",
        "ranks that the others waited for: ranks, node, cause, steps, seconds and GPU-hours lost; "
        "null if the log does not show the times of several ranks",
    ),
    "bound": ("", "data if data_share is above 0.1, otherwise compute"),
    # phases of a step
    "phases": (
        "",
        "where a step's time goes: phase, seconds per step, share, share_of (step or wall), "
        "windows, source; null if the log times no phase",
    ),
    "phase_step_s": ("s", "step time of phases: phases and rest add up to it"),
    "phase_notes": ("", "messages about the timers behind phases"),
    "phase_note_kinds": ("", "identifier of each of phase_notes"),
}
"""Unit and meaning of columns of METRICS (metrics.core.run_table)."""

COMPARISON_MEANINGS: Final[dict[str, tuple[str, str]]] = {
    "group": ("", "equal for like-for-like runs; null if a run cannot be ranked"),
    "rank": ("", "within the group, by ranked_rate"),
    "setup": ("", "letter; runs with the same letter have no known difference"),
    "repeats": ("starts", "runs of the setup"),
    "chain": ("", "run id of the first launch of a chain of resumed launches"),
    "ranked_rate": ("ranked_unit", "rate that ranks: tgs, or samples/s if tokens are unknown"),
    "ranked_low": ("ranked_unit", "lower end of the 95 % interval of ranked_rate"),
    "ranked_high": ("ranked_unit", "upper end of the 95 % interval of ranked_rate"),
    "ranked_unit": ("", "tokens/s/GPU or samples/s; null without a rate that can rank"),
    "relative_tgs": ("", "ranked_rate over the best run's; for repeats, over their mean"),
    "relative_low": ("", "lower end of the 95 % interval of relative_tgs"),
    "relative_high": ("", "upper end of the 95 % interval of relative_tgs"),
    "smallest_difference": ("", "smallest difference that such data would detect in most cases"),
    "tied_with_best": ("", "true if the interval contains 1; null without an interval"),
    "logged_rank": ("", "rank by the logged figures"),
    "logged_by": ("", "logged figure used for logged_rank"),
    "tflops": ("TFLOP/s/GPU", "ours: tgs x flops_per_token"),
    "equal_flops": ("FLOP/token", "FLOPs per token used for tgs_at_equal_flops"),
    "tgs_at_equal_flops": (
        "tokens/s/GPU",
        "tgs at equal FLOPs per token and the same utilisation; never used for ranks",
    ),
    "gpu_hours_per_billion_tokens": ("GPU-hours", "GPU-hours for 1 billion tokens at steady speed"),
    "gpu_hours_per_billion_tokens_end_to_end": (
        "GPU-hours",
        "GPU-hours for 1 billion tokens at tgs_end_to_end",
    ),
    "price_per_gpu_hour": ("", "as given"),
    "cost_per_billion_tokens": ("as price", "cost of 1 billion tokens at steady speed"),
    "cost_per_billion_tokens_end_to_end": (
        "as price",
        "cost of 1 billion tokens at tgs_end_to_end",
    ),
    "equal_tokens": ("tokens", "last token count, over all GPUs, at which all runs have a loss"),
    "loss_at_equal_tokens": ("", "loss of this run at equal_tokens"),
    "loss_spread": ("", "scatter of the loss around equal_tokens, as a standard deviation"),
    "same_loss": (
        "",
        "true if the loss equals that of the other run, or the median of all, within the scatter",
    ),
    "no_loss": ("", "reason for a missing loss comparison"),
    "differs": ("", "facts that differ within the group"),
    "nearest_group": ("", "nearest group of the same model"),
    "nearest_differs": ("", "facts that keep the run out of nearest_group"),
    "not_ranked": ("", "reason for a missing rank"),
}
"""Unit and meaning of columns of COMPARISON (comparability) that METRICS lacks."""
