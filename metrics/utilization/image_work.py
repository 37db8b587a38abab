"""Work of a run's vision tower, from the image tokens that its log counts.

The sums are of metrics.throughput.image_counts, the FLOPs of metrics.formula.vision. The log's sums
have bounds. Wide bounds leave the FLOPs unknown, and so do figures of no images of this tower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ..core.messages import Message, MessageKind
from ..formula import flops, vision
from ..formula.flops import Operator, Trainable
from ..formula.vision import PatchCounts, TrainedParts, VisionTower
from . import messages

FROZEN_PARTS: Final = ("vision", "projector", "language")
"""Words of the fact `frozen_parts`."""


@dataclass(frozen=True, slots=True)
class ImageWork:
    """Vision tower of a run, and sums over its images, per token of the text model.

    least, most: bounds of the sums; None if unknown
    contradiction: message on figures that no images of the tower have
    unknown_reason: kind of message, to fill with bounds of MFU, if the sums are in doubt
    least_of_videos: lower bound if the images may be videos; None if not
    """

    tower: VisionTower
    trained_parts: TrainedParts
    least: PatchCounts | None = None
    most: PatchCounts | None = None
    contradiction: Message | None = None
    unknown_reason: MessageKind | None = None
    least_of_videos: PatchCounts | None = None

    @property
    def is_known(self) -> bool:
        """True if the tower's FLOPs are known."""
        return self.contradiction is None and self.unknown_reason is None

    @property
    def frozen_parts(self) -> list[str]:
        """Words for tower and projector, where frozen."""
        parts = (
            ("vision tower", self.trained_parts.tower),
            ("projector", self.trained_parts.projector),
        )
        return [word for word, trainable in parts if trainable.kind == "frozen"]

    def operators(self) -> tuple[Operator, ...]:
        """Return the tower's operators per token, in the middle of the bounds."""
        if self.least is None or self.most is None:
            return ()
        least, most = self.least, self.most
        return self.operators_of(
            PatchCounts(
                patches=(least.patches + most.patches) / 2,
                positions=(least.positions + most.positions) / 2,
                pairs=(least.pairs + most.pairs) / 2,
            )
        )

    def operators_of(self, counts: PatchCounts) -> tuple[Operator, ...]:
        """Return the tower's operators for sums over images."""
        return vision.counted_operators(self.tower, counts, trained_parts=self.trained_parts)


def image_work(
    tower: VisionTower,
    parts: TrainedParts,
    counts: Mapping[str, Any],
    *,
    language: tuple[Operator, ...],
    videos: bool | None,
) -> ImageWork:
    """Return the work of a run's images.

    counts: as metrics.throughput.image_counts returns them
    language: operators of the language model; bounds that differ by less than MAX_IMAGE_DOUBT of
        all FLOPs count as known
    videos: true if images are videos, None if unknown
    """
    work = ImageWork(tower, parts, contradiction=_contradiction(tower, counts))
    if work.contradiction is not None:
        return work
    tokens, low = counts["tokens"], counts["squares_low"]
    smallest = tokens * tower.merge**2  # no image has less than one merged patch
    if tower.grid is not None or not tokens:
        low = high = 0.0
    elif low is None:
        least, _ = vision.counts_of_logged_images(tower, tokens, (smallest, smallest))
        return replace(work, least=least, unknown_reason=messages.IMAGE_SIZES_UNKNOWN)
    else:
        high = max(low, min(counts["squares_high"], counts["squares_packed"] * tower.merge**2))
    sizes_matter = tower.grid is None and tokens > 0
    lowest = smallest if videos and sizes_matter else low
    least, most = vision.counts_of_logged_images(tower, tokens, (lowest, high))
    work = replace(work, least=least, most=most)
    if _doubt(work, language, least, most) > MAX_IMAGE_DOUBT:
        reason = messages.VIDEO_FRAMES_UNKNOWN if videos else messages.IMAGE_SIZES_BOUNDED
        return replace(work, unknown_reason=reason)
    if videos is None and sizes_matter:
        of_videos, _ = vision.counts_of_logged_images(tower, tokens, (smallest, high))
        return replace(work, least_of_videos=of_videos)
    return work


MAX_IMAGE_DOUBT: Final = 0.005
"""Largest relative difference of FLOPs, between the bounds of a tower's work, that counts as
known."""


MAX_SUM_ROUNDING: Final = 1e-9
"""Largest relative error of a sum over the steps of a run."""


def _doubt(work: ImageWork, language: tuple[Operator, ...], *bounds: PatchCounts) -> float:
    """Return the difference of FLOPs between two bounds, relative to the lower one."""
    low, high = (
        flops.flops_per_token((*work.operators_of(counts), *language)) for counts in bounds
    )
    return high / low - 1


def _contradiction(tower: VisionTower, counts: Mapping[str, Any]) -> Message | None:
    """Return the message on image figures that no images of this tower have."""
    if counts["contradictions"]:
        return messages.IMAGE_FIGURES_IMPOSSIBLE(steps=counts["contradictions"])
    share = counts["tokens"] / vision.image_unit(tower)
    if share > 1 + MAX_SUM_ROUNDING:
        return messages.MORE_IMAGES_THAN_TOKENS(tower=tower.name, share=share)
    height, width = tower.grid or (tower.merge**2, tower.merge**2)
    of_image = height * width // tower.merge**2  # of a tile, or of merged patches
    if counts["multiple"] % of_image:
        return messages.NO_WHOLE_IMAGES(tower=tower.name, whole=of_image)
    return None


def trained_parts(trainable: Trainable, frozen: str | None) -> TrainedParts | None:
    """Return the trained parts of a model with a vision tower; None if not known.

    Adapters of the language model do not show if tower and projector are trained, so LoRA needs
    both frozen.

    trainable: of the language model; frozen: the fact `frozen_parts`
    """
    parts = set((frozen or "none").replace(" ", "").lower().split(",")) - {"none"}
    seeing = {"vision", "projector"}
    if not parts <= set(FROZEN_PARTS) or (trainable.kind == "lora" and not seeing <= parts):
        return None
    still = Trainable(kind="frozen")
    if parts == set(FROZEN_PARTS) or (seeing <= parts and trainable.kind == "frozen"):
        return None
    return TrainedParts(
        tower=still if "vision" in parts else Trainable(),
        projector=still if "projector" in parts else Trainable(),
        language_model=still if "language" in parts else trainable,
    )
