"""Messages against the rate of a run, and reasons for a missing rate."""

from __future__ import annotations

from typing import Final

from ..core.messages import MessageKind

# -- no rate ---------------------------------------------------------------------------------

NO_STEP: Final = MessageKind(
    "no-step", "no training step in this launch", when="A launch has no step line."
)
SINGLE_STEP: Final = MessageKind(
    "single-step",
    "a single logged step, which may hold start-up",
    when="A launch has one step line.",
)
NO_CLEAN_WINDOW: Final = MessageKind(
    "no-clean-window",
    "no clean window: all hold start-up, evaluation, a checkpoint or a profile. Log more often "
    "than these come, or train for longer, so that some windows hold none",
    when="Every window holds work that is not training.",
)
NO_OPTIMIZER_STEP: Final = MessageKind(
    "no-optimizer-step",
    "no clean window holds an optimizer step: gradients are accumulated over more steps than these",
    when="Micro-steps are logged, and none of the clean ones ends an accumulation.",
)
NO_TIMES: Final = MessageKind(
    "no-times", "no times in the log", when="No line has a time, a rate or a stamp."
)
NO_TIMES_HERE: Final = MessageKind(
    "no-times-here",
    "no times in the log: {elsewhere}",
    when="The log has no times, and its framework keeps them in another file.",
)
ONLY_ENGINE_TIMES: Final = MessageKind(
    "only-engine-times",
    "no times in its own step lines, but those of the engine below them are stamped: ingest "
    "the log with --log-format {engine}, into another --store or after fairmfu remove",
    when="Step lines have no times, and the engine's lines in the same log have stamps.",
)
ONLY_TOTAL_TIME: Final = MessageKind(
    "only-total-time",
    "no times of steps in the log, but one of all of them, with the start-up: end to end is by "
    "it; {elsewhere}",
    when="The log prints the time of the whole run, and no time of a step.",
)
ONLY_LAST_LINE: Final = MessageKind(
    "only-last-line",
    "no line of a step, but a last line with samples/s of the whole training: end to end is by "
    "it, start-up included, and too high where the run was resumed. The console or "
    "trainer_state.json would tell TGS",
    when="The log has the last line of a training, and no step line.",
)
NO_TOKENS: Final = MessageKind(
    "no-tokens", "its steps count no token", when="Every step counts 0 tokens."
)
PADDED_TOKENS_UNKNOWN: Final = MessageKind(
    "padded-tokens-unknown",
    "samples are padded and the log does not say how many tokens they hold: --set packed=true "
    "counts the padding, and one sequence a sample, where a pair of DPO or of a reward model "
    "is two",
    when="Samples are padded, and neither tokens nor their number are logged.",
)
MIXED_WRITERS: Final = MessageKind(
    "mixed-writers",
    "{mixed}: no rate",
    "unranked",
    when="Several runs wrote into one log, and nothing tells their lines apart.",
)
PREFERENCE_STEPS: Final = MessageKind(
    "preference-steps",
    "steps are of preferences (chosen and rejected answers): where a sample is a pair it is "
    "two sequences, and a reference model may run beside the one that is trained",
    when="The objective is preference (DPO, a reward model).",
)
REINFORCEMENT_STEPS: Final = MessageKind(
    "reinforcement-steps",
    "steps are of reinforcement learning: samples are prompts that are written on, and some "
    "steps hold the time of that",
    when="The objective is reinforcement.",
)

# -- which windows count ---------------------------------------------------------------------

UNLOGGED_WORK: Final = MessageKind(
    "unlogged-work",
    "{windows} {are} left out of TGS: an evaluation or a checkpoint whose lines are gone? The "
    "whole log would tell",
    "doubt",
    when="Windows stand out as work does that the log has no line of.",
)
LATE_START: Final = MessageKind(
    "late-start",
    "{first} of {whole} windows behind the start took {times} as long as the others and {are} "
    "left out of TGS: still start-up? A longer log would tell",
    "doubt",
    when="The first windows of a short log are slower than the rest.",
)
COUNTED_STALLS: Final = MessageKind(
    "counted-stalls",
    "{windows} {count} in TGS, which is {more:.1%} lower for {them}: real stalls, or work "
    "whose lines are gone? The whole log would tell",
    "doubt",
    when="Slow windows count although nothing in the log explains them.",
)
FEW_WINDOWS: Final = MessageKind(
    "few-windows",
    "{windows}: {remedy}",
    "doubt",
    when="The rate is of too few windows for an interval.",
)
PROFILED_WINDOWS: Final = MessageKind(
    "profiled-windows",
    "{held} of {whole} windows hold steps that ran under a profiler, which slows them: behind "
    "the start there are no others",
    "unranked",
    when="Every window behind the start holds profiled steps.",
)
LONG_WARM_UP: Final = MessageKind(
    "long-warm-up",
    "warm-up, which TGS leaves out, is {share:.0%} of the time behind the first line, and may "
    "be how fast the run is",
    "unranked",
    when="Warm-up takes a large share of the run.",
)

# -- times -----------------------------------------------------------------------------------

TIMES_WITHOUT_DATA: Final = MessageKind(
    "times-without-data",
    "{evidence} leaves data loading out, and no other time of the log holds it: TGS is an "
    "upper bound",
    "unranked",
    when="The only times leave data loading out.",
)
TIMES_ABOVE_STAMPS: Final = MessageKind(
    "times-above-stamps",
    "the logged step time is longer than the time stamps allow on {longer} of {lines} lines: "
    "one of the two is wrong",
    "unranked",
    when="Logged step times are longer than the time between their stamps.",
)
END_TO_END_FASTER: Final = MessageKind(
    "end-to-end-faster",
    "end to end, {whole:,.1f} tokens/s/GPU by {basis}, is faster than steady, {steady:,.1f} by "
    "{evidence}: one of the two times is wrong",
    "unranked",
    when="The whole run is faster than its steady windows.",
)
STEPS_PRINTED_TWICE: Final = MessageKind(
    "steps-printed-twice",
    "steps that lines of no named rank print more than once, with other times: {copies}; the "
    "longer ones count, {seconds:,.3g} s more in all; were they trained again?",
    "unranked",
    when="Steps stand in the log twice with other times, and no rank tells why.",
)
COARSE_TIMES: Final = MessageKind(
    "coarse-times",
    "TGS may be up to {off:.1%} off: it is from {evidence} in whole {unit}",
    when="Times or rates are whole numbers, and no interval holds their rounding.",
)
SINGLE_MICRO_STEPS: Final = MessageKind(
    "single-micro-steps",
    "TGS is from single micro-steps as logged; tokens per step are not known: --set seq_len, "
    "micro_batch_size and packed for the mean over all of them",
    when="Rates are of single micro-steps.",
)
RATE_SKIPS_STEPS: Final = MessageKind(
    "rate-skips-steps",
    "{untimed:.0f} of {whole:.0f} steps are in no printed rate, those before an evaluation "
    "between two lines, behind which the rate starts anew: TGS is of the others",
    when="The printed rate starts again after an evaluation.",
)
SKIPPED_STEPS_DIFFER: Final = MessageKind(
    "skipped-steps-differ",
    "{untimed:.0f} of {whole:.0f} steps are in no printed rate, those before an evaluation "
    "between two lines, behind which the rate starts anew: TGS is of the others; by time "
    "stamps these take {seconds:,.1f} s {side} than as many of those",
    "unranked",
    when="The same, and stamps show that those steps took another time.",
)
UNFAIR_OPTIMIZER_STEPS: Final = MessageKind(
    "unfair-optimizer-steps",
    "optimizer steps in the steady windows: {count}, for so many micro-steps {expected:.3g} "
    "would be their share: TGS is too {side}{much}",
    "unranked",
    when="The windows hold more or fewer optimizer steps than their share.",
)
AVERAGE_WINDOW_UNKNOWN: Final = MessageKind(
    "average-window-unknown",
    "over how many micro-steps a printed time is a mean is not known, so TGS may be of fewer "
    "than {timed:,.0f} of {passed:,.0f}, with more optimizer steps than their share, or fewer: "
    "--set average_window",
    "unranked",
    when="A printed time is a mean over an unknown number of micro-steps.",
)
ACCUMULATION_UNKNOWN: Final = MessageKind(
    "accumulation-unknown",
    "TGS is of {timed:,.0f} of {passed:,.0f} micro-steps, and over how many gradients are "
    "accumulated is not known, so they may hold more optimizer steps than their share, or "
    "fewer: --set gradient_accumulation",
    "unranked",
    when="Some micro-steps are timed, and gradient_accumulation is unknown.",
)
EVIDENCE_APART: Final = MessageKind(
    "evidence-apart",
    "TGS by {other} is {gap:+.1%} against that by {kind}, {cause}",
    "doubt",
    when="Two kinds of times in the log give different rates.",
)
EVIDENCE_WITHOUT_FIT: Final = MessageKind(
    "evidence-without-fit",
    "{cause}",
    "unranked",
    when="Rates and stamps of the log fit no number of tokens per step.",
)

# -- tokens ----------------------------------------------------------------------------------

COUNTS_APART: Final = MessageKind(
    "counts-apart",
    "{counts}: {gap:+.1%}, counted otherwise without a known cause{shares}{fits}",
    "unranked",
    when="Two counts of the same tokens differ.",
)
BATCH_CHANGES: Final = MessageKind(
    "batch-changes",
    "{changes}",
    "unranked",
    when="Steps have other batches than the log states.",
)
PARTIAL_SEQUENCES: Final = MessageKind(
    "partial-sequences",
    "{sharing} ranks share each sequence, the first have more of its tokens, the last the "
    "padding, and the log has not all of them: TGS is of those that it has; {mend}",
    "unranked",
    when="Ranks share sequences, and only some of them are in the log.",
)
TOKENS_UNCOUNTED: Final = MessageKind(
    "tokens-uncounted",
    "{reason}",
    when="The log prints tokens that cannot be counted.",
)
PROCESS_SUM_UNKNOWN: Final = MessageKind(
    "process-sum-unknown",
    "the log's tokens are summed over all processes, and some of them are given the same ones: "
    "how often each was counted is not known",
    when="Printed tokens are a sum over processes that share data.",
)
RANK_SUM_UNKNOWN: Final = MessageKind(
    "rank-sum-unknown",
    "the log's tokens without padding are summed over all ranks, and some of them are given "
    "the same ones: how often each was counted is not known",
    when="Printed tokens are a sum over ranks that share data.",
)
RANK_SUM_DOUBTFUL: Final = MessageKind(
    "rank-sum-doubtful",
    "the log's tokens are summed over all ranks, and those that share a sequence count it "
    "each; how many do it does not say, and TGS may be as many times too high; --set "
    "context_parallel and tensor_parallel, 1 where none do",
    "unranked",
    when="Printed tokens are a sum over ranks, of which some may share sequences.",
)
COUNTER_TOO_COARSE: Final = MessageKind(
    "counter-too-coarse",
    "the log prints its tokens without padding too seldom or too coarsely to count",
    when="The counter of tokens is printed too seldom or too coarsely.",
)

# -- facts -----------------------------------------------------------------------------------

SEVERAL_MODELS: Final = MessageKind(
    "several-models",
    "the log prints several models, of which the last counts: {models}",
    "unranked",
    when="The log prints the configuration of more than one model.",
)
FACTS_DIFFER: Final = MessageKind(
    "facts-differ",
    "{difference}",
    "doubt",
    when="The log, files beside it or people give different values of a fact.",
)
