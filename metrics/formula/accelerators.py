"""Dense peaks of accelerators, by the exact name that a framework prints.

A peak is FLOP/s without sparsity, of one device as the framework sees it: one GCD of an MI250X,
one NeuronCore of a Trainium. With FP32 accumulation, which training uses: half the marketing rate
on GeForce cards. `fp32` is the rate of matmuls in full FP32: without tensor cores on NVIDIA's
cards, so a run in FP32 needs the fact whether TF32 was on; by matrix cores on AMD's.

Names match whole, after `normalise_name`; never a part of a name: "A100" is in no way "A1000", nor
"L4" "L40S", nor "H20" "H200". An unknown name is an error, never a fallback.

Sources have short names in the table, which SOURCE_REFERENCES spells out.

A user adds devices, or replaces rows of the table, by a TOML file (`load_overlay`):

    [[accelerator]]
    name = "ACME X1"
    unit = "GPU"
    source = "data sheet of 2026-03, dense"
    names = ["X1-80GB"]
    peaks = { fp32 = 60e12, bf16 = 800e12, fp8 = 1600e12 }

Errors:

    UnknownAcceleratorError (LookupError)
    OverlayError (ValueError)
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, Literal, cast, get_args

from fairmfu.ingest.core.errors import FairmfuError

from .flops import Dtype

__all__ = [
    "Accelerator",
    "OverlayError",
    "UnknownAcceleratorError",
    "accelerator_names",
    "all_accelerators",
    "buildable_accelerators",
    "find_accelerator",
    "load_overlay",
    "normalise_name",
    "peak_source",
]

Confidence = Literal["high", "medium", "low"]
"""high: data sheet or clock times units; medium: one source; low: sources differ or no source."""


SOURCE_REFERENCES: Final[Mapping[str, str]] = {
    "stas": "github.com/stas00/ml-engineering@744d01e1 compute/accelerator/README.md, TFLOPS",
    "lightning": "github.com/Lightning-AI/pytorch-lightning fabric/utilities/throughput.py, data "
    "sheets cited there",
    "titan": "github.com/pytorch/torchtitan torchtitan/tools/utils.py, get_peak_flops",
    "trtllm": "github.com/NVIDIA/TensorRT-LLM@a17b14f6 tensorrt_llm/auto_parallel/cluster_info.py, "
    "NVIDIA's data sheets cited there; only whole TFLOP/s, and its H200 is sparse",
    "CDNA 2": "AMD CDNA 2 architecture white paper, 2022, table 1",
    "CDNA 3": "Introducing AMD CDNA 3 Architecture, white paper, 2025, its table of MI300A, MI300X "
    "and MI325X, and endnote MI325-019",
    "RTX PRO paper": "NVIDIA RTX Blackwell PRO GPU Architecture, white paper v1.1, dense/sparse",
}
"""Short names of sources in the table, and what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One kind of device.

    unit: what one device is: GPU, GCD, chip, core, …
    peaks: dense FLOP/s of one unit by number format; a format that is absent has no known peak
    source, confidence: where the numbers are from, and how sure they are
    note: what else has to be known about them
    names: names that `find_accelerator` takes for it, as printed or typed
    """

    name: str
    unit: str
    peaks: Mapping[Dtype, float]
    source: str
    confidence: Confidence
    note: str = ""
    names: tuple[str, ...] = ()


class UnknownAcceleratorError(FairmfuError, LookupError):
    """No accelerator has this name.

    name: as it was given
    nearest: known names that look like it, nearest first; none of them was taken
    """

    def __init__(self, name: str, nearest: list[str]) -> None:
        self.name = name
        self.nearest = nearest
        hint = f" Nearest known: {', '.join(nearest)}." if nearest else ""
        super().__init__(
            f"No peak is known for the accelerator {name!r}, and none is guessed.{hint}"
            " Give its dense FLOP/s, peak_flops=… (e.g. 989.4e12), or the name of a known one, as"
            " `fairmfu accelerators` lists them, accelerator=…"
        )


class OverlayError(FairmfuError, ValueError):
    """A file of a user's accelerators that cannot be taken; says which row and key."""


def find_accelerator(name: str, overlay: Sequence[Accelerator] = ()) -> Accelerator:
    """The accelerator that a framework prints, or a person types, as `name`.

    overlay: a user's rows (`load_overlay`), which go before the table's

    Raises UnknownAcceleratorError.
    """
    wanted = normalise_name(name)
    overlaid = dict(_named(overlay))
    if wanted in overlaid:
        return overlaid[wanted]
    rows = _rows_by_name()
    if wanted in rows:
        return _built(rows[wanted])
    names = {key: row.keywords["name"] for key, row in rows.items()}
    names |= {key: accelerator.name for key, accelerator in overlaid.items()}
    near = difflib.get_close_matches(wanted, names, n=3)
    raise UnknownAcceleratorError(name, list(dict.fromkeys(names[key] for key in near)))


def peak_source(accelerator: Accelerator, dtypes: Iterable[Dtype]) -> str | None:
    """In words: the row, its peaks of these number formats, how sure they are and where from.

    `NVIDIA H20: dense bf16 148 TFLOP/s per GPU; confidence medium; source: …`. None where a format
    has no peak.
    """
    peaks = [(name, accelerator.peaks.get(name)) for name in dict.fromkeys(dtypes)]
    said = [f"{name} {peak / 1e12:,g}" for name, peak in peaks if peak is not None]
    if not said or len(said) < len(peaks):
        return None
    return (
        f"{accelerator.name}: dense {' and '.join(said)} TFLOP/s per {accelerator.unit}; "
        f"confidence {accelerator.confidence}; source: {_spelt_out(accelerator)}"
    )


def _spelt_out(accelerator: Accelerator) -> str:
    """The source of a row; a user's own words stay as they are."""
    if accelerator not in buildable_accelerators():
        return accelerator.source
    short = re.compile(rf"\b({'|'.join(SOURCE_REFERENCES)})\b")
    return short.sub(lambda name: f"{name[0]} ({SOURCE_REFERENCES[name[0]]})", accelerator.source)


def all_accelerators() -> tuple[Accelerator, ...]:
    """Every accelerator, in the order of the support table."""
    return tuple(_built(row) for row in _TABLE)


def accelerator_names() -> tuple[str, ...]:
    """Names of all accelerators in the order of the support table; builds no row."""
    return tuple(row.keywords["name"] for row in _TABLE)


@cache
def buildable_accelerators() -> tuple[Accelerator, ...]:
    """Every accelerator whose row can be built: a bad row has no peak that a run could use."""
    built = []
    for row in _TABLE:
        with suppress(Exception):
            built.append(_built(row))
    return tuple(built)


_VENDORS = re.compile(r"\b(?:nvidia|amd|intel|huawei|google|aws)\b")


def normalise_name(name: str) -> str:
    """Lower case, without vendor, (R), (TM) and blanks; nothing more is folded."""
    bare = re.sub(r"\((?:r|tm)\)|[®™]", " ", name.lower())
    return re.sub(r"\s+", "", _VENDORS.sub(" ", bare))


_DTYPES: tuple[Dtype, ...] = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")


def _peaks(**teraflops: float) -> dict[Dtype, float]:
    """FLOP/s by number format, from TFLOP/s as the data sheets give them."""
    return {d: float(round(teraflops[d] * 1e12)) for d in _DTYPES if d in teraflops}


def _sixteen(rate: float, **others: float) -> dict[Dtype, float]:
    """Peaks of a device whose FP16 and BF16 rates are equal."""
    return _peaks(fp16=rate, bf16=rate, **others)


_H100 = _sixteen(989.4, fp32=67, tf32=494.5, fp8=1978.9)
_A100 = _sixteen(312, fp32=19.5, tf32=156)

_TABLE: tuple[partial[Accelerator], ...] = (
    partial(Accelerator,
        name="NVIDIA A100",
        unit="GPU",
        peaks=_A100,
        source="stas, note 4",
        confidence="high",
        note="SXM and PCIe, 40 and 80 GB; 624 on the data sheet is sparse. PG509-210 is its board: "
        "PCI device 20B2, that of A100-SXM4-80GB.",
        names=(
            "A100", "A100-SXM4-40GB", "A100-SXM4-80GB", "A100-SXM-80GB", "A100-PCIE-40GB",
            "A100-PCIE-80GB", "A100 80GB PCIe", "A100-SXM", "A100-PCIe", "A100-80GB", "A100-40GB",
            "PG509-210",
        ),
    ),
    partial(Accelerator,
        name="NVIDIA A800",
        unit="GPU",
        peaks=_A100,
        source="A100's: the same compute, NVLink cut; verl, MindSpeed, LLaMA-Factory",
        confidence="medium",
        names=("A800", "A800-SXM4-40GB", "A800-SXM4-80GB", "A800 80GB PCIe", "A800-80GB"),
    ),
    partial(Accelerator,
        name="NVIDIA H100 SXM",
        unit="GPU",
        peaks=_H100,
        source="stas: 132 SM x 4 tensor cores x 512 FMA x 2 x 1.83 GHz = 989.43",
        confidence="high",
        note="1979 bf16 and 3958 fp8 are sparse. Meta's HBM2e board (95 GiB) is this one too.",
        names=(
            "H100", "H100 80GB HBM3", "H100 SXM", "H100 SXM5", "H100-SXM5-80GB", "H100-SXM",
            "H100 SXM5 80GB", "H100-80GB",
        ),
    ),
    partial(Accelerator,
        name="NVIDIA H100 PCIe",
        unit="GPU",
        peaks=_sixteen(756.5, fp32=51.2, tf32=378, fp8=1513),
        source="stas",
        confidence="high",
        note="1513 bf16 is sparse.",
        names=("H100 PCIe", "H100-PCIe", "H100-PCIE-80GB"),
    ),
    partial(Accelerator,
        name="NVIDIA H100 NVL",
        unit="GPU",
        peaks=_sixteen(835.5, fp32=60, tf32=417.5, fp8=1671),
        source="lightning; OLMo-core",
        confidence="medium",
        note="Older sheets give the pair; 1671 bf16 is sparse.",
        names=("H100 NVL", "H100-NVL"),
    ),
    partial(Accelerator,
        name="NVIDIA H800 SXM",
        unit="GPU",
        peaks=_H100,
        source="DeepSeek, arXiv:2505.09343 table 4 (432 TFLOP/s = 43.7 %); verl, LLaMA-Factory",
        confidence="medium",
        names=("H800", "H800 SXM", "H800 SXM5", "H800-SXM"),
    ),
    partial(Accelerator,
        name="NVIDIA H20",
        unit="GPU",
        peaks=_sixteen(148, fp32=44, tf32=74, fp8=296),
        source="titan, verl; 78 SM",
        confidence="medium",
        note="296 fp8 is dense.",
        names=("H20",),
    ),
    partial(Accelerator,
        name="NVIDIA H200 SXM",
        unit="GPU",
        peaks=_H100,
        source="stas, note 16",
        confidence="high",
        names=("H200", "H200 SXM", "H200-SXM"),
    ),
    partial(Accelerator,
        name="NVIDIA H200 NVL",
        unit="GPU",
        peaks=_sixteen(835.5, fp32=60, tf32=418, fp8=1671),
        source="lightning has 840, nanochat 836",
        confidence="low",
        names=("H200 NVL", "H200-NVL"),
    ),
    partial(Accelerator,
        name="NVIDIA GH200",
        unit="GPU",
        peaks=_H100,
        source="stas, note 14",
        confidence="high",
        note="Per H100 GPU.",
        names=("GH200", "GH200 480GB", "GH200 120GB", "GH200 144G HBM3e"),
    ),
    partial(Accelerator,
        name="NVIDIA B200",
        unit="GPU",
        peaks=_sixteen(2250, fp32=80, tf32=1125, fp8=4500, fp4=9000),
        source="stas, note 20",
        confidence="high",
        note="4500 bf16, 9000 fp8, 18000 fp4 are sparse.",
        names=("B200", "B200 SXM"),
    ),
    partial(Accelerator,
        name="NVIDIA GB200",
        unit="GPU",
        peaks=_sixteen(2500, fp32=80, tf32=1250, fp8=5000, fp4=10000),
        source="stas, note 23",
        confidence="medium",
        note="Per B200 GPU; code bases use five values, 2250 to 2565. 5000 bf16 is sparse.",
        names=("GB200",),
    ),
    partial(Accelerator,
        name="NVIDIA B300",
        unit="GPU",
        peaks=_sixteen(2250, fp32=80, tf32=1125, fp8=4500),
        source="stas, note 21",
        confidence="medium",
        note="FP4: 13500 to 15000 are in use, so none is given.",
        names=("B300", "B300 SXM6 AC", "B300 SXM"),
    ),
    partial(Accelerator,
        name="NVIDIA GB300",
        unit="GPU",
        peaks=_sixteen(2500, fp32=80, tf32=1250, fp8=5000, fp4=15000),
        source="stas, note 24",
        confidence="medium",
        note="Per B300 GPU.",
        names=("GB300",),
    ),
    partial(Accelerator,
        name="NVIDIA L40S",
        unit="GPU",
        peaks=_sixteen(362, fp32=91.6, tf32=183, fp8=733),
        source="stas, note 6",
        confidence="high",
        note="733 fp16 on the sheet is sparse.",
        names=("L40S",),
    ),
    partial(Accelerator,
        name="NVIDIA L40",
        unit="GPU",
        peaks=_sixteen(181, fp32=90.5, tf32=90.5, fp8=362),
        source="lightning, verl",
        confidence="high",
        names=("L40",),
    ),
    partial(Accelerator,
        name="NVIDIA L20",
        unit="GPU",
        peaks=_sixteen(119.5, fp32=59.8, tf32=59.8, fp8=239),
        source="trtllm (119, 238), NVIDIA's slide of H20, L20 and L2; 92 of the L40's 142 SM",
        confidence="medium",
        note="239 bf16 is sparse.",
        names=("L20",),
    ),
    partial(Accelerator,
        name="NVIDIA L4",
        unit="GPU",
        peaks=_sixteen(121, fp32=30.3, tf32=60, fp8=242),
        source="lightning",
        confidence="high",
        note="242 bf16, 485 fp8 on the sheet are sparse.",
        names=("L4",),
    ),
    partial(Accelerator,
        name="NVIDIA A10",
        unit="GPU",
        peaks=_sixteen(125, fp32=31.2, tf32=62.5),
        source="data sheet, by composer and levanter",
        confidence="high",
        note="250 is sparse.",
        names=("A10",),
    ),
    partial(Accelerator,
        name="NVIDIA A30",
        unit="GPU",
        peaks=_sixteen(165, fp32=10.3, tf32=82),
        source="trtllm, A30 data sheet; 56 SM x 4 tensor cores x 256 FMA x 2 x 1.44 GHz = 165.2",
        confidence="high",
        note="330 bf16 and 165 tf32 are sparse.",
        names=("A30",),
    ),
    partial(Accelerator,
        name="NVIDIA A10G",
        unit="GPU",
        peaks=_sixteen(70, fp32=31.5, tf32=35),
        source="trtllm; baseten.co/blog/nvidia-a10-vs-a10g-for-ml-model-inference: not the chip of "
        "the A10",
        confidence="medium",
        note="AWS g5. 140 is sparse.",
        names=("A10G",),
    ),
    partial(Accelerator,
        name="NVIDIA V100 SXM",
        unit="GPU",
        peaks=_peaks(fp32=15.7, fp16=125),
        source="data sheet, by composer and lightning",
        confidence="high",
        note="No BF16 tensor cores: a bf16 run emulates.",
        names=(
            "V100", "V100 SXM2", "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB",
            "V100-SXM2-16GB", "V100-SXM2-32GB",
        ),
    ),
    partial(Accelerator,
        name="NVIDIA V100 PCIe",
        unit="GPU",
        peaks=_peaks(fp32=14, fp16=112),
        source="V100 data sheet",
        confidence="high",
        note="No BF16 tensor cores.",
        names=("V100 PCIe", "Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"),
    ),
    partial(Accelerator,
        name="NVIDIA V100S PCIe",
        unit="GPU",
        peaks=_peaks(fp32=16.4, fp16=130),
        source="V100 data sheet",
        confidence="high",
        note="No BF16 tensor cores.",
        names=("V100S", "Tesla V100S-PCIE-32GB"),
    ),
    partial(Accelerator,
        name="NVIDIA T4",
        unit="GPU",
        peaks=_peaks(fp32=8.1, fp16=65),
        source="T4 data sheet",
        confidence="high",
        note="No BF16 tensor cores.",
        names=("T4", "Tesla T4"),
    ),
    partial(Accelerator,
        name="NVIDIA A40",
        unit="GPU",
        peaks=_sixteen(149.7, fp32=37.4, tf32=74.8),
        source="lightning, levanter, verl",
        confidence="high",
        note="299.4 is sparse.",
        names=("A40",),
    ),
    partial(Accelerator,
        name="NVIDIA RTX A6000",
        unit="GPU",
        peaks=_sixteen(154.85, fp32=38.7, tf32=77.4),
        source="titan, PR 2884",
        confidence="high",
        note="Ampere; another chip than RTX 6000 Ada. 309.7 fp16 is sparse.",
        names=("RTX A6000",),
    ),
    partial(Accelerator,
        name="NVIDIA RTX 6000 Ada",
        unit="GPU",
        peaks=_sixteen(364.2, fp32=91.1, tf32=182.1, fp8=728.5),
        source="RTX 6000 Ada data sheet, unverified",
        confidence="low",
        note="1457 AI TOPS is sparse fp8.",
        names=("RTX 6000 Ada Generation", "RTX 6000 Ada"),
    ),
    partial(Accelerator,
        name="NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        unit="GPU",
        peaks=_sixteen(503.8, fp32=126, tf32=251.9, fp8=1007.6, fp4=2015.2),
        source="RTX PRO paper; 188 SM x 4 tensor cores x 128 FMA x 2 x 2.617 GHz",
        confidence="high",
        note="As fast with FP32 accumulation as with FP16; 1007.6 bf16, 4000 AI TOPS are sparse.",
        names=("RTX PRO 6000 Blackwell Workstation Edition",),
    ),
    partial(Accelerator,
        name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        unit="GPU",
        peaks=_sixteen(438.9, fp32=109.7, tf32=219.4, fp8=877.8, fp4=1755.5),
        source="data sheet: 3511 AI TOPS, fp4 sparse, of which bf16 is an eighth: RTX PRO paper",
        confidence="medium",
        names=("RTX PRO 6000 Blackwell Max-Q Workstation Edition",),
    ),
    partial(Accelerator,
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        unit="GPU",
        peaks=_sixteen(467.8, fp32=116.9, tf32=233.9, fp8=935.6, fp4=1871.2),
        source="product brief SP-12355: 188 SM x 512 FMA x 2 x 2.43 GHz; its page has tf32 234",
        confidence="medium",
        note="1 PF bf16, 2 PF fp8, 4 PF fp4 on its page are sparse and rounded up.",
        names=("RTX PRO 6000 Blackwell Server Edition",),
    ),
    partial(Accelerator,
        name="NVIDIA RTX 3090",
        unit="GPU",
        peaks=_sixteen(71.2, fp32=35.6, tf32=35.6),
        source="nanochat",
        confidence="medium",
        note="FP32 accumulation; 142 with FP16 accumulation, 285 with sparsity.",
        names=("GeForce RTX 3090", "RTX 3090"),
    ),
    partial(Accelerator,
        name="NVIDIA RTX 3090 Ti",
        unit="GPU",
        peaks=_sixteen(80, fp32=40, tf32=40),
        source="84 SM x 256 FMA x 2 x 1.86 GHz, the rates of the GA102 white paper",
        confidence="medium",
        note="FP32 accumulation; 160 with FP16 accumulation, 320 with sparsity.",
        names=("GeForce RTX 3090 Ti", "RTX 3090 Ti"),
    ),
    partial(Accelerator,
        name="NVIDIA RTX 4090",
        unit="GPU",
        peaks=_sixteen(165.2, fp32=82.6, tf32=82.6, fp8=330.3),
        source="nanochat; waredb.com, hmc-tech.com",
        confidence="high",
        note="FP32 accumulation; 330.3 bf16 is sparse.",
        names=("GeForce RTX 4090", "RTX 4090"),
    ),
    partial(Accelerator,
        name="NVIDIA RTX 5090",
        unit="GPU",
        peaks=_sixteen(209.5, fp32=104.8, tf32=104.8, fp8=419, fp4=1676),
        source="pytorch/ao roofline_utils.py, citing the RTX Blackwell white paper",
        confidence="high",
        note="FP32 accumulation; 838 fp16 and 3352 AI TOPS are sparse.",
        names=("GeForce RTX 5090", "RTX 5090"),
    ),
    partial(Accelerator,
        name="AMD MI210",
        unit="GPU",
        peaks=_sixteen(181, fp32=45.3),
        source="CDNA 2; 104 CU x 1024 FLOP x 1.7 GHz",
        confidence="high",
        note="One GCD; 22.6 fp32 is of vectors.",
        names=("Instinct MI210", "MI210"),
    ),
    partial(Accelerator,
        name="AMD MI250 GCD",
        unit="GCD",
        peaks=_sixteen(181, fp32=45.25),
        source="CDNA 2; half of the OAM module, 362.1",
        confidence="high",
        note="Frameworks see each of the two GCDs as a device. MI250X/MI250, as a kind of board is "
        "named, is either: say which.",
        names=("Instinct MI250", "MI250", "MI250 GCD"),
    ),
    partial(Accelerator,
        name="AMD MI250X GCD",
        unit="GCD",
        peaks=_sixteen(191.5, fp32=47.85),
        source="titan; CDNA 2; half of the OAM module",
        confidence="high",
        note="Frameworks see each of the two GCDs as a device; 23.95 fp32 is of vectors.",
        names=("Instinct MI250X", "MI250X", "MI250X GCD"),
    ),
    partial(Accelerator,
        name="AMD MI250X OAM",
        unit="OAM module, 2 GCDs",
        peaks=_sixteen(383, fp32=95.7),
        source="stas, note 7: 1.7 GHz x 128 x 2 x 880; fp32 a quarter (256 a clock of 220 CUs)",
        confidence="high",
        note="Only where a whole module is meant: gpus counts modules then.",
        names=("MI250X OAM",),
    ),
    partial(Accelerator,
        name="AMD MI300A",
        unit="APU",
        peaks=_sixteen(980.6, fp32=122.6, tf32=490.3, fp8=1961.2),
        source="CDNA 3; 2.1 GHz x 2048 FLOP x 228 CU",
        confidence="high",
        note="1961.2 bf16, 3922.3 fp8 are sparse.",
        names=("Instinct MI300A", "MI300A"),
    ),
    partial(Accelerator,
        name="AMD MI300X",
        unit="GPU",
        peaks=_sixteen(1307.4, fp32=163.4, tf32=653.7, fp8=2614.9),
        source="stas: 2.1 GHz x 256 x 2 x 1216; CDNA 3",
        confidence="high",
        note="2614.9 bf16, 5229.8 fp8 are sparse; verl's 1336 matches no derivation. VF: as the "
        "guest of a virtual machine sees it.",
        names=("Instinct MI300X", "MI300X", "Instinct MI300X OAM", "Instinct MI300X VF"),
    ),
    partial(Accelerator,
        name="AMD MI325X",
        unit="GPU",
        peaks=_sixteen(1307.4, fp32=163.4, tf32=653.7, fp8=2614.9),
        source="stas, note 18; CDNA 3",
        confidence="high",
        names=("Instinct MI325X", "MI325X", "Instinct MI325X VF"),
    ),
    partial(Accelerator,
        name="AMD MI350X",
        unit="GPU",
        peaks=_sixteen(2300, fp32=144.2, fp8=4600, fp4=9200),
        source="AMD-AGI/Primus peak_flops_patches.py; titan, PR 4779",
        confidence="medium",
        note="2.2 GHz x 512 x 2 x 1024 = 2306.9.",
        names=("Instinct MI350X", "MI350X", "Instinct MI350X VF"),
    ),
    partial(Accelerator,
        name="AMD MI355X",
        unit="GPU",
        peaks=_sixteen(2500, fp32=157.3, fp8=5033, fp4=10066),
        source="stas, note 22",
        confidence="high",
        note="AMD prints 2.5 PF; 2.4 GHz x 512 x 2 x 1024 = 2516.6. 5 PF fp16 is sparse.",
        names=("Instinct MI355X", "MI355X", "Instinct MI355X VF"),
    ),
    partial(Accelerator,
        name="Intel Gaudi 2",
        unit="card",
        peaks=_sixteen(432, fp8=865),
        source="stas: 1650 MHz x 65536 x 2 x 2",
        confidence="high",
        names=("Gaudi2", "Gaudi 2"),
    ),
    partial(Accelerator,
        name="Intel Gaudi 3",
        unit="card",
        peaks=_peaks(fp32=229, tf32=459, fp16=459, bf16=1835, fp8=1835),
        source="stas, note 19; Intel's white paper at 1750 MHz",
        confidence="medium",
        note="1677 at the 1600 MHz that ship: say which by --set peak_flops=….",
        names=("Gaudi3", "Gaudi 3"),
    ),
    partial(Accelerator,
        name="Intel Data Center GPU Max 1550",
        unit="stack",
        peaks=_sixteen(340.8),
        source="titan: 512 x 512 compute units x 1.3 GHz",
        confidence="low",
        note="298.2 with the 448 units of some systems; the card's sheet says 839 for two stacks.",
        names=("Data Center GPU Max 1550",),
    ),
    partial(Accelerator,
        name="Huawei Ascend 910A",
        unit="NPU",
        peaks=_peaks(fp16=256),
        source="32 x 4096 x 2 x 1 GHz",
        confidence="high",
        note="No BF16.",
        names=("Ascend910A",),
    ),
    partial(Accelerator,
        name="Huawei Ascend 910B1",
        unit="NPU",
        peaks=_sixteen(376),
        source="none verified; 376 to 400 are in use",
        confidence="low",
        names=("Ascend910B1",),
    ),
    partial(Accelerator,
        name="Huawei Ascend 910B2",
        unit="NPU",
        peaks=_sixteen(353.9),
        source="24 cores x 8192 x 1.8 GHz; verl, VeOmni, MindSpeed have 354",
        confidence="medium",
        names=("Ascend910B2",),
    ),
    partial(Accelerator,
        name="Huawei Ascend 910B3",
        unit="NPU",
        peaks=_sixteen(313),
        source="FlagOpen/FlagPerf training/ascend, flops_16bit",
        confidence="medium",
        names=("Ascend910B3",),
    ),
    partial(Accelerator,
        name="Huawei Ascend 910B4",
        unit="NPU",
        peaks=_sixteen(280),
        source="ai.gitee.com/docs/compute/clusters_gpu/ascend_gpu",
        confidence="medium",
        names=("Ascend910B4",),
    ),
    partial(Accelerator,
        name="Huawei Ascend 910C die",
        unit="die",
        peaks=_sixteen(376),
        source="none verified; 752 to 800 per package of two dies are in use",
        confidence="low",
        note="torch_npu shows each die as a device.",
        names=("Ascend910_9392", "Ascend910_9391", "Ascend910_9382", "Ascend910_9381"),
    ),
    partial(Accelerator,
        name="Huawei Ascend 950DT",
        unit="NPU",
        peaks=_sixteen(486, fp8=919, fp4=1783),
        source="stas, note 28",
        confidence="medium",
        note="fp8 is HiF8, which is not OCP's.",
        names=("Ascend950DT",),
    ),
    partial(Accelerator,
        name="Google TPU v3 core",
        unit="core",
        peaks=_peaks(bf16=61.5),
        source="levanter; PaLM, arXiv:2204.02311, table 3 uses 123 per chip",
        confidence="high",
        note="JAX shows each of a chip's two cores as a device.",
        names=("TPU v3",),
    ),
    partial(Accelerator,
        name="Google TPU v3 chip",
        unit="chip, 2 cores",
        peaks=_peaks(bf16=123),
        source="PaLM, arXiv:2204.02311, table 3",
        confidence="high",
        note="Only where whole chips are counted.",
    ),
    partial(Accelerator,
        name="Google TPU v4",
        unit="chip",
        peaks=_peaks(bf16=275),
        source="stas, note 2; PaLM, arXiv:2204.02311",
        confidence="high",
        names=("TPU v4",),
    ),
    partial(Accelerator,
        name="Google TPU v5e",
        unit="chip",
        peaks=_peaks(bf16=197),
        source="stas, note 1",
        confidence="high",
        names=("TPU v5e", "TPU v5 lite"),
    ),
    partial(Accelerator,
        name="Google TPU v5p",
        unit="chip",
        peaks=_peaks(bf16=459),
        source="stas, note 10",
        confidence="high",
        names=("TPU v5p", "TPU v5"),
    ),
    partial(Accelerator,
        name="Google TPU v6e",
        unit="chip",
        peaks=_peaks(bf16=918, fp8=918),
        source="stas, note 13",
        confidence="high",
        note="Trillium; fp8 at the rate of bf16.",
        names=("TPU v6e", "TPU v6 lite"),
    ),
    partial(Accelerator,
        name="Google TPU7x core",
        unit="TensorCore",
        peaks=_sixteen(1153.5, fp8=2307),
        source="titan; half of the chip",
        confidence="high",
        note="Ironwood; frameworks see each of a chip's two TensorCores as a device.",
        names=("TPU7x",),
    ),
    partial(Accelerator,
        name="Google TPU7x chip",
        unit="chip, 2 TensorCores",
        peaks=_sixteen(2307, fp8=4614),
        source="stas, note 25",
        confidence="high",
        note="Only where whole chips are counted.",
    ),
    partial(Accelerator,
        name="AWS Trainium1 core",
        unit="NeuronCore-v2",
        peaks=_sixteen(95, fp32=47.5 / 2, tf32=95, fp8=95),
        source="AWS Neuron documentation, trainium.html: half of the chip; torchtitan has 90",
        confidence="high",
        note="Frameworks see each of a chip's two cores as a device.",
    ),
    partial(Accelerator,
        name="AWS Trainium1 chip",
        unit="chip, 2 NeuronCores",
        peaks=_sixteen(190, fp32=47.5, tf32=190, fp8=190),
        source="AWS Neuron documentation, trainium.html",
        confidence="high",
        note="Only where whole chips are counted.",
    ),
    partial(Accelerator,
        name="AWS Trainium2 logical core",
        unit="2 of 8 NeuronCore-v3",
        peaks=_sixteen(667 / 4, fp32=181 / 4, tf32=667 / 4, fp8=1299 / 4),
        source="AWS Neuron documentation, trainium2.rst: a quarter of the chip; torchtitan has 158",
        confidence="high",
        note="LNC=2, the default: four devices per chip. 2563 per chip is sparse.",
    ),
    partial(Accelerator,
        name="AWS Trainium2 chip",
        unit="chip, 8 NeuronCores",
        peaks=_sixteen(667, fp32=181, tf32=667, fp8=1299),
        source="AWS Neuron documentation, trainium2.rst",
        confidence="high",
        note="Only where whole chips are counted.",
    ),
    partial(Accelerator,
        name="AWS Trainium3 logical core",
        unit="2 of 8 NeuronCore-v4",
        peaks=_sixteen(671 / 4, fp32=183 / 4, tf32=671 / 4, fp8=2517 / 4, fp4=2517 / 4),
        source="AWS Neuron documentation, trainium3.rst: a quarter of the chip",
        confidence="high",
        note="LNC=2, the default: four devices per chip.",
    ),
    partial(Accelerator,
        name="AWS Trainium3 chip",
        unit="chip, 8 NeuronCores",
        peaks=_sixteen(671, fp32=183, tf32=671, fp8=2517, fp4=2517),
        source="AWS Neuron documentation, trainium3.rst",
        confidence="high",
        note="Only where whole chips are counted. 2517 bf16 is sparse.",
    ),
)  # fmt: skip


def _named(rows: Sequence[Accelerator]) -> Iterator[tuple[str, Accelerator]]:
    for accelerator in rows:
        for name in (accelerator.name, *accelerator.names):
            yield normalise_name(name), accelerator


@cache
def _rows_by_name() -> Mapping[str, partial[Accelerator]]:
    """Index the table's rows by normalised name; builds no row."""
    return {
        normalise_name(name): row
        for row in _TABLE
        for name in (row.keywords["name"], *row.keywords.get("names", ()))
    }


@cache
def _built(row: partial[Accelerator]) -> Accelerator:
    """Build one row, once."""
    return row()


# --- a user's own rows ----------------------------------------------------------------------

_KEYS = ("name", "unit", "peaks", "source", "confidence", "note", "names")
_LEAST_PEAK = 1e9
"""No accelerator is slower; a smaller number is TFLOP/s by mistake."""
_MOST_PEAK = 1e24
"""Nor is one as fast."""


def load_overlay(text: str) -> tuple[Accelerator, ...]:
    """A user's accelerators from the text of a TOML file; see the head of this module.

    Required: name, unit, peaks (dense FLOP/s by number format), source. Optional: names, note, and
    confidence, which is `medium` (one source) where the file does not say.
    Raises OverlayError for what is no TOML, unknown, missing, malformed, or named twice.
    """
    try:
        document = tomllib.loads(text)
        repr(document)  # raises on a number so long that no message could hold it
    except (ValueError, RecursionError) as error:
        raise OverlayError(f"The accelerators file is no TOML: {error}.") from None
    _only(document, ("accelerator",), "the accelerators file")
    rows = document.get("accelerator")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise OverlayError("The accelerators file has no [[accelerator]], one for each device.")
    overlay = tuple(_overlay_row(row, number) for number, row in enumerate(rows, start=1))
    seen: dict[str, Accelerator] = {}
    for name, row in _named(overlay):
        if seen.setdefault(name, row) is not row:
            raise OverlayError(f"{row.name} and {seen[name].name} have the name {name!r} both.")
    return overlay


def _overlay_row(row: Mapping[str, object], number: int) -> Accelerator:
    where = f"[[accelerator]] {row.get('name') or f'number {number}'}"
    _only(row, _KEYS, where)
    confidence = row.get("confidence", "medium")
    if confidence not in get_args(Confidence):
        raise OverlayError(f"{where}: confidence is {confidence!r}: high, medium or low.")
    names = row.get("names", [])
    if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
        raise OverlayError(f"{where}: names is {names!r}, not a list of names.")
    return Accelerator(
        name=_text(row, "name", where),
        unit=_text(row, "unit", where),
        peaks=_overlay_peaks(row.get("peaks"), where),
        source=_text(row, "source", where),
        confidence=cast("Confidence", confidence),
        note=_text(row, "note", where) if "note" in row else "",
        names=tuple(names),
    )


def _overlay_peaks(peaks: object, where: str) -> Mapping[Dtype, float]:
    if not isinstance(peaks, dict) or not peaks:
        raise OverlayError(f"{where} needs peaks, as {{ bf16 = 989.4e12 }}: dense FLOP/s.")
    _only(peaks, _DTYPES, f"peaks of {where}")
    for dtype, peak in peaks.items():
        if isinstance(peak, bool) or not isinstance(peak, int | float) or peak != peak:  # noqa: PLR0124
            raise OverlayError(f"{where}: the peak of {dtype} is {peak!r}, not a number.")
        said = float("inf") if peak > _MOST_PEAK else peak  # not all whole numbers are a float
        if not _LEAST_PEAK <= peak <= _MOST_PEAK:
            raise OverlayError(
                f"{where}: the peak of {dtype} is {said:g} FLOP/s, which no accelerator has; peaks"
                " are in FLOP/s, so 989.4 TFLOP/s is 989.4e12."
            )
    return {dtype: float(peaks[dtype]) for dtype in _DTYPES if dtype in peaks}


def _text(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        said = "is missing" if value is None else f"is {value!r}, not a text"
        raise OverlayError(f"{where}: {key!r} {said}.")
    return value


def _only(values: Mapping[str, object], known: Sequence[str], where: str) -> None:
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise OverlayError(f"{where} has {key!r}, none of {', '.join(known)}.{hint}")
