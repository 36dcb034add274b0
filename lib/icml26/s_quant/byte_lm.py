"""A byte-level language model small enough to encode all of its linear layers: its recipe and its checkpoints.

A Llama of two blocks, trained on GSM8K's texts (Cobbe et al., arXiv 2110.14168) with three seeds. Its 49,152 weights in
linear layers are what the codecs of S-Quant (Wang et al., ICML 2026, arXiv: none) replace; every row is as long as, or
half as long as, a group of 128. `train` is the whole recipe, `load` returns the committed result of it. The loop and
the file format are `icml26.training`'s, the texts `icml26.tasks`'.
"""

from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from jaxtyping import Int64
from torch import Tensor

from icml26 import data, tasks, training
from icml26.errors import InputError

__all__ = ["SEEDS", "SEGMENT", "held_out", "load", "recipe", "train"]

SEEDS = (0, 1, 2)
SEGMENT = 256  # bytes: a segment of text to measure losses on, and the training window
MODEL = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": SEGMENT,
    "tie_word_embeddings": True,
    "initializer_range": 0.1,  # near 1/sqrt(64): with the usual 0.02 so narrow a model starts slowly
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
TRAINING = training.TrainingConfig(steps=8000, batch_size=8, window=SEGMENT, learning_rate=8e-3, warmup=200)


def recipe(seed: int) -> dict:
    """Return all that decides the weights of one checkpoint, apart from the machine's arithmetic.

    Parameters
    ----------
    seed : int
        Of the initial weights and of the windows drawn.

    Returns
    -------
    dict
        Model, text, training and seed, as JSON can hold them.

    Examples
    --------
    >>> recipe(0)["model"]["hidden_size"]
    64
    """
    text = {"name": tasks.GSM8K, "sha256": data.registry()[tasks.GSM8K].sha256, "split": "train"}
    return {"model": MODEL, "text": text, "training": asdict(TRAINING) | {"betas": list(TRAINING.betas)}, "seed": seed}


def train(
    seed: int,
    *,
    text: str | None = None,
    steps: int | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Any:
    """Train the model: a few minutes on one thread.

    Parameters
    ----------
    seed : int
        Of the initial weights and of the windows drawn.
    text : str, optional
        Another text than the recipe's.
    steps : int, optional
        Stop after so many steps of the recipe's schedule.
    progress : callable, optional
        Called after each step with the number of steps done and the step's loss.

    Returns
    -------
    transformers.LlamaForCausalLM
        fp32, in evaluation mode.

    Raises
    ------
    MissingData
        If GSM8K is not on this machine.

    Examples
    --------
    >>> train(0, text="one and one is two. " * 20, steps=1).num_parameters()
    65856
    """
    model = training.build(MODEL, seed)
    tokens = tasks.byte_tokens(tasks.gsm8k_text("train") if text is None else text)
    training.train(model, tokens, TRAINING, seed=seed, stop=steps, progress=progress)
    return model


def load(seed: int) -> training.Checkpoint:
    """Load a committed checkpoint.

    Parameters
    ----------
    seed : int
        0, 1 or 2.

    Returns
    -------
    Checkpoint
        Model, recipe and digest.

    Raises
    ------
    InputError
        If there is none for this seed, or the file is damaged.

    Examples
    --------
    >>> load(0).recipe == recipe(0)
    True
    """
    if seed not in SEEDS:
        raise InputError(f"seed={seed} has no checkpoint: use one of {', '.join(map(str, SEEDS))}")
    return training.load_checkpoint(str(files(__package__) / "checkpoints" / f"byte_lm_{seed}.safetensors"))


def held_out(text: str, limit: int | None = None) -> Int64[Tensor, "n length"]:
    """Cut a text into segments of the model's context, to measure losses on.

    Parameters
    ----------
    text : str
        Text that it was not trained on, such as ``tasks.gsm8k_text("held-out")``.
    limit : int, optional
        Segments at most, spread evenly over the text.

    Returns
    -------
    int64 tensor, n x 256
        Bytes.

    Raises
    ------
    InputError
        If the text is shorter than a segment.

    Examples
    --------
    >>> held_out("a" * 600).shape
    torch.Size([2, 256])
    """
    return tasks.segments(tasks.byte_tokens(text), SEGMENT, limit)
