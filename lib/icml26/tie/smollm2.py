"""How the committed lengths of SmolLM2's answers were made: every prompt answered a hundred times.

They stand in for the 1,000 prompts of TIE's motivation (Zheng et al., arXiv 2604.00499, Section 3).
``python -m icml26.tie.smollm2`` writes `lengths_smollm2.json` anew (an hour on one thread; it resumes). Prompts are
requests as people type them into a chat, written for this file. Each is put into the model's chat format; answers are
sampled at temperature 1 from the whole distribution, and a length counts the end token. Reading the file is left to
`icml26.tie.lengths`.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from icml26 import checkpoints, generation, models, paths
from icml26.tie import answers

__all__ = ["FILE", "RECIPE", "REQUESTS", "answer_lengths", "content"]

FILE = Path(__file__).with_name("lengths_smollm2.json")

REQUESTS = (
    "What is the capital of Portugal?",
    "Write a short poem about the sea.",
    "Explain how a bicycle stays upright.",
    "Translate 'good morning' into French.",
    "Give me three names for a cat.",
    "Write a Python function that reverses a string.",
    "Is the number 17 prime? Answer yes or no.",
    "What should I cook with eggs, rice and spinach?",
    "Who wrote Don Quixote?",
    "List the planets of the solar system.",
    "Why is the sky blue?",
    "Tell me a joke.",
    "Plan a weekend in Rome for two people.",
    "What does the word 'ephemeral' mean?",
    "Correct this sentence: he go to school yesterday.",
    "How many legs does a spider have?",
)

RECIPE: Mapping[str, Any] = {
    "model": "smollm2-135m",
    "requests": list(REQUESTS),
    "samples": 100,
    "cap": 512,
    "temperature": 1.0,
    "seed": 0,
}


def answer_lengths(
    model: Any,
    tokenizer: Any,
    text: str,
    index: int,
    recipe: Mapping[str, Any] = RECIPE,
    progress: Callable[[int, int], None] | None = None,
) -> list[int]:
    """Answer one prompt many times and return the lengths of the answers.

    Parameters
    ----------
    model, tokenizer
        As `icml26.models.load_lm` returns them; the tokenizer has a chat format.
    text : str
        What the user asks.
    index : int
        The prompt's number, so that its random numbers are its own.
    recipe : mapping
        With ``samples``, ``cap`` (tokens), ``temperature`` and ``seed``.
    progress : callable, optional
        As in `icml26.generation.sample`.

    Returns
    -------
    list of int
        Tokens, end token included, in the order they were drawn; a length equal to the cap is censored.
    """
    drawn = generation.sample(
        model,
        [answers.encode(tokenizer, text)],
        samples=recipe["samples"],
        max_new_tokens=recipe["cap"],
        end=tokenizer.eos_token_id,
        temperature=recipe["temperature"],
        generator=torch.Generator().manual_seed(1_000_003 * recipe["seed"] + index),
        progress=progress,
    )
    return drawn.lengths[0].tolist()


def content(lengths: list[list[int]], recipe: Mapping[str, Any] = RECIPE) -> dict[str, Any]:
    """Put lengths together with the recipe that made them, as the file holds them.

    Parameters
    ----------
    lengths : list of list of int
        As `answer_lengths` returns them, one list a prompt.
    recipe : mapping
        What they were made with.

    Returns
    -------
    dict
        Keys ``sha256`` (of the recipe), ``recipe``, ``cap``, ``prompts``, ``lengths``.
    """
    return {
        "sha256": checkpoints.digest(recipe),
        "recipe": dict(recipe),
        "cap": recipe["cap"],
        "prompts": [{"source": "request", "text": text} for text in recipe["requests"]],
        "lengths": lengths,
    }


def _main() -> None:
    from tqdm.auto import tqdm

    folder = paths.cache() / "tie" / checkpoints.digest(RECIPE)
    folder.mkdir(parents=True, exist_ok=True)
    model, tokenizer = models.load_lm(RECIPE["model"])
    for index, text in enumerate(tqdm(REQUESTS, desc="prompts")):
        part = folder / f"{index}.json"
        if not part.is_file():
            paths.write_atomic(part, json.dumps(answer_lengths(model, tokenizer, text, index)))
    lengths = [json.loads((folder / f"{i}.json").read_text(encoding="utf-8")) for i in range(len(REQUESTS))]
    paths.write_atomic(FILE, json.dumps(content(lengths)) + "\n")


if __name__ == "__main__":
    _main()
