"""Train the model of train.py, cut into two stages, by DeepSpeed's pipeline engine, on CPU (gloo).

No line of DeepSpeed is changed. truth.json is as in train.py.
"""

import time

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule
from torch import nn
from train import MODEL, Layer, arguments, batch_of, loss_of, sequences, start, write_truth

STAGES = 2


def main() -> None:
    args = arguments().parse_args()
    start(info=args.info)
    hidden, vocab = MODEL["hidden_size"], MODEL["vocab_size"]
    layers = [
        LayerSpec(nn.Embedding, vocab, hidden),
        *(LayerSpec(Layer) for _ in range(MODEL["num_hidden_layers"])),
        LayerSpec(nn.RMSNorm, hidden),
        LayerSpec(nn.Linear, hidden, vocab, bias=False),
    ]
    model = PipelineModule(
        layers=layers, num_stages=STAGES, loss_fn=loss_of, partition_method="uniform"
    )
    engine, *_ = deepspeed.initialize(
        args=args,
        model=model,
        model_parameters=list(model.parameters()),
        training_data=[(ids, ids) for ids in sequences(4096)],
    )
    moments = [time.perf_counter()]  # the start of the first step, then the end of each
    for _ in range(args.steps):
        engine.train_batch()
        moments.append(time.perf_counter())
    write_truth(moments, *batch_of(engine), gpus_per_replica=STAGES)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
