"""Images of a release that a language model's prefill and decode use, by its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotforge.base.files import read_bytes
from aotforge.devtools.coverage import Call, image_of, reason_without_image
from aotforge.errors import UsageError
from aotforge.formats.untrusted_file import parse_json
from aotforge.pack.coverage import MASKS, is_general
from aotforge.pack.reader import OpenPack
from aotforge.rules import DTYPE_NUMBERS

_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_CACHES = ("i8", "fp8e4nv", "fp8e5")
_PREFILL = 512
"""Queries of a prefill: every larger number takes the same image."""

_HINT = "name the config.json of a model of Hugging Face's transformers"


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention of a configuration. `windows`: keys by layer, 0 without a bound."""

    dtype: str
    heads: int
    heads_k: int
    head_dim: int
    windows: tuple[int, ...]
    is_special: bool
    """With a soft cap or sinks, which the operators over pages have."""


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """A step of a model in some of its layers, and on an arch the kernels and images; else the reason."""

    step: str
    layers: int
    arch: str
    images: tuple[str, ...]
    reason: str = ""

    def text(self) -> str:
        """For people."""
        return f"{self.step}, {self.layers} layers on {self.arch}: {'; '.join(self.images) or self.reason}"


def read_model(path: Path) -> Attention:
    """Attention of a config.json. Raises UsageError."""
    data = read_bytes(path, UsageError, hint=_HINT)
    try:
        values = parse_json(data)
        values = {**values, **values.get("text_config", {})}
        return _attention(values)
    except (ValueError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise UsageError(f"{path} is not a model's configuration: {error}", hint=_HINT) from error
    except KeyError as error:
        raise UsageError(f"{path} is not a model's configuration: it lacks {error}", hint=_HINT) from error


def _attention(values: Mapping[str, Any]) -> Attention:
    heads, layers = int(values["num_attention_heads"]), int(values["num_hidden_layers"])
    dtype = str(values.get("dtype") or values.get("torch_dtype") or "float16")
    if dtype not in _DTYPES:
        raise ValueError(f"its dtype {dtype} is not one of {', '.join(_DTYPES)}")
    window = int(values.get("sliding_window") or 0)
    if not values.get("use_sliding_window", True):
        window = 0
    kinds = values.get("layer_types") or ["sliding_attention"] * layers
    return Attention(
        dtype=_DTYPES[dtype],
        heads=heads,
        heads_k=int(values.get("num_key_value_heads") or heads),
        head_dim=int(values.get("head_dim") or int(values["hidden_size"]) // heads),
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        is_special=bool(values.get("attn_logit_softcapping")) or values.get("model_type") == "gpt_oss",
    )


def model_coverage(model: Attention, packs: Sequence[OpenPack]) -> tuple[ModelCall, ...]:
    """Prefill, decode and writing of caches of each type, on every arch of the packs."""
    rows = []
    for pack in packs:
        for arch in pack.dispatch.archs:
            for step, layers, call in _calls(model):
                reason = reason_without_image(call, pack.dispatch, arch)
                images = () if reason else tuple(_images(call, pack, arch))
                rows.append(ModelCall(step=step, layers=layers, arch=arch, images=images, reason=reason))
    return tuple(rows)


def _images(call: Call, pack: OpenPack, arch: str) -> Iterator[str]:
    """Kernel, key and image of each step of the operator."""
    for kernel in pack.dispatch.kernels:
        used = image_of(call, kernel, arch) if kernel.operator == call.operator else None
        if used is None:
            continue
        functional, choice = used
        index = pack.indexes[kernel.container]
        digest = index.images[choice.image].digest.hex()[:12]
        key = ", ".join(f"{name} {number}" for name, number in zip(kernel.keys, functional.key, strict=True))
        general = "general image" if is_general(choice) else "image"
        yield f"{kernel.name} ({key}): {general} {digest}"


def _calls(model: Attention) -> Iterator[tuple[str, int, Call]]:
    """(step, number of layers, call)."""
    group = model.heads // model.heads_k
    shape = {
        "dtype": DTYPE_NUMBERS[model.dtype], "head_dim": model.head_dim, "num_head_q": model.heads,
        "num_head_k": model.heads_k, "group": group,
    }  # fmt: skip
    for window, layers in sorted(Counter(model.windows).items()):
        bound = f", window {window}" if window else ""
        masks = {"causal": 1, "window_left": window - 1}
        if model.is_special:
            yield (
                f"prefill{bound}",
                layers,
                _call(
                    "paged_attn", shape, cache=shape["dtype"], rows=group * _PREFILL, num_splits=1, **masks
                ),
            )
        else:
            yield f"prefill{bound}", layers, _call(
                "attn_fwd", shape, head_dim_v=model.head_dim, width=model.head_dim, mask=MASKS["window"],
                seqlen_q=_PREFILL, seqlen_k=_PREFILL, **masks,
            )  # fmt: skip
        for cache in (model.dtype, *_CACHES):
            of_cache = DTYPE_NUMBERS[cache]
            yield (
                f"decode{bound}, cache {cache}",
                layers,
                _call("paged_attn", shape, cache=of_cache, rows=group, num_splits=1, **masks),
            )
    for cache in (model.dtype, *_CACHES):
        yield (
            f"write, cache {cache}",
            len(model.windows),
            _call("reshape_and_cache", shape, cache=DTYPE_NUMBERS[cache]),
        )


def _call(operator: str, shape: Mapping[str, int], **values: int) -> Call:
    return Call(operator=operator, values=tuple(sorted({**shape, **values}.items())))
