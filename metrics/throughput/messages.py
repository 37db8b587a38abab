"""Messages against the rate of a run, and reasons for a missing rate."""

from __future__ import annotations

import re
from typing import Final

from ..core.messages import Message, MessageKind

ORIGINAL_LOG_FIX: Final = "if you removed lines from the log, ingest the original"
MORE_WINDOWS_FIX: Final = "train longer, or log more often"
CHANGED_SPEED_FIX: Final = "look at the log, the nodes and other jobs at these steps"
"""Remedies of several messages."""
DRIFT_FIX: Final = "compare the first steps with the last: sequence lengths, memory, GPU clocks"


def of_samples(message: Message) -> Message:
    """Return a message about a TGS as the same message about a rate without tokens."""
    text = re.sub(r"(^|\. )TGS", r"\1The rate", message).replace("TGS", "the rate")
    return Message(text, message.kind, message.effect)


# -- no rate ---------------------------------------------------------------------------------

NO_STEP: Final = MessageKind(
    "no-step",
    "No training step was read",
    when="A launch has no step line.",
)
SINGLE_STEP: Final = MessageKind(
    "single-step",
    "Only one step is logged, and it may contain start-up",
    when="A launch has one step line.",
)
NO_CLEAN_WINDOW: Final = MessageKind(
    "no-clean-window",
    "No clean window: each one contains start-up, evaluation, a checkpoint or a profile",
    when="Every window contains work other than training.",
    fix="log more often, or train longer",
)
NO_OPTIMIZER_STEP: Final = MessageKind(
    "no-optimizer-step",
    "No clean window contains an optimizer step: gradients accumulate over more steps than are "
    "logged",
    when="Micro-steps are logged, and none of the clean ones ends an accumulation.",
    fix="log more steps",
)
NO_TIMES: Final = MessageKind(
    "no-times",
    "The log has no times",
    when="No line has a time, a rate or a stamp.",
)
NO_TIMES_HERE: Final = MessageKind(
    "no-times-here",
    "The step lines have no times: {elsewhere}",
    when="Step lines have no times, and their framework keeps them elsewhere.",
)
ONLY_ENGINE_TIMES: Final = MessageKind(
    "only-engine-times",
    "The step lines have no times; only lines of the engine below have time stamps",
    when="Step lines have no times, and the engine's lines in the same log have stamps.",
    fix=("ingest the log with --log-format {engine}, into another --store or after fairmfu remove"),
)
ONLY_TOTAL_TIME: Final = MessageKind(
    "only-total-time",
    "Only the whole run has a time that was read, start-up included, so it gives an end-to-end "
    "rate{rate} and no TGS; {elsewhere}",
    when="The log prints the time of the whole run, and no time of a step.",
)
ONLY_LAST_LINE: Final = MessageKind(
    "only-last-line",
    "The log has only its closing line: its samples/s give an end-to-end rate{rate}, with "
    "start-up, and too high if the run was resumed",
    when="The log has the last line of a training, and no step line.",
    fix="for TGS, ingest the console log or trainer_state.json",
)
SEVERAL_LAST_LINES: Final = MessageKind(
    "several-last-lines",
    "The log has {lines} closing lines of several trainings, and no step line, so no figure is of "
    "one run",
    when="A log has several last lines of a training whose times differ, and no step line.",
    fix="ingest each training as a file of its own",
)
NO_TOKENS: Final = MessageKind(
    "no-tokens",
    "All steps count 0 tokens",
    when="Every step counts 0 tokens.",
)
PADDED_TOKENS_UNKNOWN: Final = MessageKind(
    "padded-tokens-unknown",
    "Samples need not fill the sequence length, and their token count is unknown",
    when="Samples are padded or of their own length, and no tokens are logged.",
    fix="fairmfu set RUN packed=true, to count each sample as one sequence of seq_len tokens",
)
MIXED_WRITERS: Final = MessageKind(
    "mixed-writers",
    "{mixed}, so there is no rate",
    "unranked",
    when="Several runs wrote into one log, and nothing tells their lines apart.",
    fix="ingest one log per run",
)
PREFERENCE_STEPS: Final = MessageKind(
    "preference-steps",
    "Tokens per step are uncertain in preference training: a sample may be two sequences, and a "
    "reference model may run too",
    when="The objective is preference (DPO, a reward model).",
)
REINFORCEMENT_STEPS: Final = MessageKind(
    "reinforcement-steps",
    "Tokens per step are uncertain in reinforcement learning: samples are prompts to be continued, "
    "and some steps include the generation",
    when="The objective is reinforcement.",
)

# -- which windows count ---------------------------------------------------------------------

UNLOGGED_WORK: Final = MessageKind(
    "unlogged-work",
    "TGS leaves out {windows}, probably unlogged evaluations or checkpoints. With them, TGS is "
    "{less:.1%} lower",
    "doubt",
    when="TGS leaves out slow windows without a reason in the log; no rank above 1 %.",
    fix=ORIGINAL_LOG_FIX,
)
LATE_START: Final = MessageKind(
    "late-start",
    "TGS leaves out {first} of {whole} windows after start-up: {times} as slow as the rest, "
    "probably still warm-up",
    "doubt",
    when="The first windows of a short log are slower than the rest.",
    fix=MORE_WINDOWS_FIX,
)
COUNTED_STALLS: Final = MessageKind(
    "counted-stalls",
    "Slow time lowers TGS by {less:.1%}: {windows}. The log gives no reason for it; it may be a "
    "stall, an evaluation or a checkpoint",
    "doubt",
    when="Slow windows without a reason in the log count in TGS.",
    fix=f"{CHANGED_SPEED_FIX}; {ORIGINAL_LOG_FIX}",
)
FEW_WINDOWS: Final = MessageKind(
    "few-windows",
    "TGS is from {windows}{off}{apart}",
    "doubt",
    when="TGS has too few windows for an interval.",
    fix="{remedy}",
)
QUOTED_LINE: Final = MessageKind(
    "quoted-line",
    "TGS is of one logged interval, a single line from the middle of a run",
    "unranked",
    when="A log is one step line, without its header.",
    fix="ingest the whole log",
)
STEPS_OF_BAR: Final = MessageKind(
    "steps-of-bar",
    "The log is a progress bar alone. Its steps may be micro-steps or batches of another loop",
    "unranked",
    when="A log has a progress bar and no line of a known trainer.",
    fix="use the trainer's own log, if there is one",
)
PROFILED_WINDOWS: Final = MessageKind(
    "profiled-windows",
    "TGS includes {held} of {whole} windows under a profiler, which slows steps: no clean windows "
    "are left after start-up",
    "unranked",
    when="After start-up, no window is free of profiled steps.",
    fix="train longer",
)
NAN_GRADIENTS: Final = MessageKind(
    "nan-gradients",
    "The logged gradient norm is NaN in {count} of {whole} steps, while the loss changes",
    when="Steps have a gradient norm that is NaN, and different losses.",
    fix="check that these steps train as they should, before you compare the speed",
)
LONG_WARM_UP: Final = MessageKind(
    "long-warm-up",
    "Warm-up, which TGS leaves out, is {share:.0%} of the time after the first line, so it may be "
    "the real speed",
    "unranked",
    when="Warm-up takes a large share of the run.",
    fix="train longer",
)

# -- speeds inside the run -------------------------------------------------------------------

SPEED_CHANGED: Final = MessageKind(
    "speed-changed",
    "Speed changed inside the run, and TGS is only of steps {steps}. TGS by steps: {levels}",
    "doubt",
    when="The run had two or more lasting speeds. TGS is of the longest.",
    fix=CHANGED_SPEED_FIX,
)
NO_LASTING_SPEED: Final = MessageKind(
    "no-lasting-speed",
    "Speed changed inside the run, and no speed lasted for half of its steps. TGS by steps: "
    "{levels}",
    "unranked",
    when="No lasting speed held for half of the steps. TGS is of the longest.",
    fix=CHANGED_SPEED_FIX,
)
SPEED_ALTERNATES: Final = MessageKind(
    "speed-alternates",
    "TGS is a mean of changing speeds: {changes} changes, the slowest stretch {times:.2f}x as slow "
    "as the fastest",
    "doubt",
    when="Speed changed too often for levels.",
    fix=CHANGED_SPEED_FIX,
)
SPEED_DRIFTS: Final = MessageKind(
    "speed-drifts",
    "TGS is a mean of a drifting speed: it {side} by {change:.1%} from the first steady step to "
    "the last",
    "doubt",
    when="Speed rose or fell steadily over the run. Above 10 %, the run is not ranked.",
    fix=DRIFT_FIX,
)

# -- times -----------------------------------------------------------------------------------

TIMES_WITHOUT_DATA: Final = MessageKind(
    "times-without-data",
    "TGS is an upper bound: {evidence} leaves out data loading, and nothing else in the log times "
    "it",
    "unranked",
    when="The only times in the log leave out data loading.",
)
TIMES_ABOVE_STAMPS: Final = MessageKind(
    "times-above-stamps",
    "On {longer} of {lines} lines the logged step time exceeds the time between stamps: one of "
    "the two is wrong",
    "unranked",
    when="Logged step times are longer than the time between their stamps.",
)
END_TO_END_FASTER: Final = MessageKind(
    "end-to-end-faster",
    "End to end ({whole:,.1f} tokens/s/GPU by {basis}) is faster than steady ({steady:,.1f} by "
    "{evidence}): one of the two times is wrong",
    "unranked",
    when="The whole run is faster than its steady windows.",
)
STEPS_PRINTED_TWICE: Final = MessageKind(
    "steps-printed-twice",
    "Steps are logged more than once with different times ({copies} of them), and no rank "
    "explains it. TGS uses the longer times ({seconds:,.3g} s more in total)",
    "unranked",
    when="Steps are logged twice with different times, without a rank.",
)
COARSE_TIMES: Final = MessageKind(
    "coarse-times",
    "TGS may be up to {off:.1%} off: it is from {evidence}, in whole {unit}",
    when="Times or rates are whole numbers, and TGS has no interval.",
)
SINGLE_MICRO_STEPS: Final = MessageKind(
    "single-micro-steps",
    "TGS is the mean of the logged micro-step rates, because the tokens per step are unknown",
    when="Logged rates cover single micro-steps.",
    fix="fairmfu set RUN seq_len=… micro_batch_size=… packed=…",
)
RATE_SKIPS_STEPS: Final = MessageKind(
    "rate-skips-steps",
    "TGS leaves out {untimed:.0f} of {whole:.0f} steps: they come before an evaluation, after "
    "which the logged rate starts again",
    when="The logged rate restarts after an evaluation.",
)
SKIPPED_STEPS_DIFFER: Final = MessageKind(
    "skipped-steps-differ",
    "TGS leaves out {untimed:.0f} of {whole:.0f} steps before evaluations, which no logged rate "
    "covers. By time stamps they took {seconds:,.1f} s {side} than as many others",
    "unranked",
    when="As rate-skips-steps, and time stamps show another pace of those steps.",
)
UNFAIR_OPTIMIZER_STEPS: Final = MessageKind(
    "unfair-optimizer-steps",
    "TGS is too {side}{much}: the steady windows contain too {share} optimizer steps ({count}, "
    "expected {expected:.3g})",
    "unranked",
    when="The steady windows contain more or fewer optimizer steps than their share.",
)
AVERAGE_WINDOW_UNKNOWN: Final = MessageKind(
    "average-window-unknown",
    "TGS may use fewer than {timed:,.0f} of {passed:,.0f} micro-steps: each logged time is a mean "
    "over an unknown number, so their share of optimizer steps is unknown",
    "unranked",
    when="A logged time is a mean over an unknown number of micro-steps.",
    fix="fairmfu set RUN average_window=N",
)
ACCUMULATION_UNKNOWN: Final = MessageKind(
    "accumulation-unknown",
    "Only {timed:,.0f} of {passed:,.0f} micro-steps are timed, and these {timed:,.0f} may contain "
    "too many or too few optimizer steps: gradient_accumulation is unknown",
    "unranked",
    when="Some micro-steps are timed, and gradient_accumulation is unknown.",
    fix="fairmfu set RUN gradient_accumulation=N",
)
EVIDENCE_APART: Final = MessageKind(
    "evidence-apart",
    "TGS by {other} is {gap} {side} than by {kind}: {cause}",
    "doubt",
    when="Two kinds of times in the log give different rates.",
)
EVIDENCE_MISCOUNTED: Final = MessageKind(
    "evidence-miscounted",
    "TGS by {other} is {gap} {side} than by {kind}: {cause}",
    "unranked",
    when="Rates by two kinds of times differ by a whole factor: tokens are miscounted.",
)
EVIDENCE_WITHOUT_FIT: Final = MessageKind(
    "evidence-without-fit",
    "{cause}",
    "unranked",
    when="No number of tokens per step fits both the logged rates and the time stamps.",
)

TOKENS_ABOVE_RATE: Final = MessageKind(
    "tokens-above-rate",
    "Tokens per step seem {excess:.1%} too many: {counted:,.0f} on one GPU by the facts, and "
    "{rated:,.0f} by the logged rate and time stamps ({windows:,} windows). Seconds per step, "
    "tokens per update and end to end may be off by as much",
    "doubt",
    when="At the logged rate, the tokens of a step take longer than time stamps allow.",
    fix="fairmfu set RUN seq_len=N, the sequence length that ran, or tokens_per_step=N",
)

# -- tokens ----------------------------------------------------------------------------------

COUNTS_APART: Final = MessageKind(
    "counts-apart",
    "Two token counts differ by {gap:.1%} without a known cause: {counts}{shares}",
    "unranked",
    when="Two counts of the same tokens differ.",
    fix="{fits}",
)
LABEL_TOKENS: Final = MessageKind(
    "label-tokens",
    "TGS counts only the tokens in the loss, {least:,.0f} to {most:,.0f} a step, so it is too low: "
    "the model also computes prompts and padding",
    "unranked",
    when="The only tokens of a log are those with a label, and their number varies.",
    fix="ingest the console log of the run too, which counts all tokens",
)
RESULTS_APART: Final = MessageKind(
    "results-apart",
    "A file beside the log is of another run, and is not used: {apart}",
    when="A file such as all_results.json contradicts the last line of the log.",
    fix="keep the files of each run in a folder of its own",
)
BATCH_CHANGES: Final = MessageKind(
    "batch-changes",
    "{changes}",
    "unranked",
    when="Steps have other batch sizes than the log states.",
)
PARTIAL_SEQUENCES: Final = MessageKind(
    "partial-sequences",
    "{sharing} ranks share each sequence, and the log has only some of them. The first ranks have "
    "more tokens, the last ones the padding",
    "unranked",
    when="Ranks share sequences, and only some of them are in the log.",
    fix="{mend}",
)
TOKENS_GIVEN: Final = MessageKind(
    "tokens-given",
    "TGS counts tokens by the mean {fact}={value:,.6g}, not step by step: it ranks only against "
    "such runs",
    when="The tokens of steps come from a mean, given by hand or logged before training.",
)
TOKENS_UNCOUNTED: Final = MessageKind(
    "tokens-uncounted",
    "{reason}",
    when="The log prints a token count of unknown meaning.",
)
PROCESS_SUM_UNKNOWN: Final = MessageKind(
    "process-sum-unknown",
    "Logged tokens are a sum over processes, and some processes get the same tokens: the true "
    "count is unknown",
    when="Logged tokens are a sum over processes that share data.",
)
RANK_SUM_UNKNOWN: Final = MessageKind(
    "rank-sum-unknown",
    "Logged tokens without padding are a sum over ranks, and some ranks get the same tokens: the "
    "true count is unknown",
    when="Logged tokens are a sum over ranks that share data.",
)
RANK_SUM_DOUBTFUL: Final = MessageKind(
    "rank-sum-doubtful",
    "TGS may be several times too high: logged tokens are a sum over ranks, and ranks that share "
    "a sequence each count it",
    "unranked",
    when="Logged tokens are a sum over ranks, and ranks may share sequences.",
    fix="fairmfu set RUN context_parallel=N tensor_parallel=N (1 if unused)",
)
COUNTER_TOO_COARSE: Final = MessageKind(
    "counter-too-coarse",
    "The log prints its tokens without padding too rarely or too coarsely to use them",
    when="The token counter is logged too rarely or too coarsely.",
)

# -- facts -----------------------------------------------------------------------------------

SEVERAL_MODELS: Final = MessageKind(
    "several-models",
    "The log prints several models, and the last one counts: {models}",
    "unranked",
    when="The log prints the configuration of more than one model.",
)
FACTS_DIFFER: Final = MessageKind(
    "facts-differ",
    "{difference}",
    "doubt",
    when="The log, a file beside it or a user give different values of a fact.",
)


# -- facts that messages ask for -------------------------------------------------------------

ASKED_FACTS: Final = {
    ACCUMULATION_UNKNOWN.identifier: ("gradient_accumulation",),
    AVERAGE_WINDOW_UNKNOWN.identifier: ("average_window",),
    RANK_SUM_DOUBTFUL.identifier: ("context_parallel", "tensor_parallel"),
}
"""Facts that would give a run its rank, by the identifier of the message."""
