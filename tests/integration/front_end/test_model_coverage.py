"""`./dev coverage --model`: which images of a release a model's calls use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aotforge.deliver.extract import open_packs
from aotforge.devtools.model_coverage import model_coverage, read_model
from aotforge.errors import UsageError
from aotforge.pack.listing import list_images

pytestmark = [pytest.mark.compiler, pytest.mark.torch]
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "torch_dtype": "float16",
}  # fmt: skip


def rows_of(library: Path, folder: Path, **changes: Any) -> dict[str, tuple[int, tuple[str, ...], str]]:
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    packs = open_packs(library.parent / "aotriton.images" / "cpu-x86-64")
    digests = {row.digest[:12] for pack in packs for row in list_images(pack)}
    rows = model_coverage(read_model(path), packs)
    assert all(image.rpartition(" ")[2] in digests for row in rows for image in row.images)
    return {row.step: (row.layers, row.images, row.reason) for row in rows}


def test_a_model_s_prefill_decode_and_writing(library: Path, tmp_path: Path) -> None:
    rows = rows_of(library, tmp_path)
    layers, images, reason = rows["prefill"]
    assert (layers, reason) == (4, "") and images[0].startswith(
        "flash.attn_fwd (dtype 2, dropout 0, mask 1, width 64)"
    )
    _, images, _ = rows["decode, cache fp16"]
    assert [image.partition(" ")[0] for image in images] == [
        "flash_paged.paged_attn",
        "flash_paged.paged_combine",
    ]
    assert rows["decode, cache i8"][1] and "no image for dtype 2, cache 111" in rows["decode, cache fp8e5"][2]
    assert rows["write, cache fp16"][1][0].startswith("flash_paged.reshape_and_cache")


def test_windows_soft_caps_and_sinks(library: Path, tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "full_attention", "full_attention"]
    other: dict[str, Any]
    for other in ({"attn_logit_softcapping": 50.0}, {"model_type": "gpt_oss"}):
        rows = rows_of(library, tmp_path, sliding_window=128, layer_types=kinds, **other)
        assert rows["prefill"][0] == 3 and rows["prefill, window 128"][0] == 1
        assert rows["prefill"][1][0].startswith("flash_paged.paged_attn")
        assert rows["prefill"][1] == rows["prefill, window 128"][1]


def test_another_width_and_what_is_not_a_configuration(library: Path, tmp_path: Path) -> None:
    rows = rows_of(library, tmp_path, head_dim=256, text_config={"num_hidden_layers": 2})
    assert rows["prefill"][0] == 2 and "no image for dtype 2" in rows["decode, cache fp16"][2]
    (tmp_path / "config.json").write_text("[]")
    for text in ("[]", "{}", '{"num_attention_heads": 0, "num_hidden_layers": 1}', "no JSON"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UsageError, match=r"config.json is not a model's configuration"):
            read_model(tmp_path / "config.json")
