"""Small random models of Hugging Face's transformers, generated greedily by eager attention and by ours.

    python -m tests.support.transformers_models LIBRARY STEPS [DEVICE]

With each cache: `dynamic`, `static`, `padded` (two prompts, one padded), `paged` (continuous batching).
Prints a line for each model and cache: how many tokens agree with those of eager attention, and how many of
the others are ties of its logits.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import torch
import transformers
from transformers.generation.continuous_batching import initialization

import aotforge_flash
from aotforge_flash import hugging_face

_SIZES = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 1024,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
_OWN: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Qwen3": {},
    "Gemma2": {"sliding_window": 32, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 64},
    "GptOss": {"sliding_window": 32, "num_local_experts": 2, "num_experts_per_tok": 2},
}
CACHES = ("dynamic", "static", "padded", "paged")
_TIE = 0.02
"""Of the logits' standard deviation: float16 has errors of half of it after two layers."""


def model_of(name: str, device: str = "cpu") -> Any:
    """A model with random weights, in float16."""
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**_SIZES, **_OWN[name])
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{name}ForCausalLM")(config).half().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.15)
    for layer in model.model.layers:
        if hasattr(layer.self_attn, "sinks"):
            layer.self_attn.sinks.data.normal_()
    return model.to(device)


def generated(model: Any, attention: str, prompt: torch.Tensor, steps: int, **settings: Any) -> Any:
    """(tokens, logits of each step)."""
    model.set_attn_implementation(attention)
    assert model.config._attn_implementation == attention
    made = model.generate(
        prompt, max_new_tokens=steps, do_sample=False, return_dict_in_generate=True, output_logits=True,
        **settings,
    )  # fmt: skip
    return made.sequences, torch.stack(made.logits, 1).float()


def compare(model: Any, steps: int, cache: str) -> tuple[int, int]:
    """(tokens that agree, ties). After a tie ours begins again from eager's tokens. Raises AssertionError."""
    padded = torch.ones((2 if cache == "padded" else 1, 12), dtype=torch.int64)
    prompt = torch.randint(2, 128, padded.shape)
    if cache == "padded":
        padded[0, :5] = 0
    prompt, padded = prompt.to(model.device), padded.to(model.device)
    settings: dict[str, Any] = {"attention_mask": padded}
    if cache == "static":
        settings |= {"cache_implementation": "static", "disable_compile": True}
    wanted, logits = generated(model, "eager", prompt, steps, attention_mask=padded)
    at, agreed, ties = prompt.shape[1], 0, 0
    while at < wanted.shape[1]:
        settings["attention_mask"] = torch.nn.functional.pad(padded, (0, at - padded.shape[1]), value=1)
        tokens, _ = generated(model, "aotforge", wanted[:, :at], wanted.shape[1] - at, **settings)
        differing = (tokens != wanted).any(0).nonzero()
        end = int(differing[0]) if len(differing) else wanted.shape[1]
        agreed += (end - at) * len(wanted)
        if end < wanted.shape[1]:
            step = logits[:, end - prompt.shape[1]]
            gap = step.gather(1, wanted[:, end, None]) - step.gather(1, tokens[:, end, None])
            assert float(gap.max() / logits.std()) < _TIE, (end, gap)
            ties += len(wanted)
        at = end + 1
    return agreed, ties


def compare_paged(model: Any, steps: int) -> tuple[int, int]:
    """Three requests at once on the decoding path of GPUs: by block tables, but for models with windows."""
    prompts = [torch.randint(2, 128, (length,)).tolist() for length in (12, 5, 30)]
    wanted = [
        generated(model, "eager", torch.tensor([prompt], device=model.device), steps) for prompt in prompts
    ]
    model.set_attn_implementation("aotforge_flash_2")
    settings = transformers.GenerationConfig(max_new_tokens=steps, do_sample=False, eos_token_id=-1)
    batching = transformers.ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=64)
    calls = 0

    def counted(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return aotforge_flash.flash_attn_with_kvcache(*args, **named)

    with (
        patch.object(initialization, "is_torch_xpu_available", lambda: model.device.type == "cpu"),
        patch.object(hugging_face, "flash_attn_with_kvcache", counted),
    ):
        made = model.generate_batch(
            inputs=prompts, generation_config=settings, continuous_batching_config=batching
        )
    windows = getattr(model.config, "sliding_window", None) is not None
    fewest = steps - 2 if model.device.type == "cpu" else 1  # GPUs replay captured graphs
    assert calls == 0 if windows else calls >= fewest, calls
    agreed = ties = 0
    for number, (tokens, logits) in enumerate(wanted):
        own_tokens, eager = made[f"req_{number}"].generated_tokens, tokens[0, len(prompts[number]) :].tolist()
        pairs = zip(own_tokens, eager, strict=True)
        end = next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), steps)
        agreed += end
        if end < steps:  # what follows a tie has another prompt
            step = logits[0, end]
            gap = step[eager[end]] - step[own_tokens[end]]
            assert float(gap / logits.std()) < _TIE, (number, end, gap)
            ties += 1
    return agreed, ties


def main(library: str, steps: int, device: str = "cpu") -> None:
    """Compares and prints."""
    torch.set_num_threads(1)
    aotforge_flash.load(library)
    hugging_face.register()
    for name in _OWN:
        model = model_of(name, device)
        for cache in CACHES:
            agreed, ties = compare_paged(model, steps) if cache == "paged" else compare(model, steps, cache)
            sys.stdout.write(f"{name} {cache}: {agreed} tokens agree, {ties} ties\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
