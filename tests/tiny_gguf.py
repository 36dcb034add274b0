"""A two-layer Llama written as a Q4_1 GGUF inside a made-up installed package: the conversion's test subject."""

import hashlib
from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

from icml26.models_registry import ModelInfo

WIDTH, INNER, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2
NAME = "tiny-gguf"


def tokens() -> list[str]:
    return ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġa"]


def weights(seed: int) -> dict[str, np.ndarray]:
    """Random weights under GGUF's names, in the layout of transformers (before llama.cpp's row permutation)."""
    draw = np.random.default_rng(seed)
    shapes = {"token_embd": (len(tokens()), WIDTH)}
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        shapes |= {
            block + "attn_q": (WIDTH, WIDTH),
            block + "attn_k": (WIDTH * KV_HEADS // HEADS, WIDTH),
            block + "attn_v": (WIDTH * KV_HEADS // HEADS, WIDTH),
            block + "attn_output": (WIDTH, WIDTH),
            block + "ffn_gate": (INNER, WIDTH),
            block + "ffn_up": (INNER, WIDTH),
            block + "ffn_down": (WIDTH, INNER),
        }
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the rows of a query or key weight as llama.cpp stores them: the rotary halves become neighbours."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def stored(weight: np.ndarray) -> np.ndarray:
    """What is left of a weight after Q4_1."""
    kind = gguf.GGMLQuantizationType.Q4_1
    return gguf.dequantize(gguf.quantize(weight, kind), kind)


def write_gguf(file: Path, seed: int = 0) -> None:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens()))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens())
    writer.add_token_types([3, *[1] * (len(tokens()) - 1)])
    writer.add_token_merges(["Ġ a"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}
    for name, weight in weights(seed).items():
        part = name.rsplit(".", 1)[-1]
        block = gguf.quantize(
            interleaved(weight, heads[part]) if part in heads else weight, gguf.GGMLQuantizationType.Q4_1
        )
        writer.add_tensor(f"{name}.weight", block, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    norms = [f"blk.{layer}.{norm}" for layer in range(LAYERS) for norm in ("attn_norm", "ffn_norm")]
    for name in [*norms, "output_norm"]:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def install(site: Path, *, parts: int = 1, seed: int = 0) -> ModelInfo:
    """Lay out installed packages in `site` that carry the model in `parts` pieces; describe it as the registry does."""
    whole = site / "whole.gguf"
    site.mkdir(parents=True, exist_ok=True)
    write_gguf(whole, seed)
    content = whole.read_bytes()
    whole.unlink()
    files = []
    for part in range(parts):
        package = f"tiny_gguf_part{part}"
        path = f"{package}/tiny.gguf" + (f".part{part}" if parts > 1 else "")
        (site / path).parent.mkdir(exist_ok=True)
        (site / path).write_bytes(content[len(content) * part // parts : len(content) * (part + 1) // parts])
        (site / package / "__init__.py").write_text("raise ImportError('the package itself must not be imported')\n")
        information = site / f"{package}-1.0.dist-info"
        information.mkdir(exist_ok=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        files.append((package, path))
    return ModelInfo(
        name=NAME,
        kind="lm",
        description="a test's model",
        package="tiny-gguf==1.0",
        files=tuple(files),
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="MIT",
        disk=600_000,
    )
