"""The closed formula against what an H100's own counters saw its tensor cores compute.

sample_logs/h100/counters: the kernels of a forward and a backward pass, in their order, of 2
sequences of 4,096 tokens. Each is held against one product of the model, to the last operation; the
products against the formula, operator by operator. What a kernel computes beyond its product is
padding of its own tiles, which its name tells, or known of its algorithm.
"""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from fairmfu.metrics.formula.flops import Operator, Trainable, flops_per_token, operators
from fairmfu.metrics.formula.model_shapes import from_hugging_face
from tests.support.folders import ROOT as PROJECT

ROOT = PROJECT / "sample_logs"
COUNTERS = ROOT / "h100" / "counters"
TOKENS, SEQ_LEN, HIDDEN, VOCAB, LORA_RANK = 2 * 4096, 4096, 2048, 32000, 64

PROJECTIONS = "query/key/value/output projections"
ATTENTION, FFN, ROUTED = "core attention", "ffn", "routed experts"
TILES = re.compile(r"_(\d+)x(\d+)_(\d+)x\d+_(\d+)x(\d+)_")
"""nvjet: the tile of the output, its depth and stages, and how many tiles a cluster takes."""


@dataclass(frozen=True)
class Product:
    """Two matrices: rows x inner and inner x columns.

    operator: as the formula names it; step: f, b, or r for what is recomputed
    """

    operator: str
    step: str
    rows: int
    inner: int
    columns: int

    @property
    def exact(self) -> int:
        return 2 * self.rows * self.inner * self.columns

    def computed(self, kernel: str) -> set[int]:
        """Operations, with the output and the depth rounded up to whole tiles, in either order."""
        one, other, depth, *cluster = (int(n) for n in TILES.search(kernel).groups())  # type: ignore[union-attr]
        deep = math.ceil(self.inner / depth)
        splits = range(1, 13) if "splitK" in kernel else [1]
        return {
            2 * depth * up(deep, parts) * up(self.rows, one * m) * up(self.columns, other * n)
            for one, other in ((one, other), (other, one))
            for m, n in (cluster, cluster[::-1], (1, 1))
            for parts in splits
        }


@dataclass(frozen=True)
class Attention:
    """Causal: a query attends (T + 1)/2 keys; cuDNN's kernel computes whole blocks of 128."""

    step: str
    heads: int
    qk: int
    v: int

    operator = ATTENTION

    @property
    def exact(self) -> int:
        passes = 2 if self.step == "b" else 1
        return passes * TOKENS * self.heads * (self.qk + self.v) * (SEQ_LEN + 1)

    def computed(self, kernel: str) -> set[int]:
        """Backward five products: the scores once more, and the gradients of Q, K, V and scores."""
        assert ("bprop" if self.step == "b" else "fprop") in kernel
        widths = 3 * self.qk + 2 * self.v if self.step == "b" else self.qk + self.v
        return {TOKENS * self.heads * widths * (SEQ_LEN + 128)}


@dataclass(frozen=True)
class Grouped:
    """A product for each expert, of the tokens that it was given."""

    step: str
    tokens: tuple[int, ...]
    inner: int
    columns: int
    tile: int = 256

    operator = ROUTED

    @property
    def exact(self) -> int:
        return 2 * sum(self.tokens) * self.inner * self.columns

    def computed(self, kernel: str) -> set[int]:
        assert "cutlass" in kernel
        return {2 * sum(up(n, self.tile) for n in self.tokens) * self.inner * self.columns}


Work = Product | Attention | Grouped


def up(n: int, tile: int) -> int:
    return math.ceil(n / tile) * tile


def linear(operator: str, inner: int, columns: int) -> tuple[Product, Product, Product]:
    """Forward, and the gradients of the weight and of what it was given."""
    return (
        Product(operator, "f", TOKENS, inner, columns),
        Product(operator, "b", inner, TOKENS, columns),
        Product(operator, "b", TOKENS, columns, inner),
    )


def experts(tokens: tuple[int, ...], width: int) -> tuple[list[Work], list[Work]]:
    """Gate and up at once, then down; backward down first. Sums over tokens have tiles of 64."""
    both, down = (HIDDEN, 2 * width), (width, HIDDEN)
    forward: list[Work] = [Grouped("f", tokens, *both), Grouped("f", tokens, *down)]
    backward: list[Work] = [
        Grouped("b", tokens, *sides, tile) for sides in (down, both) for tile in (64, 256)
    ]
    return forward, backward


class Layer:
    """What one layer computes, in order; `self.forward` and `self.backward` of it."""

    def __init__(
        self, before: dict[str, tuple[int, int]], attention: tuple[int, int, int],
        out: int, *blocks: tuple[list[Work], list[Work]],
    ) -> None:  # fmt: skip
        first = [linear(PROJECTIONS, *sides) for sides in before.values()]
        output = linear(PROJECTIONS, out, HIDDEN)
        self.forward: list[Work] = [
            *(f for f, *_ in first),
            Attention("f", *attention),
            output[0],
            *(work for block, _ in blocks for work in block),
        ]
        self.backward: list[Work] = [
            *(work for _, block in reversed(blocks) for work in block),
            *output[1:],
            Attention("b", *attention),
            *(gradient for _, *both in reversed(first) for gradient in both),
        ]


def feed_forward(operator: str, width: int) -> tuple[list[Work], list[Work]]:
    gate, other, down = (linear(operator, *s) for s in [(HIDDEN, width)] * 2 + [(width, HIDDEN)])
    return [gate[0], other[0], down[0]], [*down[1:], *other[1:], *gate[1:]]


HEAD = linear("lm_head", HIDDEN, VOCAB)
QKV = {"q": (HIDDEN, 2048), "k": (HIDDEN, 256), "v": (HIDDEN, 256)}
LLAMA = Layer(QKV, (32, 64, 64), 2048, feed_forward(FFN, 5632))


def llama() -> Iterator[Work]:
    yield from [*4 * LLAMA.forward, *HEAD, *4 * LLAMA.backward]


def llama_recompute() -> Iterator[Work]:
    """The forward pass of a layer again, but its last product, of which nothing is kept."""
    again = [
        Attention("r", 32, 64, 64)
        if isinstance(work, Attention)
        else Product(work.operator, "r", work.rows, work.inner, work.columns)
        for work in LLAMA.forward[:-1]
        if isinstance(work, Attention | Product)
    ]
    yield from [*2 * LLAMA.forward, *HEAD, *2 * (again + LLAMA.backward)]


def llama_lora() -> Iterator[Work]:
    """Frozen weights have no gradient, nor have the inputs of the first layer."""
    wide = {"gate": (HIDDEN, 5632), "up": (HIDDEN, 5632), "down": (5632, HIDDEN)}
    sides = QKV | {"o": (2048, HIDDEN)} | wide
    base = {name: linear(PROJECTIONS if name in "qkvo" else FFN, *s) for name, s in sides.items()}
    a = {name: linear("lora adapters", inner, LORA_RANK) for name, (inner, _) in sides.items()}
    b = {name: linear("lora adapters", LORA_RANK, out) for name, (_, out) in sides.items()}
    forward: list[Work] = [work for n in sides for work in (base[n][0], a[n][0], b[n][0])]
    forward.insert(9, Attention("f", 32, 64, 64))

    def backward(names: str, *, first: bool = False) -> Iterator[Work]:
        for n in names.split():
            yield from (*b[n][1:], a[n][1])
            if not first:
                yield from (a[n][2], base[n][2])

    attention = Attention("b", 32, 64, 64)
    yield from [*2 * forward, HEAD[0], HEAD[2]]
    yield from [*backward("down up gate o"), attention, *backward("v k q")]
    yield from [*backward("down up gate o"), attention, *backward("v k q", first=True)]


def given(case: str) -> list[tuple[int, ...]]:
    """Tokens of each expert, by layer."""
    with (COUNTERS / f"{case}-experts.csv").open() as file:
        return [tuple(int(n) for n in row) for row in csv.reader(file)]


def qwen3_moe() -> Iterator[Work]:
    router = linear("router", HIDDEN, 32)
    qkv = {"q": (HIDDEN, 4096), "k": (HIDDEN, 512), "v": (HIDDEN, 512)}
    layers = [
        Layer(qkv, (32, 128, 128), 4096, ([router[0]], [*router[1:]]), experts(tokens, 768))
        for tokens in given("qwen3_moe")
    ]
    yield from (work for layer in layers for work in layer.forward)
    yield from HEAD
    yield from (work for layer in reversed(layers) for work in layer.backward)


def deepseek_v3() -> Iterator[Work]:
    """Latent attention; the router is computed in fp32, which this counter does not count."""
    query = {"q_a": (HIDDEN, 768), "q_b": (768, 16 * 192)}
    latent = query | {"kv_a": (HIDDEN, 576), "kv_b": (512, 16 * 256)}
    (tokens,) = given("deepseek_v3")
    dense = Layer(latent, (16, 192, 128), 2048, feed_forward(FFN, 5632))
    sparse = Layer(
        latent, (16, 192, 128), 2048, experts(tokens, 1024), feed_forward("shared experts", 1024)
    )
    yield from [*dense.forward, *sparse.forward, *HEAD, *sparse.backward, *dense.backward]


CASES = {
    "known": lambda: [Product("known", "f", 7680, 7680, 7680)],
    "llama": llama,
    "llama-recompute": llama_recompute,
    "llama-lora": llama_lora,
    "qwen3_moe": qwen3_moe,
    "deepseek_v3": deepseek_v3,
}
LAYERS = {"llama": 4}


def counted(case: str) -> list[tuple[str, int]]:
    with (COUNTERS / f"{case}.csv").open() as file:
        return [(row["kernel"], int(row["operations"])) for row in csv.DictReader(file)]


def formula(case: str) -> dict[str, Operator]:
    """By name [FLOP per token]."""
    file = ROOT / "recipes/gpu" / f"{case}.json"
    config = json.loads((file if file.exists() else ROOT / "recipes/gpu/config.json").read_text())
    shape = from_hugging_face(config | {"num_hidden_layers": LAYERS.get(case, 2)})
    lora = Trainable(kind="lora", lora_rank=LORA_RANK, lora_targets=("all-linear",))
    trainable = lora if case == "llama-lora" else None
    return {op.name: op for op in operators(shape, SEQ_LEN, trainable=trainable)}


def exact(works: Iterable[Work], step: str) -> dict[str, int]:
    """FLOPs of one kind of pass, by operator."""
    sums: dict[str, int] = {}
    for work in works:
        if work.step == step:
            sums[work.operator] = sums.get(work.operator, 0) + work.exact
    return sums


@pytest.mark.parametrize("case", CASES)
def test_each_kernel_computes_one_product_of_the_model_in_whole_tiles(case: str) -> None:
    for (kernel, operations), work in zip(counted(case), CASES[case](), strict=True):
        assert operations in work.computed(kernel), (kernel, work)
        assert operations >= work.exact


@pytest.mark.parametrize("case", ["llama", "llama-recompute", "qwen3_moe", "deepseek_v3"])
def test_products_are_what_the_formula_says(case: str) -> None:
    of = formula(case)
    if case == "deepseek_v3":
        del of["router"]
    works = list(CASES[case]())
    assert exact(works, "f") == {name: op.forward * TOKENS for name, op in of.items()}
    assert exact(works, "b") == {name: op.backward * TOKENS for name, op in of.items()}


def test_adapters_train_and_all_else_passes_a_gradient_but_to_the_first_layers_inputs() -> None:
    of, works = formula("llama-lora"), list(llama_lora())
    assert exact(works, "f") == {name: op.forward * TOKENS for name, op in of.items()}
    into_first = {
        PROJECTIONS: sum(2 * TOKENS * inner * out for inner, out in QKV.values()),
        "lora adapters": len(QKV) * 2 * TOKENS * HIDDEN * LORA_RANK,
    }
    assert exact(works, "b") == {
        name: op.backward * TOKENS - into_first.get(name, 0) for name, op in of.items()
    }


def test_what_is_recomputed_is_each_layers_forward_pass_but_its_last_product() -> None:
    of = formula("llama-recompute")
    again = {name: op.forward * TOKENS for name, op in of.items() if name != "lm_head"}
    again[FFN] -= 2 * 2 * TOKENS * 5632 * HIDDEN
    assert exact(llama_recompute(), "r") == again


@pytest.mark.parametrize(
    ("case", "over"),
    [
        ("llama", 1.028),
        ("llama-recompute", 1.186),
        ("llama-lora", 1.012),
        ("qwen3_moe", 1.066),
        ("deepseek_v3", 1.041),
    ],
)
def test_all_that_was_counted_over_the_formula(case: str, over: float) -> None:
    """As sample_logs/h100/README.md has it."""
    ours = TOKENS * flops_per_token(formula(case).values())
    assert sum(n for _, n in counted(case)) / ours == pytest.approx(over, abs=5e-4)
