"""A byte-level language model of prompts about source code and their answers, and lengths that it draws.

The tiny stand-in for the 8B model whose output lengths TIE (Zheng et al., arXiv 2604.00499) predicts. It is a Llama of
two narrow blocks, trained on every token of ``signature, kind, answer, end`` in random order (the loss counts prompts
too). A generation starts from the end token and a prompt and stops at the next end token, so that its length is the
model's own choice. The text is `icml26.tie.docstrings`', the loop `icml26.training`'s, the sampling
`icml26.generation`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from icml26 import generation, training
from icml26.checks import whole
from icml26.errors import InputError
from icml26.tie.docstrings import KINDS, Pair

__all__ = [
    "CAP",
    "END",
    "MODEL",
    "TRAINING",
    "Sampled",
    "prompt",
    "recipe",
    "sample_lengths",
    "stream",
    "text",
    "train",
]

END = 256  # the token after every answer; tokens below it are bytes
CAP = 256  # bytes of a generation, the end token included
MODEL = {
    "model_type": "llama",
    "vocab_size": 257 + len(KINDS),  # a token for each kind of question
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "initializer_range": 0.08,  # with the usual 0.02 so narrow a model starts slowly
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
# The window holds the longest prompt and the longest generation, so that no position is new when sampling.
TRAINING = training.TrainingConfig(steps=1000, batch_size=4, window=352, learning_rate=6e-3, warmup=20)
LONGEST_ANSWER = 300  # bytes of an answer that are trained on: more than a generation may have
_ROWS = 500  # generations at a time: more of them no longer help a processor's caches


class Sampled(NamedTuple):
    """Lengths of several generations of each prompt.

    Attributes
    ----------
    lengths : int array, shape (prompts, samples)
        Bytes, the end token included.
    capped : bool array, shape (prompts, samples)
        Whether the cap was reached without an end token: the length is then censored.
    """

    lengths: Int64[np.ndarray, "prompts samples"]
    capped: Bool[np.ndarray, "prompts samples"]


def recipe(text: str, config: training.TrainingConfig = TRAINING, seed: int = 0) -> dict:
    """Return all that decides the weights, apart from the machine's arithmetic.

    Parameters
    ----------
    text : str
        Digest of the pairs trained on (`icml26.tie.docstrings.digest`).
    config : TrainingConfig
        Of the loop.
    seed : int
        Of weights, order and windows.

    Returns
    -------
    dict
        As JSON can hold it, for `icml26.checkpoints.save_checkpoint`.

    Examples
    --------
    >>> recipe("41ec5698")["training"]["window"]
    352
    """
    return {"model": MODEL, "text": text, "training": asdict(config) | {"betas": list(config.betas)}, "seed": seed}


def prompt(text: str) -> Int64[Tensor, " tokens"]:
    """Return a prompt's tokens as a generation starts from them: end token, bytes of the signature, kind of question.

    The kind is one token, since so small a model is slow to learn to read.

    Parameters
    ----------
    text : str
        As in `Pair`.

    Returns
    -------
    int64 tensor, tokens

    Raises
    ------
    InputError
        If the text is no string of characters that UTF-8 has, or ends in no kind.

    Examples
    --------
    >>> prompt("a file:"), prompt("a code:")
    (tensor([256,  97, 257]), tensor([256,  97, 261]))
    """
    if not isinstance(text, str):
        raise InputError(f"prompt {text!r} must be a string, such as 'def f() code:'")
    signature, _, kind = text.rpartition(" ")
    if kind.rstrip(":") not in KINDS:
        raise InputError(f"prompt {text!r} must end in a kind of question and a colon: {', '.join(KINDS)}")
    return torch.tensor([END, *_bytes("prompt", signature), END + 1 + KINDS.index(kind.rstrip(":"))])


def _bytes(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name} {text!r} holds half a character (a surrogate); give text that UTF-8 has") from error


def text(tokens: Int64[Tensor, " tokens"]) -> str:
    """Return generated tokens as text, up to the end token if there is one.

    Parameters
    ----------
    tokens : int64 tensor, tokens
        As `icml26.generation.sample` draws them.

    Returns
    -------
    str
        Bytes that are no UTF-8 are replaced, tokens of kinds left out.

    Examples
    --------
    >>> text(torch.tensor([72, 105, 256, 256]))
    'Hi'
    """
    found = tokens.tolist()
    drawn = found[: found.index(END)] if END in found else found
    return bytes(token for token in drawn if token < END).decode(errors="replace")


def stream(pairs: Sequence[Pair], seed: int) -> Int64[Tensor, " tokens"]:
    """Join pairs into one stream of tokens, in random order so that neighbours say nothing about each other.

    Parameters
    ----------
    pairs : sequence of Pair
        To train on.
    seed : int
        Of the order.

    Returns
    -------
    int64 tensor, tokens
        An end token first, and after every answer.

    Raises
    ------
    InputError
        If there are none.

    Examples
    --------
    >>> stream([Pair("a.py", "a file:", "b")], seed=0)
    tensor([256,  97, 257,  98, 256])
    """
    if not len(pairs):
        raise InputError("pairs is empty; give pairs of a prompt and an answer to train on")
    tokens = [END]
    for index in np.random.default_rng(seed).permutation(len(pairs)):
        pair = pairs[index]
        tokens += [*prompt(pair.prompt)[1:].tolist(), *_bytes("answer", pair.answer)[:LONGEST_ANSWER], END]
    return torch.tensor(tokens)


def train(
    pairs: Sequence[Pair],
    config: training.TrainingConfig = TRAINING,
    *,
    seed: int,
    progress: Callable[[int, float], None] | None = None,
) -> Any:
    """Train the model: 40 s on one thread with the default configuration.

    Parameters
    ----------
    pairs : sequence of Pair
        To train on.
    config : TrainingConfig
        Of the loop; ``dataclasses.replace(TRAINING, steps=60)`` for a quick look.
    seed : int
        Of weights, order and windows.
    progress : callable, optional
        Called after each step with the number of steps done and the step's loss.

    Returns
    -------
    transformers.LlamaForCausalLM
        fp32, in evaluation mode.

    Raises
    ------
    InputError
        If there is less text than a window.

    Examples
    --------
    >>> config = training.TrainingConfig(steps=1, batch_size=1, window=16)
    >>> train([Pair("a.py", "def f() code:", "return 1")], config, seed=0).num_parameters()
    90816
    """
    model = training.build(MODEL, seed)
    training.train(model, stream(pairs, seed), config, seed=seed, progress=progress)
    return model


def sample_lengths(
    model: Any,
    texts: Sequence[str],
    samples: int,
    *,
    seed: int,
    cap: int = CAP,
    progress: Callable[[int, int], None] | None = None,
) -> Sampled:
    """Draw generations of every prompt at temperature 1 and keep their lengths.

    Prompts are taken by length, so that those in a batch need little padding; how many make a batch changes nothing.

    Parameters
    ----------
    model : transformers.LlamaForCausalLM
        Of `train`.
    texts, samples : sequence of str, int
        The prompts, and the generations of each.
    seed : int
        Of the generations.
    cap : int
        Most bytes of a generation, the end token included.
    progress : callable, optional
        Called after each group of prompts with the prompts done and their number.

    Returns
    -------
    Sampled
        Rows in the prompts' order.

    Raises
    ------
    InputError
        If there is no prompt, or a number is out of range.

    Examples
    --------
    >>> model = training.build(MODEL, seed=0)
    >>> sample_lengths(model, ["def f() code:", "def g() file:"], 3, seed=0, cap=4).lengths.shape
    (2, 3)
    """
    if not len(texts):
        raise InputError("texts is empty; give at least one prompt")
    samples = whole("samples", samples, 1)
    prompts = [prompt(text) for text in texts]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))  # like lengths together: little padding
    generator = torch.Generator().manual_seed(whole("seed", seed, 0))
    lengths = np.empty((len(prompts), samples), dtype=np.int64)
    capped = np.empty((len(prompts), samples), dtype=bool)
    each = max(1, _ROWS // samples)
    for start in range(0, len(order), each):
        rows = order[start : start + each]
        drawn = generation.sample(
            model, [prompts[i] for i in rows], samples=samples, max_new_tokens=cap, end=END, generator=generator
        )
        lengths[rows], capped[rows] = drawn.lengths.numpy(), ~drawn.ended.numpy()
        if progress:
            progress(start + len(rows), len(order))
    return Sampled(lengths, capped)
