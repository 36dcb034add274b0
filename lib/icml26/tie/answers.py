"""Prompts with repeated answers of one model, and what the model's own hidden states say of each prompt.

What a predictor of output lengths learns from and is tested on: lengths of several generations of each prompt, and
features of the prompt, from the model's last hidden states (TRAIL, Shahout et al., arXiv 2410.01035). The model
is the small one of docstrings (`docstring_answers`), or any causal language model of `transformers` with prompts of
one's own (`model_answers`), as the paper has it (TIE, Zheng et al., arXiv 2604.00499, Section 3: 20 generations of
each of 45,000 prompts). Sampling is `icml26.generation`'s, predicting `icml26.tie.predictors`'.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from icml26 import evaluation, generation, tasks
from icml26.errors import InputError
from icml26.tie import docstring_lm
from icml26.tie.docstrings import Pair

__all__ = ["Answers", "docstring_answers", "encode", "model_answers", "prompt_features", "prompts"]


class Answers(NamedTuple):
    """Lengths of several answers to each prompt.

    Attributes
    ----------
    prompts : tuple of str
        What was asked.
    prompt_tokens : int array, shape (prompts,)
        Tokens of each prompt.
    features : float array, shape (prompts, width)
        Of `prompt_features`.
    lengths : int array, shape (prompts, samples)
        Tokens of each answer, the end token included; one at the cap was cut short.
    cap : int
        Most tokens of an answer.
    """

    prompts: tuple[str, ...]
    prompt_tokens: Int64[np.ndarray, " prompts"]
    features: Float[np.ndarray, "prompts width"]
    lengths: Int64[np.ndarray, "prompts samples"]
    cap: int


def prompts(name: str, count: int) -> list[str]:
    """Return the first prompts of a data set.

    Parameters
    ----------
    name : str
        "gsm8k" for the questions of GSM8K's test file, else as `icml26.evaluation.dataset_prompts` takes it.
    count : int
        How many.

    Returns
    -------
    list of str

    Raises
    ------
    InputError
        If there are fewer.
    MissingData
        If the data are not on this machine.

    Examples
    --------
    >>> prompts("gsm8k", 1)[0][:5]  # doctest: +SKIP
    'Janet'
    """
    if name == "gsm8k":
        found = [problem.question for split in tasks.SPLITS for problem in tasks.gsm8k_problems(split)]
    else:
        found = list(dict.fromkeys(evaluation.dataset_prompts(name)))
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(found):
        raise InputError(f"count={count!r} must be an integer from 1 to {len(found)}, the prompts of {name}")
    return found[:count]


def docstring_answers(
    model: Any,
    pairs: Sequence[Pair],
    samples: int,
    *,
    seed: int,
    cap: int = docstring_lm.CAP,
    progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Let the model of docstrings answer each prompt several times.

    Parameters
    ----------
    model : transformers.LlamaForCausalLM
        Of `icml26.tie.docstring_lm.train`.
    pairs : sequence of Pair
        With the prompts.
    samples, seed, cap, progress
        As in `icml26.tie.docstring_lm.sample_lengths`.

    Returns
    -------
    Answers
        In bytes.

    Raises
    ------
    InputError
        If there is no prompt, or a number is out of range.

    Examples
    --------
    >>> from icml26 import training
    >>> model = training.build(docstring_lm.MODEL, seed=0)
    >>> docstring_answers(model, [Pair("a.py", "def f() code:", "pass")], 3, seed=0, cap=4).lengths.shape
    (1, 3)
    """
    texts = [pair.prompt for pair in pairs]
    drawn = docstring_lm.sample_lengths(model, texts, samples, seed=seed, cap=cap, progress=progress)
    count = np.array([len(docstring_lm.prompt(text)) for text in texts])
    return Answers(
        tuple(texts),
        count,
        np.stack([prompt_features(model, docstring_lm.prompt(text)) for text in texts]),
        drawn.lengths,
        cap,
    )


def model_answers(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    samples: int,
    *,
    seed: int,
    cap: int,
    progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Let a causal language model answer each prompt several times at temperature 1.

    Parameters
    ----------
    model, tokenizer
        As `icml26.models.load_lm` returns them. Prompts go through the tokenizer's chat format where it has one.
    texts : sequence of str
        What a user asks.
    samples : int
        Answers to each.
    seed : int
        Of the answers.
    cap : int
        Most tokens of an answer, the end token included.
    progress : callable, optional
        Called after each prompt with the prompts done and their number.

    Returns
    -------
    Answers
        In the model's tokens.

    Raises
    ------
    InputError
        If there is no prompt, the tokenizer has no end token, or a number is out of range.

    Examples
    --------
    >>> from icml26 import models
    >>> found = model_answers(*models.load_lm("tiny-random-llama"), ["Why?", "Tell me."], 3, seed=0, cap=5)
    >>> found.lengths.shape, found.features.shape[0]
    ((2, 3), 2)
    """
    if not len(texts):
        raise InputError("texts is empty; give at least one prompt")
    if tokenizer.eos_token_id is None:
        raise InputError("tokenizer has no end token (eos_token_id is None), so that no answer would end; set one")
    generator = torch.Generator().manual_seed(seed)
    encoded, features, lengths = [encode(tokenizer, text) for text in texts], [], []
    for index, ids in enumerate(encoded):
        drawn = generation.sample(
            model, [ids], samples=samples, max_new_tokens=cap, end=tokenizer.eos_token_id, generator=generator
        )
        lengths.append(drawn.lengths[0].numpy())
        features.append(prompt_features(model, ids))
        if progress:
            progress(index + 1, len(texts))
    count = np.array([len(ids) for ids in encoded])
    return Answers(tuple(texts), count, np.stack(features), np.stack(lengths), cap)


def encode(tokenizer: Any, text: str) -> Int64[Tensor, " tokens"]:
    """Turn what a user asks into the tokens that an answer follows.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        Its chat format is used where it has one; else a line break follows the text.
    text : str
        What the user asks.

    Returns
    -------
    Tensor, shape (tokens,)

    Examples
    --------
    >>> from icml26 import models
    >>> len(encode(models.load_lm("tiny-random-llama")[1], "Why?"))
    5
    """
    if tokenizer.chat_template is None:
        return torch.tensor(tokenizer(text + "\n")["input_ids"])
    messages = [{"role": "user", "content": text}]
    return torch.tensor(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    )


@torch.inference_mode()
def prompt_features(model: Any, ids: Int64[Tensor, " tokens"]) -> Float[np.ndarray, " features"]:
    """What the model makes of a prompt: the mean of its last hidden states, and the last of them.

    TIE's predictor joins the mean with the first state and the maximum of an encoder that looks both ways; of a causal
    model it is the last state that has seen the whole prompt.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Causal language model.
    ids : Tensor, shape (tokens,)
        The prompt.

    Returns
    -------
    array, shape (2 * width,)

    Examples
    --------
    >>> from icml26 import models
    >>> model, tokenizer = models.load_lm("tiny-random-llama")
    >>> prompt_features(model, encode(tokenizer, "Why?")).shape == (2 * model.config.hidden_size,)
    True
    """
    states = model.base_model(input_ids=ids[None].to(model.device)).last_hidden_state[0]
    return torch.cat([states.mean(0), states[-1]]).double().cpu().numpy()
