"""Models of transformers 5.24 that are no causal decoders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_ENCODERS: Final = """
    albert bert bert-generation big_bird camembert convbert data2vec-text deberta deberta-v2
    distilbert electra ernie esm esmc eurobert flaubert fnet funnel gte ibert jina_embeddings_v3
    layoutlm layoutlmv2 layoutlmv3 longformer luke megatron-bert mobilebert modernbert modernvbert
    mpnet mra nezha nomic_bert nystromformer perceiver qdqbert rembert roberta roberta-prelayernorm
    roc_bert roformer splinter squeezebert tapas visual_bert xlm xlm-roberta xlm-roberta-xl xmod
    yoso
"""
_ENCODER_DECODERS: Final = """
    bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder fsmt led longt5 m2m_100 marian
    mbart mt5 mvp musicgen musicgen_melody nllb-moe pegasus pegasus_x plbart pop2piano prophetnet
    seamless_m4t seamless_m4t_v2 speech-encoder-decoder speech_to_text speecht5 switch_transformers
    t5 t5gemma t5gemma2 trocr udop umt5 vision-encoder-decoder whisper
"""
_VISION_MODELS: Final = """
    align beit bit chinese_clip clip clip_vision_model clipseg conditional_detr convnext convnextv2
    cvt dab-detr data2vec-vision deformable_detr deit depth_anything depth_pro detr dinat dinov2
    dinov2_with_registers dinov3_vit donut-swin dpt efficientnet focalnet glpn hiera ijepa imagegpt
    levit mask2former maskformer metaclip_2 mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2
    oneformer poolformer pvt pvt_v2 regnet resnet rt_detr rt_detr_v2 sam sam2 segformer siglip
    siglip2 siglip_vision_model swiftformer swin swinv2 table-transformer textnet timesformer
    timm_wrapper upernet videomae vit vit_mae vit_msn vitdet vivit vjepa2 yolos zoedepth
"""
_AUDIO_MODELS: Final = """
    audio-spectrogram-transformer clap data2vec-audio encodec hubert mimi parakeet_ctc sew sew-d
    unispeech unispeech-sat wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm
"""
_SPECIAL_MODELS: Final = {
    "blt": "groups bytes into patches whose number depends on the text",
    "cpmant": "adds prompt tokens of its own to each sequence",
    "gemma4_assistant": "drafts from the states of another model",
    "gemma4_unified_assistant": "drafts from the states of another model",
    "reformer": "attends inside buckets that depend on the text",
    "xlnet": "predicts tokens in an order of its own, in two streams of attention",
}

KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_ENCODERS.split(), "is an encoder"),
    **dict.fromkeys(_ENCODER_DECODERS.split(), "is an encoder-decoder"),
    **dict.fromkeys(_VISION_MODELS.split(), "is a vision model"),
    **dict.fromkeys(_AUDIO_MODELS.split(), "is an audio model"),
    **_SPECIAL_MODELS,
}
"""Kind or work of each model_type that is no causal decoder over its tokens alone."""

_KINDS_BY_CLASS: Final = (
    (re.compile(r"(?:ForMaskedLM|ForPreTraining|EncoderModel)$"), "is an encoder"),
    (re.compile(r"For(?:Seq2SeqLM|SpeechSeq2Seq)$"), "is an encoder-decoder"),
    (re.compile(r"For\w*(?:Image|Depth|Object|Segmentation|Video)\w*$"), "is a vision model"),
    (re.compile(r"For(?:CTC|AudioClassification|AudioFrame\w*)$"), "is an audio model"),
)


def other_kind(config: Mapping[str, object]) -> str | None:
    """Return the kind of a model as a predicate; None for a causal decoder.

    Known by its model_type, by `is_encoder_decoder`, or by the ending of its class.
    """
    if kind := KINDS.get(str(config.get("model_type"))):
        return kind
    if config.get("is_encoder_decoder") is True:
        return "is an encoder-decoder"
    classes = config.get("architectures")
    for name in classes if isinstance(classes, list) else []:
        for ending, kind in _KINDS_BY_CLASS:
            if ending.search(str(name)) and "ImageText" not in str(name):
                return kind
    return None
