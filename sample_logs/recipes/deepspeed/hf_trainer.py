"""hf_trainer.py CONFIG: a tiny random Llama under the Hugging Face Trainer on DeepSpeed, on CPU.

No line of either is changed. A callback that prints nothing takes the wall clock seconds of each
optimizer step; rank 0 writes them to truth.json.
"""

import sys
import time

import torch
from train import MODEL, SEQ_LEN, sequences, write_truth
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

STEPS, MICRO_BATCH, ACCUMULATION = 40, 4, 2


class Clock(TrainerCallback):
    """The start of the first step, then the end of each."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def on_step_begin(self, *_: object, **__: object) -> None:
        if not self.moments:
            self.moments.append(time.perf_counter())

    def on_step_end(self, *_: object, **__: object) -> None:
        self.moments.append(time.perf_counter())


def main() -> None:
    torch.manual_seed(0)
    clock = Clock()
    trainer = Trainer(
        model=LlamaForCausalLM(
            LlamaConfig.from_dict(MODEL | {"max_position_embeddings": SEQ_LEN, "use_cache": False})
        ),
        args=TrainingArguments(
            output_dir="output",
            max_steps=STEPS,
            per_device_train_batch_size=MICRO_BATCH,
            gradient_accumulation_steps=ACCUMULATION,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            logging_steps=4,
            bf16=True,
            deepspeed=sys.argv[1],
            report_to=["tensorboard"],
            save_strategy="no",
            use_cpu=True,
            include_num_input_tokens_seen=True,
        ),
        train_dataset=[{"input_ids": ids, "labels": ids} for ids in sequences(4096)],
        callbacks=[clock],
    )
    result = trainer.train()
    trainer.log_metrics("train", result.metrics)
    trainer.save_state()
    write_truth(clock.moments, MICRO_BATCH, ACCUMULATION)


if __name__ == "__main__":
    main()
