"""Messages about the phases of a step."""

from __future__ import annotations

from typing import Final

from ..core.messages import MessageKind

PHASES_EXCEED_STEP: Final = MessageKind(
    "phases-exceed-step",
    "The timers add up to {seconds}, more than the step time of {step}, so the rest is unknown: "
    "timers overlap, or cover other steps than the step time",
    when="Phases of a step take longer than the step.",
)
STEP_OF_TIMERS: Final = MessageKind(
    "step-of-timers",
    "The step time is the sum of these timers, so time outside of them, such as data loading, is "
    "not in the log",
    when="The only time of a step is the sum of its timers.",
)
MICRO_STEP_TIMERS: Final = MessageKind(
    "timers-of-micro-steps",
    "{timers}: printed per micro-step; the table multiplies their mean by gradient_accumulation = "
    "{count}",
    when="The log times micro-steps.",
)
STEP_IS_MICRO_STEP: Final = MessageKind(
    "phases-of-micro-step",
    "The log counts micro-steps, so the table is of one micro-step",
    when="Steps of the log are micro-steps.",
)
SINGLE_STEP: Final = MessageKind(
    "phases-of-single-step",
    "The table is of the only logged step, and other steps may differ",
    when="The log quotes a single step with timers.",
)
LONGEST_DATA_TIME: Final = MessageKind(
    "longest-data-time",
    "data: the longest time over the {ranks} printing ranks",
    when="Several ranks print their data time.",
)
HOST_TIMES: Final = MessageKind(
    "phases-of-host",
    "{timers}: times of the host, which runs ahead of the GPU, so they show where the host waited",
    when="Timers measure the host, not the GPU.",
)
LONGEST_RANKS: Final = MessageKind(
    "phases-of-longest-ranks",
    "{timers}: the longest time over the ranks, of another rank for each timer, so their sum may "
    "exceed a step",
    when="Timers are printed as the longest time over the ranks.",
)
OVERLAPPED_COLLECTIVES: Final = MessageKind(
    "overlapped-collectives",
    "{timers}: only the time after the backward pass; collectives that overlap with it count as "
    "backward",
    when="Gradients may be reduced while backward computes.",
)
WAITS_FOR_RANKS: Final = MessageKind(
    "phases-with-waits",
    "{timers}: include waiting for the other pipeline stage",
    when="Sends and receives of a pipeline are timed.",
)

# -- what to do next -------------------------------------------------------------------------

FIT_MEMORY: Final = MessageKind(
    "next-fit-memory",
    "To fit into memory, {levers}",
    when="The run ended out of memory.",
)
FIND_FIRST_RANK: Final = MessageKind(
    "next-find-first-rank",
    "Find the rank that ended first, in the logs of the other ranks: this error says that another "
    "rank went away",
    when="The run ended with a lost connection to another rank.",
)
FIND_CRASH: Final = MessageKind(
    "next-find-crash",
    "Fix the crash first: look for the first error, in this log and in those of the other ranks",
    when="The run crashed, and no other line on its end says what to do.",
)
FIND_NAN: Final = MessageKind(
    "next-find-nan",
    "Find the first step with NaN: check its data, the learning rate and the gradient clipping",
    when="The loss or the gradients became NaN.",
)
ASK_SLURM: Final = MessageKind(
    "next-ask-slurm",
    "Ask Slurm who ended it and why: sacct -j {job} -o JobID,State,ExitCode,Elapsed,Timelimit",
    when="Slurm ended the run, and the log has the job's number.",
)
RAISE_TIME_LIMIT: Final = MessageKind(
    "next-raise-time-limit",
    "Raise the job's time limit, or save a checkpoint before it",
    when="The scheduler ended the run at its time limit.",
)
FIND_END: Final = MessageKind(
    "next-find-end",
    "The log ends at step {last:,} of {whole:,}: give the rest, or find out why the run stopped",
    when="The log ends before the last planned step, without an error or an end message.",
)
FIND_REST: Final = MessageKind(
    "next-find-rest",
    "Find the rest of the log: no line that was read shows how many of {whole:,} steps were "
    "trained",
    when="The log states the planned steps, but no step with its number, and has no end.",
)
PROFILE_STEPS: Final = MessageKind(
    "next-profile-steps",
    "Profile some steps (phase timers, torch.profiler): {flops} TFLOP/s per GPU is little for "
    "a GPU with matrix units{batch}",
    when="A 16-bit run does fewer than 10 TFLOP/s per GPU.",
)
FEWER_BUBBLES: Final = MessageKind(
    "next-pipeline-bubble",
    "Use more micro-batches per step, or fewer pipeline stages: {stages} stages with {micro} "
    "micro-batches are idle for {bubble} of a step if stages are not interleaved",
    when="Pipeline stages wait for each other for much of a step.",
)
LOAD_FASTER: Final = MessageKind(
    "next-load-faster",
    "Load data faster (more workers, prefetching, faster storage): without its waits the run would "
    "be up to {times:.2f}x as fast",
    when="Steps wait for data for more than a tenth of their time.",
)
EVALUATE_LESS: Final = MessageKind(
    "next-evaluate-less",
    "Evaluate faster, less often, or on fewer samples: evaluation took {share} of the wall time",
    when="Evaluation takes much of the wall time.",
)
SAVE_LESS: Final = MessageKind(
    "next-save-less",
    "Save checkpoints less often, or asynchronously: they took {share} of the wall time",
    when="Checkpoints take much of the wall time.",
)
LOOK_THERE: Final = MessageKind(
    "next-look-at-slower-steps",
    "Look at {what} in steps {steps}{why}",
    when="The run had a slower speed that lasted.",
)
LOOK_AT_DRIFT: Final = MessageKind(
    "next-look-at-drift",
    "Compare the first steps with the last ones: {what}. The run slowed down steadily",
    when="The run slowed down steadily.",
)
LOOK_BETWEEN_STEPS: Final = MessageKind(
    "next-look-between-steps",
    "Look at what runs between the steps {steps}, outside of the step timer: garbage collection, "
    "logging, data loading, hooks",
    when="Much time passes between steps, outside of the step timer.",
)
RECORD_MEMORY: Final = MessageKind(
    "next-record-memory",
    "Record a memory snapshot over {steps} steps: the peak memory grew to the end of the run",
    when="The peak memory grows to the end of the run.",
)
CHECK_RANKS: Final = MessageKind(
    "next-check-ranks",
    "Check {what} of {ranks}: all other ranks wait for them",
    when="Some ranks are later than the others.",
)
BALANCE_RANKS: Final = MessageKind(
    "next-balance-ranks",
    "Balance the batches over the ranks: {ranks} had {what}, and the others waited",
    when="Ranks with more tokens, or longer documents, are late.",
)
FIND_STALL: Final = MessageKind(
    "next-find-stall",
    "Find out what happened at {steps}, an evaluation, a checkpoint or a stall: it took "
    "{seconds:,.3g} s too long, and the log does not say why",
    when="Slow steps without a cause take much of the wall time.",
)
RUN_LONGER: Final = MessageKind(
    "next-run-longer",
    "Too short to judge the speed: {windows} in {seconds:,.0f} s. Give the whole log, or train "
    "longer",
    when="The log is too short to judge the speed.",
)
