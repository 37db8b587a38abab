from datasets import load_dataset
from mmengine.dataset import DefaultSampler
from mmengine.hooks import IterTimerHook, LoggerHook, ParamSchedulerHook
from mmengine.optim import CosineAnnealingLR, AmpOptimWrapper
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, AutoTokenizer
from xtuner.dataset import process_hf_dataset
from xtuner.dataset.collate_fns import default_collate_fn
from xtuner.dataset.map_fns import alpaca_map_fn, template_map_fn_factory
from xtuner.engine.hooks import ThroughputHook
from xtuner.engine.runner import TrainLoop
from xtuner.model import SupervisedFinetune
from xtuner.utils import PROMPT_TEMPLATE

max_length = 4096
batch_size = 2
accumulative_counts = 1

model = dict(
    type=SupervisedFinetune,
    use_varlen_attn=False,
    use_activation_checkpointing=False,
    llm=dict(
        type=AutoModelForCausalLM.from_pretrained,
        pretrained_model_name_or_path="../../assets/llama",
    ),
)
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=0,
    dataset=dict(
        type=process_hf_dataset,
        dataset=dict(type=load_dataset, path="json", data_files="../../assets/train.json"),
        tokenizer=dict(
            type=AutoTokenizer.from_pretrained,
            padding_side="right",
            pretrained_model_name_or_path="../../assets/llama",
        ),
        max_length=max_length,
        pack_to_max_length=True,
        shuffle_before_pack=True,
        use_varlen_attn=False,
        dataset_map_fn=alpaca_map_fn,
        template_map_fn=dict(type=template_map_fn_factory, template=PROMPT_TEMPLATE.default),
    ),
    sampler=dict(type=DefaultSampler, shuffle=True),
    collate_fn=dict(type=default_collate_fn, use_varlen_attn=False),
)
optim_wrapper = dict(
    type=AmpOptimWrapper, dtype="bfloat16",
    optimizer=dict(type=AdamW, lr=3e-4),
    clip_grad=dict(max_norm=1, error_if_nonfinite=False),
    accumulative_counts=accumulative_counts,
)
param_scheduler = dict(type=CosineAnnealingLR, eta_min=0.0, by_epoch=False, begin=0, end=200)
train_cfg = dict(type=TrainLoop, max_iters=200)
custom_hooks = [dict(type=ThroughputHook)]
default_hooks = dict(
    timer=dict(type=IterTimerHook),
    logger=dict(type=LoggerHook, log_metric_by_epoch=False, interval=10),
    param_scheduler=dict(type=ParamSchedulerHook),
    checkpoint=None,
    sampler_seed=None,
)
log_processor = dict(by_epoch=False, window_size=10)
randomness = dict(seed=0)
visualizer = None
