"""Train a random Llama-style decoder on synthetic tokens with DeepSpeed, on a CPU (gloo) or GPUs.

The model has the shape of $MODEL_CONFIG (config.json beside this file: a tiny one), its sequences
have $SEQ_LEN tokens (128).

No line of DeepSpeed is changed. With --info the level of DeepSpeed's own logger is set to INFO,
the default up to 0.17.5. Rank 0 writes the wall clock seconds of each optimizer step, taken
outside DeepSpeed, to truth.json. With --kill-in-step, the last rank kills itself before that step.
"""

import argparse
import itertools
import json
import logging
import os
import signal
import time
from pathlib import Path

import deepspeed
import torch
import torch.nn.functional as F
from deepspeed.utils.logging import logger
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CONFIG = os.environ.get("MODEL_CONFIG") or Path(__file__).parent / "config.json"
MODEL = json.loads(Path(CONFIG).read_text())
SEQ_LEN = int(os.environ.get("SEQ_LEN", "128"))


def rotate(x: Tensor) -> Tensor:
    """Rotary position embedding of (batch, heads, tokens, head size)."""
    half = x.shape[-1] // 2
    places, pairs = (torch.arange(n, device=x.device) for n in (x.shape[2], half))
    angles = torch.outer(places, 10000 ** -(pairs / half))
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    x1, x2 = x[..., :half], x[..., half:]
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)


class Layer(nn.Module):
    """Grouped-query causal attention and a gated feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        hidden, ffn = MODEL["hidden_size"], MODEL["intermediate_size"]
        self.head_size = hidden // MODEL["num_attention_heads"]
        self.groups = MODEL["num_attention_heads"] // MODEL["num_key_value_heads"]
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.q, self.o = (
            nn.Linear(hidden, hidden, bias=False),
            nn.Linear(hidden, hidden, bias=False),
        )
        self.k = nn.Linear(hidden, hidden // self.groups, bias=False)
        self.v = nn.Linear(hidden, hidden // self.groups, bias=False)
        self.gate, self.up = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (
            z.unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for z in (self.q(y), self.k(y), self.v(y))
        )
        k, v = rotate(k).repeat_interleave(self.groups, 1), v.repeat_interleave(self.groups, 1)
        attended = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Gives the loss of a batch of token ids."""

    def __init__(self, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        hidden, vocab = MODEL["hidden_size"], MODEL["vocab_size"]
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.Sequential(*(Layer() for _ in range(MODEL["num_hidden_layers"])))
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return loss_of(self.head(self.norm(x)), ids)


def loss_of(logits: Tensor, ids: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def sequences(count: int) -> list[Tensor]:
    """Arithmetic sequences modulo the vocabulary, which can be learnt."""
    chance = torch.Generator().manual_seed(0)
    start = torch.randint(0, MODEL["vocab_size"], (count, 1), generator=chance)
    step = torch.randint(1, 8, (count, 1), generator=chance)
    return list((start + step * torch.arange(SEQ_LEN)) % MODEL["vocab_size"])


def arguments() -> argparse.ArgumentParser:
    """What train.py and pipeline.py take alike."""
    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    parser.add_argument("--local_rank", type=int)  # passed by the deepspeed launcher
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--info", action="store_true", help="let DeepSpeed log its INFO lines")
    return parser


def start(*, info: bool) -> None:
    """Set the log level and the seed, and let the ranks find one another."""
    if info:
        for target in (logger, *logger.handlers):
            target.setLevel(logging.INFO)
    torch.manual_seed(0)
    deepspeed.init_distributed(dist_backend="nccl" if torch.cuda.is_available() else "gloo")


def batch_of(engine: deepspeed.DeepSpeedEngine) -> tuple[int, int]:
    """Sequences of a micro-batch on one GPU, and micro-batches of a step."""
    return engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()


def write_truth(
    moments: list[float], micro_batch: int, accumulation: int, gpus_per_replica: int = 1
) -> None:
    """moments: the start of the first step, then the end of each."""
    ranks = int(os.environ["WORLD_SIZE"])
    truth = {
        "steps": len(moments) - 1,
        "wall_s": [round(end - start, 6) for start, end in itertools.pairwise(moments)],
        "tokens_per_step": micro_batch * accumulation * ranks // gpus_per_replica * SEQ_LEN,
        "gpus": ranks,
        "seq_len": SEQ_LEN,
        "micro_batch": micro_batch,
        "accumulation": accumulation,
    }
    if os.environ["RANK"] == "0":
        Path("truth.json").write_text(json.dumps(truth, indent=1))


def main() -> None:
    parser = arguments()
    parser.add_argument("--print-loss", type=int, default=0, metavar="STEPS")
    parser.add_argument("--recompute", action="store_true", help="keep no activations of layers")
    parser.add_argument("--kill-in-step", type=int, metavar="STEP")
    args = parser.parse_args()
    start(info=args.info)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Decoder(recompute=args.recompute)
    engine, _, loader, _ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters(), training_data=sequences(4096)
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    moments = [time.perf_counter()]  # the start of the first step, then the end of each
    for step in range(1, args.steps + 1):
        if step == args.kill_in_step:
            write_truth(moments, *batch_of(engine))
            if rank == ranks - 1:
                os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(engine.gradient_accumulation_steps()):
            loss = engine(next(batches).to(engine.device))
            engine.backward(loss)
            engine.step()
        moments.append(time.perf_counter())
        if args.print_loss and rank == 0 and step % args.print_loss == 0:
            print(
                f"step {step}/{args.steps} | loss {loss.item():.4f} | lr {engine.get_lr()[0]:.3e}",
                flush=True,
            )

    write_truth(moments, *batch_of(engine))
    engine.destroy()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
