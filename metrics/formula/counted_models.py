"""FLOPs of a model by PyTorch's FlopCounterMode, for types without a formula.

The installed transformers builds the model on the meta device, without weights, and one forward of
one sequence runs with eager attention. No code from outside of torch and transformers runs.

transformers describes the mask of a model as a function of two positions. It is evaluated for all
pairs, so attention counts the pairs that the model's own mask lets through. Counts that depend on
data or on a kernel are marked as estimates: sparse attention, states, convolutions.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final
from unittest import mock

from fairmfu.ingest.core.errors import install_hint

from . import messages
from .flops import Operator
from .model_shapes.other_kinds import other_kind
from .product_traces import CORE_ATTENTION, OTHER_PRODUCTS, Mask, Product, Trace, Tracer

__all__ = ["MAX_COUNTED_LENGTH", "CountedModel", "count_model"]

MAX_COUNTED_LENGTH: Final = 2**17
"""Most tokens of a counted sequence: its mask is evaluated for all pairs."""

MAX_MASK_PAIRS: Final = 2**24
"""Pairs of a mask that are evaluated at once."""

MAX_CONFIG_NUMBER: Final = 10**9
MAX_CONFIG_LAYERS: Final = 2000
MAX_CONFIG_EXPERTS: Final = 2**16
"""Largest number in a config, and largest numbers of layers and experts: each may become a
module."""
_LAYER_COUNTS: Final = ("layers", "n_layer", "blocks", "depth")
"""Ends of keys with a number of layers."""

MAX_COUNTED_PARAMETERS: Final = 10**15

WEIGHTLESS: Final = (CORE_ATTENTION, OTHER_PRODUCTS)
"""Operators without weights, whose backward is twice the forward whatever is trained."""

_IGNORED_KEYS: Final = ("auto_map", "quantization_config", "_name_or_path", "custom_pipelines")
"""Keys that name code, other files, or change no product."""

_IGNORED_ENDINGS: Final = ("attn_implementation", "experts_implementation", "use_kernels")
"""Ends of keys that may name code to download."""

_CLASSES: Final[Mapping[str | None, tuple[str, ...]]] = {
    "is an encoder": ("AutoModelForMaskedLM", "AutoModelForCausalLM"),
    "is an encoder-decoder": ("AutoModelForSeq2SeqLM", "AutoModelForCausalLM"),
}
_DECODER_CLASSES: Final = (
    "AutoModelForCausalLM",
    "AutoModelForMultimodalLM",
    "AutoModelForImageTextToText",
    "AutoModelForMaskedLM",
    "AutoModelForSeq2SeqLM",
)
"""Classes of transformers that build a model, by its kind, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedOperator:
    """Kind of product in a model, summed over its modules [FLOP per token].

    forward: over the pairs of the masks; full_attention: over all pairs
    """

    name: str
    layers: int
    forward: float
    full_attention: float
    estimate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedModel:
    """Forward of a model, counted.

    tokens: of the sequence, or of source and target together
    counted_by: the programs that counted, with their versions
    idle: parts of the model that no token reached, such as a vision tower
    """

    model: str
    class_name: str
    seq_len: int
    tokens: int
    params_total: int
    operators: tuple[CountedOperator, ...]
    counted_by: str
    idle: tuple[str, ...] = ()


def training_operators(
    counted: CountedModel, *, frozen: bool = False, full_attention: bool = False
) -> tuple[Operator, ...]:
    """Return the operators of a count with their backward.

    frozen: no weight is trained, and gradients still pass through
    full_attention: over all pairs, whatever the masks
    """
    found = []
    for op in counted.operators:
        forward = op.full_attention if full_attention else op.forward
        times = 1 if frozen and op.name not in WEIGHTLESS else 2
        found.append(
            Operator(
                name=op.name,
                layers=op.layers,
                forward=forward,
                backward=times * forward,
                estimate=op.estimate,
            )
        )
    return tuple(found)


def count_model(config: Mapping[str, Any], seq_len: int) -> CountedModel:
    """Count one forward of a sequence of seq_len tokens.

    An encoder-decoder gets a source and a target of seq_len tokens each.

    config: a Hugging Face config.json. Raises CountError.
    """
    _check_sizes(config, seq_len)
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise messages.COUNT_EXTRA_MISSING(hint=install_hint("count"))
    with _silent_and_offline():
        transformers = import_module("transformers")
        network = _build(transformers, config)
        products, tokens = _run(network, config, seq_len)
        params_total = sum(weight.numel() for weight in network.parameters())
    if params_total > MAX_COUNTED_PARAMETERS:
        raise messages.COUNT_TOO_LARGE(what=f"{params_total:.3g} parameters")
    return CountedModel(
        model=str(config["model_type"]),
        class_name=type(network).__name__,
        seq_len=seq_len,
        tokens=tokens,
        params_total=params_total,
        operators=_operators(products, tokens, _head_of(network)),
        counted_by=_programs(),
        idle=_idle_parts(network, products),
    )


def _programs() -> str:
    return f"torch {version('torch')} and transformers {version('transformers')}"


def _check_sizes(config: Mapping[str, Any], seq_len: int) -> None:
    """Raise CountError for sizes that would need too much time or memory."""
    if not isinstance(config.get("model_type"), str):
        raise messages.COUNT_TYPE_UNKNOWN(model_type=config.get("model_type"), programs="a count")
    if seq_len > MAX_COUNTED_LENGTH:
        raise messages.COUNT_TOO_LARGE(what=f"{seq_len:,} tokens; at most {MAX_COUNTED_LENGTH:,}")
    for key, value in _numbers(config):
        most = MAX_CONFIG_EXPERTS if "expert" in key else MAX_CONFIG_NUMBER
        most = MAX_CONFIG_LAYERS if key.endswith(_LAYER_COUNTS) else most
        if abs(value) > most:
            raise messages.COUNT_TOO_LARGE(what=f"{key} = {value:,}; at most {most:,}")


def _numbers(value: object, key: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _numbers(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item, key)
    elif isinstance(value, int):
        yield key, value


@contextmanager
def _silent_and_offline() -> Iterator[None]:
    """Keep both libraries from printing, and from downloading."""
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
    before = logging.root.manager.disable
    with mock.patch.dict(os.environ, quiet), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def _build(transformers: Any, config: Mapping[str, Any]) -> Any:  # noqa: ANN401 - transformers' own
    """Build the model on the meta device. Raises CountError."""
    kind = str(config["model_type"])
    if kind not in transformers.CONFIG_MAPPING:
        raise messages.COUNT_TYPE_UNKNOWN(model_type=kind, programs=_programs())
    torch = import_module("torch")
    try:
        parsed = transformers.AutoConfig.for_model(**_safe(config))
        build = _builder(transformers, config, parsed)
        with torch.device("meta"):
            try:
                network = build(experts_implementation="batched_mm")
            except (ValueError, TypeError, AttributeError):  # no experts to choose a kernel for
                network = build()
    except Exception as error:
        raise _impossible(kind, error) from error
    network.eval()
    return network


def _safe(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a config without keys that name code or files.

    Infinite numbers become floats.
    """
    if isinstance(value, list):
        return [_safe(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"__float__"}:
        return float(value["__float__"])
    return {
        key: _safe(item)
        for key, item in value.items()
        if key not in _IGNORED_KEYS and not key.endswith(_IGNORED_ENDINGS)
    }


def _builder(transformers: Any, config: Mapping[str, Any], parsed: Any) -> Any:  # noqa: ANN401
    """Return the function that builds a model.

    Its class is that of `architectures`, else of the kind of model.
    """
    for name in config.get("architectures") or ():
        model_class: Any = getattr(transformers, str(name), None)
        if getattr(model_class, "config_class", None) is type(parsed):
            return lambda **options: model_class._from_config(  # noqa: SLF001
                parsed, attn_implementation="eager", **options
            )
    for name in _CLASSES.get(other_kind(config), _DECODER_CLASSES):
        auto = getattr(transformers, name, None)
        if auto is not None and type(parsed) in auto._model_mapping:  # noqa: SLF001
            return lambda **options: auto.from_config(
                parsed, attn_implementation="eager", trust_remote_code=False, **options
            )
    raise messages.COUNT_IMPOSSIBLE(
        model_type=config["model_type"], programs=_programs(), why="it has no language model"
    )


def _impossible(kind: object, error: Exception) -> messages.CountError:
    if isinstance(error, messages.CountError):
        return error
    why = " ".join(str(error).split())[:200] or type(error).__name__
    return messages.COUNT_IMPOSSIBLE(model_type=kind, programs=_programs(), why=why)


# --- one forward ----------------------------------------------------------------------------


def _run(network: Any, config: Mapping[str, Any], seq_len: int) -> tuple[list[Product], int]:  # noqa: ANN401
    """Return the products of one forward, and its tokens. Raises CountError.

    Some models refuse to run without an attention mask, others with one of unknown values.
    """
    torch = import_module("torch")
    ids = torch.zeros(1, seq_len, dtype=torch.long, device="meta")
    inputs = {"input_ids": ids}
    two_sided = bool(getattr(network.config, "is_encoder_decoder", False))
    if two_sided:
        inputs["decoder_input_ids"] = ids
    try:
        try:
            products = _forward(network, inputs)
        except RuntimeError:
            products = _forward(network, inputs | {"attention_mask": torch.ones_like(ids)})
    except Exception as error:
        raise _impossible(config["model_type"], error) from error
    return products, seq_len * (2 if two_sided else 1)


def _forward(network: Any, inputs: Mapping[str, Any]) -> list[Product]:  # noqa: ANN401
    torch, counters = import_module("torch"), import_module("torch.utils.flop_counter")
    counter = counters.FlopCounterMode(display=False)
    tracer = Tracer(counter, network.parameters())
    with _traced_masks(tracer), counter, torch.no_grad():
        network(**inputs, use_cache=False)
    if sum(product.flops for product in tracer.products) != counter.get_total_flops():
        raise RuntimeError("some products are of no kind that fairmfu knows")
    return tracer.products


@contextmanager
def _traced_masks(tracer: Tracer) -> Iterator[None]:
    """Let transformers describe its masks instead of building them."""
    torch, masks = import_module("torch"), import_module("transformers.masking_utils")
    modes = import_module("torch.utils._python_dispatch")

    def describe(
        batch_size: int,
        q_length: int,
        kv_length: int,
        *,
        dtype: Any = torch.float32,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        with modes._disable_current_modes():  # noqa: SLF001
            mask = _evaluate(masks.sdpa_mask, q_length, kv_length, options)
            size = (batch_size, 1, q_length, kv_length)
            tensor = torch.zeros(size, dtype=dtype, device="meta")
        tracer.traces[tensor] = Trace(mask=mask)
        return tensor

    chunked, known = masks.chunked_causal_mask_function, masks.ALL_MASK_ATTENTION_FUNCTIONS
    unpadded: dict[str, Any] = {
        "find_packed_sequence_indices": lambda _: None,
        "chunked_causal_mask_function": lambda size, padding: chunked(
            size, torch.zeros(len(padding), dtype=torch.int)
        ),
    }
    with (
        mock.patch.dict(known._global_mapping, eager=describe),  # noqa: SLF001
        mock.patch.multiple(masks, **unpadded),
    ):
        yield


def _evaluate(sdpa_mask: Any, queries: int, keys: int, options: Mapping[str, Any]) -> Mask:  # noqa: ANN401
    """Count the pairs of a mask by its function of two positions, some rows at a time.

    A function that reads other tensors cannot be evaluated: then all pairs are an upper bound.
    """
    rows, offset, pairs = max(1, MAX_MASK_PAIRS // keys), int(options.get("q_offset", 0)), 0
    names = ("kv_offset", "mask_function", "local_size", "use_vmap")
    kept = {name: options[name] for name in names if name in options}
    try:
        for start in range(0, queries, rows):
            part = sdpa_mask(
                batch_size=1,
                q_length=min(rows, queries - start),
                kv_length=keys,
                q_offset=offset + start,
                attention_mask=None,
                allow_is_causal_skip=False,
                device="cpu",
                **kept,
            )
            pairs += int(part.sum())
    except (RuntimeError, NotImplementedError):
        return Mask(queries, keys, queries * keys, certain=False)
    return Mask(queries, keys, pairs)


# --- the operators --------------------------------------------------------------------------


def _head_of(network: Any) -> str:  # noqa: ANN401 - transformers' own
    """Return the name of the module that computes the logits."""
    head = network.get_output_embeddings()
    return next((name for name, module in network.named_modules() if module is head), "")


def _operators(products: Sequence[Product], tokens: int, head: str) -> tuple[CountedOperator, ...]:
    """Sum the products by name, in the order of the forward pass."""
    grouped: dict[str, list[Product]] = {}
    for product in products:
        grouped.setdefault(_operator_name(product, head), []).append(product)
    return tuple(
        CountedOperator(
            name=name,
            layers=len({product.module for product in group}),
            forward=sum(product.masked_flops for product in group) / tokens,
            full_attention=sum(product.flops for product in group) / tokens,
            estimate=any(product.estimate for product in group),
        )
        for name, group in grouped.items()
    )


def _operator_name(product: Product, head: str) -> str:
    """Return the name of an operator: the module's last words, without numbers."""
    if product.name != product.module:
        return product.name
    module = product.module.partition(".")[2]
    if head and module == head:
        return "lm_head"
    words = [word for word in module.split(".") if not word.isdigit()]
    return ".".join(words[-2:]) or "other projections"


def _idle_parts(network: Any, products: Iterable[Product]) -> tuple[str, ...]:  # noqa: ANN401
    """Return the parts of the model with matrices that no product used."""
    used = {product.module.partition(".")[2] for product in products}
    parts = [
        name
        for name, module in network.named_modules()
        if name and name.count(".") <= 1 and _has_matrices(module)
    ]
    idle = [name for name in parts if not any(f"{one}.".startswith(f"{name}.") for one in used)]
    return tuple(name for name in idle if not any(name.startswith(f"{one}.") for one in idle))


def _has_matrices(module: Any) -> bool:  # noqa: ANN401 - transformers' own
    embedding = import_module("torch.nn").Embedding
    return any(
        weight.ndim > 1
        for part in module.modules()
        if not isinstance(part, embedding)
        for weight in part.parameters(recurse=False)
    )
