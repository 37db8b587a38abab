"""Products of one forward by PyTorch's FlopCounterMode, each with its mask.

The counter multiplies every query with every key. Here each tensor is traced to what it comes
from: weights, a mask, scores. The weighted sum of attention is a product with a softmax of scores;
its mask tells how many of the pairs count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

__all__ = ["CORE_ATTENTION", "OTHER_PRODUCTS", "Mask", "Product", "Trace", "Tracer"]

CORE_ATTENTION: Final = "core attention"
OTHER_PRODUCTS: Final = "products of activations"
CONVOLUTION: Final = "convolution"


@dataclass(frozen=True, slots=True)
class Mask:
    """Mask of attention: it lets `pairs` of queries and keys through.

    certain: false if its pairs are not known, so that all of them are an upper bound
    """

    queries: int
    keys: int
    pairs: int
    certain: bool = True


@dataclass(slots=True)
class Product:
    """Product of one forward. module: its name in the model; flops: with every pair."""

    name: str
    module: str
    flops: int
    estimate: bool = False
    mask: Mask | None = None

    @property
    def masked_flops(self) -> int:
        """FLOPs over the pairs of the mask."""
        mask = self.mask
        if mask is None:
            return self.flops
        return self.flops * mask.pairs // (mask.queries * mask.keys)


@dataclass(frozen=True, slots=True)
class Trace:
    """Origin of a tensor.

    weight: weights alone. learned: weights looked up by position or token. mask: a mask of
    attention. scores: indices of products of activations. softmax: of these scores. changed: by a
    choice of rows or keys, or by tensors that may be a mask
    """

    weight: bool = False
    learned: bool = False
    mask: Mask | None = None
    scores: frozenset[int] = frozenset()
    softmax: bool = False
    changed: bool = False


NOTHING: Final = Trace()
SQUARE: Final = 2
"""Dimensions of a tensor over queries and keys."""
OPERANDS: Final[Mapping[str, tuple[int, int]]] = {
    "aten.mm": (0, 1),
    "aten.bmm": (0, 1),
    "aten.addmm": (1, 2),
    "aten.baddbmm": (1, 2),
    "aten.convolution": (0, 1),
    "aten._convolution": (0, 1),
}
"""Arguments of a product that are multiplied."""
CHOICES: Final = ("topk", "sort", "argsort", "scatter", "index_put", "argmax")
"""Operations whose result depends on the values of scores: a choice of keys."""

MAX_OPERATIONS: Final = 3_000_000
"""Most operations of a forward. A model that runs token by token has more in a long sequence."""


class Tracer:
    """Counts the products of a forward, and traces attention to its masks.

    counter: torch's FlopCounterMode; weights: parameters of the model
    """

    def __init__(self, counter: Any, weights: Iterable[Any]) -> None:  # noqa: ANN401 - torch's
        weak = import_module("torch.utils.weak")
        self.counter = counter
        self.traces = weak.WeakIdKeyDictionary()
        self.products: list[Product] = []
        self.operations = 0
        self._count = counter._count_flops  # noqa: SLF001 - called for every operation
        counter._count_flops = self._record  # noqa: SLF001
        for weight in weights:
            self.traces[weight] = Trace(weight=True)

    def _record(self, packet: Any, out: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise RuntimeError("it runs token by token, which is too long at this length")
        before = self.counter.get_total_flops()
        result = self._count(packet, out, args, kwargs)
        flops = self.counter.get_total_flops() - before
        trace = (
            self._product(str(packet), args, flops)
            if flops
            else self._trace(str(packet), [*args, *kwargs.values()], out)
        )
        if trace != NOTHING:
            for tensor in _tensors([out]):
                self.traces[tensor] = trace
        return result

    def _trace_of(self, tensor: Any) -> Trace:  # noqa: ANN401
        found: Trace = self.traces.get(tensor, NOTHING)
        return found

    def _product(self, kind: str, args: Sequence[Any], flops: int) -> Trace:
        """Keep a product; return the trace of its result."""
        operands = [args[place] for place in OPERANDS.get(kind, (0, 1))]
        traces = [self._trace_of(operand) for operand in operands]
        parents = self.counter.mod_tracker.parents
        module = max(parents, key=lambda name: (name != "Global", len(name)))
        weights = [trace for trace in traces if trace.weight or trace.learned]
        if weights:
            name = CONVOLUTION if "convolution" in kind else module
            estimate = name == CONVOLUTION or _of_all_experts(kind, module, weights)
            self.products.append(Product(name, module, flops, estimate))
            return NOTHING
        for operand, trace in zip(operands, traces, strict=True):
            if trace.softmax:
                self._attend(trace, operand.shape, module, flops)
                return NOTHING
        self.products.append(Product(OTHER_PRODUCTS, module, flops, estimate=True))
        return Trace(scores=frozenset({len(self.products) - 1}))

    def _attend(self, trace: Trace, shape: Sequence[int], module: str, flops: int) -> None:
        """Keep the weighted sum of attention; its scores become attention too."""
        mask, estimate = trace.mask, trace.changed
        if mask is not None and (mask.queries, mask.keys) != tuple(shape[-SQUARE:]):
            mask, estimate = None, True  # parts of masks, put together
        estimate |= mask is not None and not mask.certain
        self.products.append(Product(CORE_ATTENTION, module, flops, estimate, mask))
        for index in trace.scores:
            scores = self.products[index]
            scores.name, scores.estimate, scores.mask = CORE_ATTENTION, estimate, mask

    def _trace(self, kind: str, args: Sequence[Any], out: Any) -> Trace:  # noqa: ANN401
        """Return the trace of the result of an operation that is no product."""
        tensors = [tensor for tensor in _tensors(args) if tensor is not out]
        traces = [self._trace_of(tensor) for tensor in tensors]
        if not any(trace != NOTHING for trace in traces):
            return NOTHING
        both = list(zip(tensors, traces, strict=True))
        numbers = [trace for tensor, trace in both if tensor.is_floating_point()]
        if numbers and all(trace.weight or trace.learned for trace in numbers):
            return _of_weights(kind, numbers)
        scores = frozenset[int]().union(*(trace.scores for trace in traces))
        masks = {trace.mask for trace in traces if trace.mask is not None}
        mask = min(masks, key=lambda one: one.pairs, default=None)
        changed = any(trace.changed for trace in traces) or len(masks) > 1
        if any(name in kind for name in CHOICES):
            return Trace(mask=mask, changed=changed or bool(scores))
        softmax = any(trace.softmax for trace in traces)
        if (scores or masks) and not softmax:
            changed |= any(map(_may_mask, tensors, traces))
        return Trace(
            mask=mask,
            scores=scores,
            softmax=softmax or (bool(scores) and "softmax" in kind),
            changed=changed,
        )


def _of_weights(kind: str, traces: Sequence[Trace]) -> Trace:
    """Return the trace of weights after an operation: rows may be looked up or chosen."""
    if "embedding" in kind or any(trace.learned for trace in traces):
        return Trace(learned=True)
    return Trace(weight=True, changed="index" in kind or any(t.changed for t in traces))


def _of_all_experts(kind: str, module: str, weights: Sequence[Trace]) -> bool:
    """Return whether code multiplies all experts, where a token needs a few."""
    chosen = any(trace.changed for trace in weights)
    return "bmm" in kind and "expert" in module and not chosen


def _may_mask(tensor: Any, trace: Trace) -> bool:  # noqa: ANN401 - torch's
    """Return whether a tensor of unknown origin may hide keys: a square of positions."""
    if trace != NOTHING or tensor.ndim < SQUARE:
        return False
    return all(length > 1 for length in tensor.shape[-SQUARE:])


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    tensor_type = import_module("torch").Tensor
    for value in values:
        if isinstance(value, tensor_type):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
