"""DeepSpeed-Chat: lines of the scripts next to the engine's (steps 1 to 3).

Steps 1 and 2 print a line per micro-step, without a number: lines are counted. `Latency` is the
wall time without data loading; `Samples/sec` covers one device, and `TFLOPs` divides the work of
one device by the world size. Every sample is padded to --max_seq_len, so tokens are unknown. Step 3
(RLHF) prints lines per iteration: generation and training of two models, outside the formula for a
single model; the batch is global (2 if unsupervised data is used). E2E latency, of the hybrid
engine, is the time between two iterations; End-to-End leaves out data loading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from ..launch_commands import options_of, world_size
from ..spec import (
    ENGINES_PRECEDENCE,
    PREFERENCE_OBJECTIVE,
    REINFORCEMENT_OBJECTIVE,
    SCRIPT_PRECEDENCE,
    EventLine,
    FactLine,
    LogFormat,
    StepLine,
    known_line,
    objective_line,
)
from .engine import LOG_STAMP

CHAT_SOURCE: Final = "deepspeedai/DeepSpeedExamples/applications/DeepSpeed-Chat"
PERF_SOURCE: Final = f"{CHAT_SOURCE}/dschat/utils/perf.py@45b4b71"
STEP1_SOURCE: Final = f"{CHAT_SOURCE}/training/step1_supervised_finetuning/main.py@45b4b71"
STEP2_SOURCE: Final = f"{CHAT_SOURCE}/training/step2_reward_model_finetuning/main.py@45b4b71"
DPO_SOURCE: Final = f"{CHAT_SOURCE}/training/step2_dpo_finetuning/main.py@45b4b71"
STEP3_SOURCE: Final = f"{CHAT_SOURCE}/training/step3_rlhf_finetuning/main.py@45b4b71"
HYBRID_ENGINE_SOURCE: Final = "deepspeedai/DeepSpeed/deepspeed/runtime/hybrid_engine.py@edaa722"
CHAT_NUMBER: Final = r"-?(?:[\d.]+(?:e[+-]?\d+)?|inf|nan)"

COMMAND: Final = r"\bmain\.py\s(?:.*\s)?--(?:model_name_or_path|max_seq_len)[ =]"
"""Regex of a command of steps 1 and 2; step 3 names two models."""

OPTION_FACTS: Final = {
    "max_seq_len": "seq_len",
    "per_device_train_batch_size": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation",
    "zero_stage": "zero_stage",
    "lora_dim": "lora_rank",
}


def command_facts(command: str) -> dict[str, str]:
    """Return facts of the command line of steps 1 and 2; empty for another command.

    No flag means no checkpointing. Only --only_optimize_lora freezes all but the adapters.
    """
    if not re.search(COMMAND, command):
        return {}
    options = options_of(command)
    facts = {
        fact: options[option]
        for option, fact in OPTION_FACTS.items()
        if options.get(option, "").isdecimal()
    }
    if facts.get("lora_rank") == "0":  # no adapters
        facts.pop("lora_rank")
    if "lora_rank" in facts and "only_optimize_lora" in options:
        facts["trainable"] = "lora"
    if options.get("dtype") in ("fp16", "bf16"):
        facts["precision"] = options["dtype"]
    facts["recompute"] = "full" if "gradient_checkpointing" in options else "none"
    name = options.get("model_name_or_path", "")
    return facts | ({"model": name} if name and "$" not in name else {}) | world_size(command)


def _options(groups: Mapping[str, str]) -> dict[str, str]:
    return command_facts(groups["command"])


def _defaults(groups: Mapping[str, str]) -> dict[str, str]:
    """Return facts of options that a command leaves out."""
    options = options_of(groups["command"])
    facts = {} if "dtype" in options else {"precision": "fp16"}
    return facts | ({"trainable": "full"} if options.get("lora_dim", "0") == "0" else {})


_known: Final = partial(known_line, composed=True)


TIMES_ELSEWHERE: Final = (
    "DeepSpeed-Chat prints Latency in steps 1 and 2, and the engine's step lines (steps_per_print) "
    "have time stamps"
)
RLHF_TIMES_ELSEWHERE: Final = (
    "step 3 of DeepSpeed-Chat prints E2E latency with --enable_hybrid_engine, and since August "
    "2023 End-to-End => Latency"
)
"""Places of the times of DeepSpeed-Chat, whose lines may print none."""

DEEPSPEED_CHAT: Final = LogFormat(
    name="deepspeed-chat",
    times_elsewhere=TIMES_ELSEWHERE,
    framework="deepspeed",
    versions="DeepSpeed-Chat 2023-2026, steps 1 and 2",
    signature=r"Model Parameters: [^,:]+, Latency: |Epoch: \d+, Step: \d+, Rank: \d+, loss = "
    r"|Beginning of Epoch \d+/\d+, Total (?:Micro|Generation) Batches|Actor Model Parameters => "
    r"|\*{5} Evaluating rewards?, Epoch \d",
    looks_like_step=r"Model Parameters: [^,:]+, Latency: |Epoch: \d+, Step: \d+, Rank: ",
    launch=r"\[launch\.py:\d+:main\] dist_world_size|\[runner\.py:\d+:main\] cmd = "
    r"|\*\*\*\*\* Running training \*\*\*\*\*",
    clock=LOG_STAMP,
    evidence=("elapsed",),
    precedence=SCRIPT_PRECEDENCE,
    step_unit="micro_step",
    elapsed_covers="step",
    elapsed_excludes_data=True,
    implies={
        "packed": (
            "false",
            "DeepSpeed-Chat pads each sample to max_seq_len; a sample of step 2 is a pair of them",
        )
    },
    steps=(
        StepLine(
            anchor="Model Parameters: ",
            regex=r"Model Parameters: (?P<parameters>[^,:]+), Latency: (?P<elapsed>[\d.]+)s, "
            rf"TFLOPs: (?P<tflops>{CHAT_NUMBER}), Samples/sec: (?P<device_samples_per_second>{CHAT_NUMBER}), "
            r"Time/seq (?P<seconds_per_sample>[\d.]+)s, Batch Size: (?P<batch>\d+), "
            r"Sequence Length: (?P<length>\d+)",
            columns={"elapsed": "elapsed_s", "tflops": "logged_tflops"},
            facts={"batch": "micro_batch_size", "length": "seq_len"},
            numbered=True,
            every_step=True,
            example="Model Parameters: 1.316 B, Latency: 0.54s, TFLOPs: 2.31, Samples/sec: 14.81, "
            "Time/seq 0.07s, Batch Size: 8, Sequence Length: 512",
            printed_by=f"{PERF_SOURCE} print_throughput",
            composed=True,
        ),
        StepLine(
            anchor=", loss = ",
            regex=r"Epoch: (?P<epoch>\d+), Step: (?P<step_of_epoch>\d+), Rank: (?P<rank>\d{1,9}), "
            rf"loss = (?P<loss>{CHAT_NUMBER})",
            columns={"epoch": "epoch", "rank": "rank", "loss": "loss"},
            numbered=True,
            step_of_epoch="step_of_epoch",
            every_step=True,
            example="Epoch: 0, Step: 3, Rank: 0, loss = 2.140625",
            printed_by=STEP1_SOURCE,
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor="Generation => ",
            regex=r"(?P<phase>Generation) => Latency: (?P<seconds>[\d.]+)s, Per-token Latency "
            rf"(?P<ms_per_token>[\d.]+) ms, TFLOPs: (?P<tflops>{CHAT_NUMBER}), BW: "
            rf"(?P<gigabytes_per_second>{CHAT_NUMBER}) GB/sec, Answer Seq\. Length: (?P<length>\d+)",
            kind="timers",
            example="Generation => Latency: 1.88s, Per-token Latency 7.34 ms, TFLOPs: 0.91, BW: "
            "105.70 GB/sec, Answer Seq. Length: 256",
            printed_by=f"{PERF_SOURCE} print_throughput_step3",
            composed=True,
        ),
        EventLine(
            anchor="Training   => ",
            regex=rf"(?P<phase>Training) +=> Latency: (?P<seconds>[\d.]+)s, TFLOPs: "
            rf"(?P<tflops>{CHAT_NUMBER})",
            kind="timers",
            example="Training   => Latency: 1.27s, TFLOPs: 9.03",
            printed_by=f"{PERF_SOURCE} print_throughput_step3",
            composed=True,
        ),
        EventLine(
            anchor="***** Evaluating ",
            regex=r"\*{5} Evaluating \w+, Epoch (?P<epoch>\d+)/\d+ \*{5}",
            kind="evaluation",
            with_facts=True,
            example="***** Evaluating perplexity, Epoch 1/4 *****",
            printed_by=STEP1_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="ppl: ",
            regex=rf"^(?:\S+: ?)?ppl: (?P<perplexity>{CHAT_NUMBER})(?:, loss: (?P<loss>{CHAT_NUMBER}))?",
            kind="evaluation",
            example="ppl: 2.1171875, loss: 0.7501",
            printed_by=STEP1_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="chosen",
            regex=rf"chosen_last_scores \(higher is better\) : (?P<chosen>{CHAT_NUMBER})"
            rf"(?:, rejected_last_scores \(lower is better\) : (?P<rejected>{CHAT_NUMBER}))?"
            rf", acc \(higher is better\) : (?P<accuracy>{CHAT_NUMBER})",
            kind="evaluation",
            example="chosen_last_scores (higher is better) : 2.91, acc (higher is better) : 0.52",
            printed_by=STEP2_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="chosen: ",
            regex=rf"chosen: (?P<chosen>{CHAT_NUMBER}), rejected: (?P<rejected>{CHAT_NUMBER}), "
            rf"loss: (?P<loss>{CHAT_NUMBER})",
            kind="evaluation",
            example="chosen: -27.5, rejected: -29.75, loss: 0.6312",
            printed_by=DPO_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="saving ",
            regex=r"saving (?:the final )?model \.\.\.",
            kind="checkpoint",
            example="saving the final model ...",
            printed_by=STEP1_SOURCE,
            composed=True,
        ),
    ),
    facts=(
        objective_line(
            PREFERENCE_OBJECTIVE,
            "***** Evaluating reward",
            "***** Evaluating reward, Epoch 0/1 *****",
            STEP2_SOURCE,
            regex=r"\*{5} Evaluating rewards?, Epoch \d+/\d+ \*{5}",
        ),
        FactLine(
            anchor="main.py ",
            regex=rf"\bcmd = (?P<command>.*{COMMAND}.*)",
            read=_defaults,
            inferred="DeepSpeed-Chat's defaults: --dtype fp16, and --lora_dim 0 trains every weight",
            example="cmd = deepspeed main.py --model_name_or_path facebook/opt-1.3b --deepspeed",
            printed_by=STEP1_SOURCE,
            composed=True,
        ),
        FactLine(
            anchor="main.py ",
            regex=rf"\bcmd = (?P<command>.*{COMMAND}.*)",
            read=_options,
            example="[2026-11-20 15:01:09,500] [INFO] [runner.py:618:main] cmd = python3 -u -m "
            "deepspeed.launcher.launch --master_port=29500 main.py --model_name_or_path "
            "facebook/opt-1.3b --per_device_train_batch_size 8 "
            "--max_seq_len 512 --gradient_accumulation_steps 2 --zero_stage 2 "
            "--gradient_checkpointing --deepspeed",
            printed_by="deepspeedai/DeepSpeed/deepspeed/launcher/runner.py@edaa722",
            composed=True,
        ),
        _known(
            "***** Evaluating ",
            r"\*{5} Evaluating \w+, Epoch \d+/\d+ \*{5}",
            "***** Evaluating perplexity, Epoch 1/4 *****",
            STEP1_SOURCE,
        ),
        _known(
            "cmd = deepspeed ",
            r"^cmd = deepspeed ",
            "cmd = deepspeed main.py --data_split 2,4,4 --max_answer_seq_len 256 --deepspeed",
            STEP3_SOURCE,
        ),
        _known(
            "Running training",
            r"\*{5} Running training \*{5}",
            "***** Running training *****",
            STEP1_SOURCE,
        ),
        objective_line(
            REINFORCEMENT_OBJECTIVE,
            "Total Generation Batches ",
            "Beginning of Epoch 1/1, Total Generation Batches 478",
            STEP3_SOURCE,
            regex=r"Beginning of Epoch \d+/\d+, Total Generation Batches \d+",
        ),
        _known(
            "Beginning of Epoch ",
            r"Beginning of Epoch \d+/\d+, Total (?:Micro|Generation) Batches \d+",
            "Beginning of Epoch 1/4, Total Micro Batches 312",
            STEP1_SOURCE,
        ),
        _known(
            " with loss ",
            r"Epoch \d+/\d+ with loss ",
            "Epoch 1/1 with loss 0.6034",
            STEP2_SOURCE,
        ),
        objective_line(
            REINFORCEMENT_OBJECTIVE,
            "Actor Model Parameters => ",
            "Actor Model Parameters => 1.429 B, Critic Model Parameters => 0.331 B",
            PERF_SOURCE,
        ),
        _known(
            "Setting model_config.",
            r"Setting model_config\.\w+ to ",
            "Setting model_config.dropout to 0.0",
            f"{CHAT_SOURCE}/dschat/utils/model/model_utils.py@45b4b71 configure_dropout",
        ),
        _known(
            "----------",
            r"^(?:\S+: ?)?-{50,}\s*$",
            "-" * 85,
            STEP3_SOURCE,
        ),
    ),
)

DEEPSPEED_CHAT_RLHF: Final = replace(
    DEEPSPEED_CHAT,
    name="deepspeed-chat-rlhf",
    times_elsewhere=RLHF_TIMES_ELSEWHERE,
    versions="DeepSpeed-Chat 2023-2026, step 3",
    signature=r"End-to-End => Latency: |\| ?(?:PPO Epoch|ppo_ep): \d"
    r"|[Aa]verage reward score: |\|E2E latency=",
    looks_like_step=r"End-to-End => Latency: |[Ee]poch: \d+ ?\| ?[Ss]tep: |\|E2E latency="
    r"|[Aa]verage reward score: ",
    precedence=ENGINES_PRECEDENCE,
    rate_covers="step",
    steps=(
        StepLine(
            anchor="|E2E latency=",
            regex=r"\|E2E latency=(?P<elapsed>[\d.]+)s +\|Gather latency=(?P<gather_s>[\d.]+)s[^|]*"
            r"\|Generate time=(?P<generate_s>[\d.]+)s[^|]*\|Training time=(?P<training_s>[\d.]+)s[^|]*"
            r"\|Others=(?P<others_s>-?[\d.]+)(?:[^|]*\|CurSamplesPerSec=(?P<samples_per_second>[\d.]+)"
            r" *\|AvgSamplesPerSec=(?P<mean_samples_per_second>[\d.]+))?",
            columns={
                "elapsed": "elapsed_s",
                "samples_per_second": "logged_samples_per_second",
            },
            tells={"elapsed": REINFORCEMENT_OBJECTIVE},
            numbered=True,
            every_step=True,
            times_data=True,  # from the end of an iteration to the end of the next
            example="|E2E latency=5.20s |Gather latency=0.00s (0.00%) |Generate time=2.01s (38.65%) "
            "|Training time=2.90s (55.77%) |Others=0.29 (5.58%)|CurSamplesPerSec=12.31 "
            "|AvgSamplesPerSec=11.87",
            printed_by=f"{HYBRID_ENGINE_SOURCE} DeepSpeedHybridEngine.eval",
            composed=True,
        ),
        StepLine(
            anchor="End-to-End => ",
            regex=rf"End-to-End => Latency: (?P<elapsed>[\d.]+)s, TFLOPs: (?P<tflops>{CHAT_NUMBER}), "
            rf"Samples/sec: (?P<samples_per_second>{CHAT_NUMBER}), Time/seq "
            r"(?P<seconds_per_sample>[\d.]+)s, Batch Size: (?P<batch>\d+), "
            r"Total Seq\. Length: (?P<length>\d+)",
            columns={"elapsed": "elapsed_s", "tflops": "logged_tflops"},
            tells={"elapsed": REINFORCEMENT_OBJECTIVE},
            numbered=True,
            every_step=True,
            example="End-to-End => Latency: 3.15s, TFLOPs: 4.12, Samples/sec: 2.54, Time/seq 0.39s, "
            "Batch Size: 8, Total Seq. Length: 512",
            printed_by=f"{PERF_SOURCE} print_throughput_step3",
            composed=True,
        ),
        StepLine(
            anchor="nsuper",
            regex=r"[Ee]poch: (?P<epoch>\d+) ?\| ?[Ss]tep: (?P<step_of_epoch>\d+) ?\| ?(?:PPO Epoch"
            rf"|ppo_ep): (?P<ppo_epoch>\d+) ?\| ?(?:Actor L|act_l)oss: (?P<actor_loss>{CHAT_NUMBER}) ?\| ?"
            rf"(?:Critic L|cri_l)oss: (?P<critic_loss>{CHAT_NUMBER}) ?\| ?(?:Unsupervised L|unsuper_l)oss:"
            rf" (?P<unsupervised_loss>{CHAT_NUMBER})",
            columns={"epoch": "epoch"},
            tells={"actor_loss": REINFORCEMENT_OBJECTIVE},
            numbered=True,
            step_of_epoch="step_of_epoch",
            every_step=True,
            example="Epoch: 0 | Step: 7 | PPO Epoch: 1 | Actor Loss: 0.0129 | Critic Loss: 0.0314 | "
            "Unsupervised Loss: 0.0",
            printed_by=STEP3_SOURCE,
            composed=True,
        ),
        StepLine(
            anchor="verage reward score: ",
            regex=rf"[Aa]verage reward score: (?P<reward>{CHAT_NUMBER})",
            columns={},
            numbered=True,
            every_step=True,
            example="Average reward score: 0.0221 | EMA reward score: -0.1088",
            printed_by=STEP3_SOURCE,
            composed=True,
        ),
    ),
)
"""Step 3: each model has its own engine, so the engines' lines are not steps of the training."""
