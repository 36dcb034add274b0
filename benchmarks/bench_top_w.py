"""Top-W beside top-p of `transformers`: what choosing the kept tokens costs for each row of logits.

One thread, released settings, T = 1. Logits fall off as a power of the rank, with noise, in random order; embeddings
are random, as wide as those of SmolLM2-135M (576) and Gemma 3 270M (640): what a row costs hardly depends on what they
say. With the exact shortcut no row needs distances; without it each needs those between all 1,200 tokens of its pool.
Rows alternate a few at a time whatever the batch, so without it at most 4 rows of a batch are timed; labels say so.
"""

from functools import cache

import pytest
import torch
from transformers import TopPLogitsWarper

from icml26.top_w import Geometry, TopWConfig, TopWLogitsWarper

WIDTHS = {49_152: 576, 262_144: 640}
SIZES = [(vocabulary, rows) for vocabulary in WIDTHS for rows in (1, 8, 64)]
LOOP = TopWConfig(fast_path=False)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def group(vocabulary, rows):
    return f"Kept tokens chosen, {rows} {'row' if rows == 1 else 'rows'} of {vocabulary:,} logits"


@cache
def geometry(vocabulary):
    generator = torch.Generator().manual_seed(0)
    return Geometry(torch.randn(vocabulary, WIDTHS[vocabulary], dtype=torch.bfloat16, generator=generator))


def made_up(vocabulary, rows):
    generator = torch.Generator().manual_seed(rows)
    fall = -1.2 * torch.arange(1, vocabulary + 1).log()
    shuffled = torch.stack([fall[torch.randperm(vocabulary, generator=generator)] for _ in range(rows)])
    return shuffled + 0.1 * torch.randn(rows, vocabulary, generator=generator)


def top_w(vocabulary, config=None):
    return TopWLogitsWarper(None, temperature=1.0, config=config, geometry=geometry(vocabulary))


@pytest.mark.parametrize(("vocabulary", "rows"), SIZES)
def test_top_p(measure, vocabulary, rows):
    logits = made_up(vocabulary, rows)
    call = (TopPLogitsWarper(0.9), None, logits)
    found = measure(group(vocabulary, rows), "`TopPLogitsWarper`, 0.9", rows, "row", *call, baseline=True)
    mass = logits.softmax(-1).masked_fill(found == -torch.inf, 0).sum(-1)
    assert ((mass > 0.9 - 1e-4) & (mass < 0.95)).all()


@pytest.mark.parametrize(("vocabulary", "rows"), SIZES)
def test_with_the_shortcut(measure, vocabulary, rows):
    logits = made_up(vocabulary, rows)
    label = "`TopWLogitsWarper`"
    found = measure(group(vocabulary, rows), label, rows, "row", top_w(vocabulary), None, logits)
    assert torch.equal(found, TopWLogitsWarper(None, temperature=1.0)(None, logits))


@pytest.mark.parametrize(("vocabulary", "rows"), SIZES)
def test_without_the_shortcut(measure, vocabulary, rows):
    timed = min(rows, 4)
    logits = made_up(vocabulary, rows)[:timed]
    label = "`TopWLogitsWarper`, the full loop" + (f", {timed} of the {rows} rows" if timed < rows else "")
    found = measure(group(vocabulary, rows), label, timed, "row", top_w(vocabulary, LOOP), None, logits)
    assert torch.equal(found, top_w(vocabulary)(None, logits))
