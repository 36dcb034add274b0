"""Ancestral sampling: the right distribution, and rows that do not depend on their neighbours."""

import pytest
import torch

from icml26 import generation, models
from icml26.errors import InputError

PROMPTS = [torch.tensor([3, 1, 4]), torch.tensor([5]), torch.tensor([7, 8, 9, 10, 11, 2])]


@pytest.fixture(scope="module")
def model():
    """A small random model whose end token is likely enough to be drawn."""
    found, _ = models.load_lm("tiny-random-llama")
    return found


def draw(model, prompts=PROMPTS, *, samples=6, steps=30, end=0, seed=0, temperature=0.5):
    """Sample with the settings of these tests; a sharp temperature makes the random model's choices uneven."""
    generator = torch.Generator().manual_seed(seed)
    return generation.sample(
        model, prompts, samples=samples, max_new_tokens=steps, end=end, generator=generator, temperature=temperature
    )


def frequent_end(model):
    """A token that this model draws often, so that rows do end."""
    return int(draw(model, samples=40, steps=4).tokens.flatten().mode().values)


def plain(model, prompt, uniform, end, temperature=0.5):
    """One continuation without cache, batch or padding: the definition."""
    tokens = prompt.tolist()
    for number in uniform:
        logits = model(input_ids=torch.tensor([tokens])).logits[0, -1] / temperature
        cumulative = torch.softmax(logits, -1).cumsum(-1, dtype=torch.float64)
        tokens.append(int((cumulative <= number * cumulative[-1]).sum()))
        if tokens[-1] == end:
            break
    return tokens[len(prompt) :]


def test_batched_padded_cached_sampling_equals_one_continuation_at_a_time(model):
    end = frequent_end(model)
    found = draw(model, samples=4, steps=12, end=end)
    uniform = torch.rand((12, 12), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.inference_mode():
        for row in range(12):
            expected = plain(model, PROMPTS[row // 4], uniform[row], end)
            length = int(found.lengths[row // 4, row % 4])
            assert found.tokens[row // 4, row % 4, :length].tolist() == expected


def test_dropping_ended_rows_changes_nothing(model, monkeypatch):
    end = frequent_end(model)
    dropped = draw(model, samples=30, end=end)
    monkeypatch.setattr(generation, "_DROP", 2.0)
    kept = draw(model, samples=30, end=end)
    assert dropped.ended.any()
    assert torch.equal(dropped.tokens, kept.tokens)
    assert torch.equal(dropped.lengths, kept.lengths)


def test_a_length_counts_the_end_token_and_an_unended_row_has_the_cap(model):
    end = frequent_end(model)
    found = draw(model, samples=30, steps=10, end=end)
    for tokens, length, ended in zip(
        found.tokens.flatten(0, 1), found.lengths.flatten(), found.ended.flatten(), strict=True
    ):
        where = (tokens == end).nonzero().flatten()
        assert int(length) == (int(where[0]) + 1 if ended else 10)
        assert bool(ended) == bool(len(where))


def test_first_tokens_follow_the_model_s_distribution(model):
    found = draw(model, PROMPTS[:1], samples=20000, steps=1, temperature=0.05)
    with torch.inference_mode():
        expected = torch.softmax(model(input_ids=PROMPTS[0][None]).logits[0, -1].double() / 0.05, -1)
    share = torch.bincount(found.tokens.flatten(), minlength=len(expected)) / 20000
    top = expected.topk(5).indices
    spread = (expected[top] * (1 - expected[top]) / 20000).sqrt()
    assert ((share[top] - expected[top]).abs() < 4.5 * spread).all()


def test_progress_reports_every_step_and_the_rows_left(model):
    seen = []
    generation.sample(
        model,
        PROMPTS,
        samples=2,
        max_new_tokens=3,
        end=10**6,
        generator=torch.Generator(),
        progress=lambda *at: seen.append(at),
    )
    assert seen == [(1, 6), (2, 6), (3, 6)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": []}, "prompts is empty"),
        ({"prompts": [torch.tensor([])]}, r"prompts\[0\] must be a non-empty vector"),
        ({"prompts": [torch.tensor([True])]}, r"prompts\[0\] must be a non-empty vector of integer"),
        (
            {"prompts": [torch.tensor([3]), torch.tensor([3, 10**6])]},
            r"prompts\[1\] holds 1000000; give token ids",
        ),
        ({"prompts": [torch.tensor([-1])]}, r"prompts\[0\] holds -1; give token ids from 0"),
        ({"generator": 0}, "generator=0 must be a torch.Generator"),
        ({"samples": 0}, "samples=0 must be an integer"),
        ({"max_new_tokens": 2.5}, "max_new_tokens=2.5 must be an integer"),
        ({"end": True}, "end=True must be an integer"),
        ({"temperature": 0}, "temperature=0 must be a positive number"),
    ],
)
def test_wrong_arguments_get_one_line(model, change, message):
    given = {"prompts": PROMPTS, "samples": 2, "max_new_tokens": 2, "end": 0, "generator": torch.Generator()} | change
    with pytest.raises(InputError, match=message):
        generation.sample(model, given.pop("prompts"), **given)
