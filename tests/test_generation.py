"""Ancestral sampling: the right distribution, and rows that do not depend on their neighbours."""

import pytest
import torch
from scipy import stats
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from icml26 import generation, models
from icml26.errors import InputError

PROMPTS = [torch.tensor([3, 1, 4]), torch.tensor([5]), torch.tensor([7, 8, 9, 10, 11, 2])]


@pytest.fixture(scope="module")
def model():
    """A small random model whose end token is likely enough to be drawn."""
    found, _ = models.load_lm("tiny-random-llama")
    return found


def draw(model, prompts=PROMPTS, *, samples=6, steps=30, end=0, seed=0, temperature=0.5, **options):
    """Sample with the settings of these tests; a sharp temperature makes the random model's choices uneven."""
    generator = torch.Generator().manual_seed(seed)
    return generation.sample(
        model,
        prompts,
        samples=samples,
        max_new_tokens=steps,
        end=end,
        generator=generator,
        temperature=temperature,
        **options,
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


def test_processors_and_a_measure_that_change_nothing_leave_every_draw_as_it_is(model):
    end = frequent_end(model)
    without = draw(model, end=end)
    found = draw(model, end=end, processors=[lambda ids, logits: logits], measure=lambda logits: logits[:, 0])
    assert without.measured is None
    for name in ("tokens", "lengths", "ended"):
        assert torch.equal(getattr(found, name), getattr(without, name))


@pytest.mark.parametrize("drop", [0.0, 0.2, 2.0])  # rows leave the batch at once, some at a time, never
def test_a_processor_sees_the_padded_prompt_and_the_tokens_drawn_so_far(model, monkeypatch, drop):
    monkeypatch.setattr(generation, "_DROP", drop)
    end, seen = frequent_end(model), []

    def watch(ids, logits):
        assert logits.dtype == torch.float32
        seen.append(ids.clone())
        return logits

    found = draw(model, samples=20, steps=20, end=end, processors=LogitsProcessorList([watch]))
    padded = torch.zeros((3, 6), dtype=torch.long)
    for row, prompt in enumerate(PROMPTS):
        padded[row, 6 - len(prompt) :] = prompt
    text = torch.cat([padded.repeat_interleave(20, 0), found.tokens.flatten(0, 1)], 1)
    lengths = found.lengths.flatten()
    assert len(seen) == lengths.max()
    for step, ids in enumerate(seen):
        running, rows = text[lengths > step, : 6 + step].tolist(), ids.tolist()
        if drop == 0:
            assert rows == running
        elif drop == 2:
            assert rows == text[:, : 6 + step].tolist()
        else:
            assert [row for row in rows if end not in row[6:]] == running


def test_processors_act_in_their_order_on_raw_logits_and_before_the_temperature(model):
    raw, seen = [], []

    def double(ids, logits):
        return 2 * logits

    def watch(ids, logits):
        seen.append(logits.clone())
        return logits

    found = draw(
        model, steps=3, temperature=0.5, processors=[double, watch], measure=lambda logits: raw.append(logits) or logits
    )
    for before, after in zip(raw, seen, strict=True):
        assert torch.equal(2 * before, after)
    assert torch.equal(found.tokens, draw(model, steps=3, temperature=0.25).tokens)


def test_keeping_the_most_probable_token_alone_is_greedy_decoding(model):
    found = draw(model, samples=2, steps=8, temperature=1.0, processors=[TopKLogitsWarper(1)])
    for prompt, tokens in zip(PROMPTS, found.tokens, strict=True):
        greedy = model.generate(prompt[None], do_sample=False, max_new_tokens=8, eos_token_id=0, pad_token_id=0)
        expected = torch.zeros(8, dtype=torch.long)
        expected[: greedy.shape[1] - len(prompt)] = greedy[0, len(prompt) :]
        assert torch.equal(tokens, expected.expand(2, 8))


@pytest.mark.parametrize(
    "processors",
    [
        [TemperatureLogitsWarper(0.2), TopPLogitsWarper(0.5)],
        [TopKLogitsWarper(5), TemperatureLogitsWarper(0.1)],
        [RepetitionPenaltyLogitsProcessor(20.0), TopKLogitsWarper(4), TemperatureLogitsWarper(0.2)],
    ],
)
def test_two_tokens_follow_the_law_of_the_processed_logits(model, processors):
    n, prompt = 4000, PROMPTS[2]
    pairs = draw(model, [prompt], samples=n, steps=2, end=10**6, temperature=1.0, processors=processors).tokens[0]

    def law(tokens):
        ids = torch.tensor([tokens])
        with torch.inference_mode():
            logits = model(input_ids=ids).logits[:, -1]
            for processor in processors:
                logits = processor(ids, logits)
        return torch.softmax(logits[0].double(), -1)

    first = law(prompt.tolist())
    expected = {
        (a, b): n * float(first[a] * second[b])
        for a in first.nonzero().flatten().tolist()
        for second in [law([*prompt.tolist(), a])]
        for b in second.nonzero().flatten().tolist()
    }
    assert len(expected) > 10
    counts = dict.fromkeys(expected, 0)
    for pair in map(tuple, pairs.tolist()):
        counts[pair] += 1  # a pair that is forbidden is no key
    often = [pair for pair, count in expected.items() if count >= 5]
    observed = [*(counts[pair] for pair in often), n - sum(counts[pair] for pair in often)]
    theory = [*(expected[pair] for pair in often), n - sum(expected[pair] for pair in often)]
    keep = slice(None) if theory[-1] >= 5 else slice(-1)
    assert stats.chisquare(observed[keep], theory[keep], sum_check=False).pvalue > 1e-3


@pytest.mark.parametrize(
    "measure",
    [
        lambda logits: torch.logsumexp(logits, -1),
        lambda logits: torch.stack([logits.amax(-1), logits.log_softmax(-1).mean(-1)], -1),
    ],
)
def test_what_is_measured_is_that_of_one_pass_over_the_drawn_text(model, measure):
    end = frequent_end(model)
    processors = [TopKLogitsWarper(20)]  # the measure sees what they take away
    found = draw(model, samples=30, steps=20, end=end, processors=processors, measure=measure)
    assert found.ended.any()
    assert not found.ended.all()
    assert found.measured.dtype == torch.float32
    assert found.measured.shape[:3] == found.tokens.shape
    for index, prompt in enumerate(PROMPTS):
        for tokens, length, measured in zip(
            found.tokens[index], found.lengths[index], found.measured[index], strict=True
        ):
            with torch.inference_mode():
                logits = model(input_ids=torch.cat([prompt, tokens[:length]])[None]).logits[0, len(prompt) - 1 : -1]
            torch.testing.assert_close(measured[:length], measure(logits), rtol=1e-4, atol=1e-5)
            assert measured[length:].isnan().all()


def test_logits_without_a_possible_token_are_refused_where_a_row_still_runs(model, monkeypatch):
    monkeypatch.setattr(generation, "_DROP", 2.0)
    end = frequent_end(model)

    def only(rows):
        return lambda ids, logits: logits.masked_fill(rows(ids)[:, None], -torch.inf)

    found = draw(model, end=end, processors=[only(lambda ids: (ids[:, 6:] == end).any(1))])
    assert torch.equal(found.tokens, draw(model, end=end).tokens)
    with pytest.raises(InputError, match=r"prompts\[1\] leave no token to draw at step 1: .*let the processors keep"):
        draw(model, processors=[only(lambda ids: ids[:, 5] == 5)])
    with pytest.raises(InputError, match=r"prompts\[0\] leave no token to draw at step 1: .*NaN"):
        draw(model, processors=[lambda ids, logits: logits * torch.nan])


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
        ({"temperature": 0}, "temperature=0 must be a finite number above 0"),
        ({"temperature": float("nan")}, "temperature=nan must be a finite number above 0"),
        ({"processors": TopKLogitsWarper(3)}, "processors=.* must be a sequence"),
        ({"processors": [3]}, r"processors=\[3\] must be a sequence"),
        ({"processors": [lambda ids, logits: logits[:, 1:]]}, r"must return logits of shape \(6, 259\)"),
        ({"processors": [lambda ids, logits: None]}, r"must return logits of shape"),
        ({"measure": 3}, "measure=3 must be None or a function"),
        ({"measure": lambda logits: 0.5}, r"measure gave 0.5; return a tensor of shape \(6,\)"),
        ({"measure": lambda logits: logits[None]}, r"measure gave a tensor of shape \(1, 6, 259\); return"),
    ],
)
def test_wrong_arguments_get_one_line(model, change, message):
    given = {"prompts": PROMPTS, "samples": 2, "max_new_tokens": 2, "end": 0, "generator": torch.Generator()} | change
    with pytest.raises(InputError, match=message):
        generation.sample(model, given.pop("prompts"), **given)
