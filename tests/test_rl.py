"""Advantages are their closed forms, an update is REINFORCE's, what carries no signal changes nothing, rewards rise."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26 import rl, training
from icml26.arithmetic import models
from icml26.arithmetic import task as arithmetic
from icml26.errors import InputError

SHAPE = {
    "model_type": "llama",
    "vocab_size": 8,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "initializer_range": 0.3,
}
END = 7
PROMPTS = [torch.tensor(prompt) for prompt in ([3, 1, 4], [5], [2, 6, 5, 3, 1], [4, 4])]
CONFIG = rl.GRPOConfig(steps=1, max_new_tokens=6, end=END, questions=3, samples=5, learning_rate=1e-3, max_norm=1e9)

rewards_of_groups = st.integers(2, 9).flatmap(
    lambda size: st.lists(st.lists(st.integers(-20, 20), min_size=size, max_size=size), min_size=1, max_size=4)
)


def tiny(seed=0):
    return training.build(SHAPE, seed)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def evens(index, tokens):
    """A reward with some spread: the number of even tokens, and a constant of the prompt."""
    return float((tokens % 2 == 0).sum()) + 10 * index


def run(reward, config=CONFIG, seed=0, prompts=PROMPTS):
    model = tiny()
    return model, rl.grpo(model, prompts, reward, config, seed=seed)


def recorded(config, seed=0):
    """The continuations of a run's batches, by prompt, in the order drawn, and what the run made of the weights."""
    drawn = []
    model, history = run(
        lambda index, tokens: drawn.append((index, tokens.tolist())) or evens(index, tokens), config, seed
    )
    return model, history, drawn


@given(st.integers(2, 40).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size - 1))))
def test_advantages_of_right_and_wrong_answers_are_the_closed_form_and_balance(case):
    size, right = case
    found = rl.group_advantages([1.0] * right + [0.0] * (size - right))
    np.testing.assert_allclose(found[:right], math.sqrt((size - right) / right))
    np.testing.assert_allclose(found[right:], -math.sqrt(right / (size - right)))
    assert found[:right].sum() == pytest.approx(math.sqrt(right * (size - right)))


@given(rewards_of_groups, st.sampled_from([0, 1]))
def test_advantages_are_what_plain_loops_give(groups, ddof):
    found = rl.group_advantages(groups, ddof)
    for row, group in zip(found, groups, strict=True):
        mean = sum(group) / len(group)
        deviation = math.sqrt(sum((r - mean) ** 2 for r in group) / (len(group) - ddof))
        expected = [(r - mean) / deviation if deviation else 0.0 for r in group]
        np.testing.assert_allclose(row, expected, atol=1e-12)


@given(rewards_of_groups, st.floats(0.01, 100), st.floats(-10, 10))
def test_advantages_ignore_the_rewards_unit_and_origin(groups, unit, origin):
    moved = unit * np.array(groups) + origin
    np.testing.assert_allclose(rl.group_advantages(moved), rl.group_advantages(groups), atol=1e-8)


def test_rounding_in_equal_rewards_is_not_blown_up():
    assert not rl.group_advantages([0.1 + 0.2, 0.3, 0.3]).any()
    assert not rl.group_advantages(np.full(7, 0.1, np.float32) * np.float32(3)).any()
    assert not rl.group_advantages([[0.0, 0.0], [1e300, 1e300], [5e-324, 5e-324]]).any()
    assert not rl.group_advantages([[2.0], [3.0]], ddof=1).any()


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_extreme_rewards_neither_overflow_nor_vanish(scale):
    np.testing.assert_allclose(rl.group_advantages([scale, -scale]), [1, -1])


def test_padded_log_probabilities_are_those_of_each_sequence_alone():
    model = tiny()
    tokens = torch.randint(8, (len(PROMPTS), 5), generator=torch.Generator().manual_seed(1))
    together = rl.token_log_probs(model, PROMPTS, tokens, temperature=0.7)
    for row, prompt in enumerate(PROMPTS):
        for length in range(1, 6):
            text = torch.cat([prompt, tokens[row, :length]])
            logits = model(input_ids=text[None, :-1]).logits[0, -1] / 0.7
            expected = logits[text[-1]] - logits.exp().sum().log()
            assert together[row, length - 1].item() == pytest.approx(expected.item(), abs=1e-5)


def test_tokens_after_the_end_carry_no_loss():
    model = tiny()
    tokens = torch.tensor([[1, END, END, END], [2, 3, 4, 5]])
    mask = torch.tensor([[True, True, False, False], [True] * 4])
    gains = torch.tensor([1.5, -0.5])

    def gradient(tokens):
        model.zero_grad()
        log_probs = rl.token_log_probs(model, PROMPTS[:2], tokens)
        loss = rl.policy_loss(log_probs, log_probs.detach(), gains, mask)
        loss.backward()
        return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])

    loss, expected = gradient(tokens)
    other = tokens.clone()
    other[0, 2:] = torch.tensor([6, 0])
    again, found = gradient(other)
    assert loss == again
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-5)


def test_a_hopeless_token_after_the_end_does_not_spoil_the_loss():
    new = torch.tensor([[-1.0, 500.0, -math.inf]], requires_grad=True)
    old = torch.tensor([[-1.0, -500.0, -1.0]])
    rl.policy_loss(new, old, torch.ones(1), torch.tensor([[True, False, False]])).backward()
    assert new.grad.tolist() == [[-1.0, 0.0, 0.0]]


@given(st.floats(-1, 1), st.sampled_from([-2.0, -0.5, 0.5, 2.0]), st.floats(0.05, 0.5))
def test_the_loss_pushes_a_probability_until_the_clip_and_never_further(change, gain, clip):
    new = torch.tensor([[change]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones((1, 1), dtype=torch.bool)
    loss = rl.policy_loss(new, torch.zeros_like(new), torch.tensor([gain]).double(), mask, clip)
    loss.backward()
    ratio = math.exp(change)
    expected = min(ratio * gain, max(1 - clip, min(ratio, 1 + clip)) * gain)
    assert loss.item() == pytest.approx(-expected)
    done = ratio > 1 + clip if gain > 0 else ratio < 1 - clip
    assert new.grad.item() == pytest.approx(0.0 if done else -ratio * gain)


@pytest.mark.parametrize("updates", [1, 2])
def test_an_update_is_that_of_reinforce_with_advantages_of_groups(updates):
    """The definition in plain loops: one sequence at a time, one token after another, no padding, no batch."""
    config = replace(CONFIG, updates=updates, learning_rate=0.02, temperature=1.3)
    found, history, drawn = recorded(config)
    assert len({len(tokens) for _, tokens in drawn}) > 1  # so that there is something to mask

    model = tiny()
    optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    old, norms = {}, []
    for _ in range(updates):
        objective = 0.0
        for number, (index, tokens) in enumerate(drawn):
            group = [evens(index, torch.tensor(other)) for same, other in drawn if same == index]
            mean = sum(group) / len(group)
            deviation = math.sqrt(sum((r - mean) ** 2 for r in group) / len(group))
            gain = (evens(index, torch.tensor(tokens)) - mean) / deviation
            for place, token in enumerate(tokens):
                text = torch.tensor([PROMPTS[index].tolist() + tokens[:place]])
                log_prob = torch.log_softmax(model(input_ids=text).logits[0, -1] / 1.3, -1)[token]
                ratio = (log_prob - old.setdefault((number, place), log_prob.item())).exp()
                best = 1.2 if gain > 0 else 0.8
                term = gain * (ratio if gain * ratio.item() <= gain * best else best)
                objective = objective + term / len(tokens) / len(drawn)
        optimiser.zero_grad()
        (-objective).backward()
        norms.append(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()))
        optimiser.step()

    assert history.norm[0] == pytest.approx(np.mean(norms), rel=1e-4)
    moved, expected = weights(found) - weights(tiny()), weights(model) - weights(tiny())
    assert float(torch.cosine_similarity(moved, expected, dim=0)) > 0.9999
    assert float(moved.norm()) == pytest.approx(float(expected.norm()), rel=1e-3)


def test_a_large_gradient_is_cut_to_its_greatest_norm(monkeypatch):
    monkeypatch.setattr(torch.optim, "Adam", torch.optim.SGD)
    free, history = run(evens, replace(CONFIG, learning_rate=1.0))
    cut, _ = run(evens, replace(CONFIG, learning_rate=1.0, max_norm=float(history.norm[0]) / 4))
    start = weights(tiny())
    torch.testing.assert_close(weights(cut) - start, (weights(free) - start) / 4, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("value", [0.0, 1.0, True])
def test_groups_all_right_or_all_wrong_give_no_update(value):
    model, history = run(lambda index, tokens: value, replace(CONFIG, steps=2))
    assert torch.equal(weights(model), weights(tiny()))
    assert (history.flat == 1).all()
    assert (history.norm == 0).all()
    assert (history.reward == float(value)).all()


def test_flat_groups_stop_the_optimiser_s_momentum_too():
    calls = []

    def at_first(index, tokens):
        calls.append(index)
        return evens(index, tokens) if len(calls) <= CONFIG.questions * CONFIG.samples else 1.0

    longer, history = run(at_first, replace(CONFIG, steps=3))
    once, _ = run(evens)
    assert history.flat.tolist()[1:] == [1, 1]
    assert torch.equal(weights(longer), weights(once))


def test_a_flat_group_only_dilutes_the_batch(monkeypatch):
    monkeypatch.setattr(torch.optim, "Adam", torch.optim.SGD)
    config = replace(CONFIG, questions=2, learning_rate=1.0)
    both, history = run(lambda index, tokens: evens(0, tokens) * (index == 0), config, prompts=PROMPTS[:2])
    assert history.flat[0] == 0.5

    model = tiny()
    drawn = []
    rl.grpo(
        tiny(), PROMPTS[:2], lambda index, tokens: drawn.append((index, tokens)) or 1.0, config, seed=0
    )  # the same continuations
    gains = rl.group_advantages([evens(0, tokens) for index, tokens in drawn if index == 0])
    alone = [tokens for index, tokens in drawn if index == 0]
    loss = sum(
        -gain * rl.token_log_probs(model, PROMPTS[:1], tokens[None]).mean()
        for gain, tokens in zip(gains, alone, strict=True)
    )
    (loss / len(drawn)).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(weights(tiny()) - weights(both), expected, atol=1e-6, rtol=1e-3)


def test_the_reward_of_a_trivial_task_rises():
    config = rl.GRPOConfig(steps=20, max_new_tokens=4, end=END, questions=4, samples=8, learning_rate=0.02)
    seen = []
    model = tiny()
    history = rl.grpo(
        model,
        PROMPTS,
        lambda index, tokens: float((tokens == 5).double().mean()),
        config,
        seed=0,
        progress=lambda step, reward: seen.append((step, reward)),
    )
    assert history.reward[:3].mean() < 0.3
    assert history.reward[-3:].mean() > 0.8
    assert seen == [(step + 1, reward) for step, reward in enumerate(history.reward)]
    assert not model.training


def test_ending_is_learnt_as_an_action_of_its_own():
    config = rl.GRPOConfig(steps=20, max_new_tokens=6, end=END, questions=4, samples=8, learning_rate=0.02)
    _, history = run(lambda index, tokens: -len(tokens), config)
    assert history.length[0] > 3
    assert history.length[-3:].mean() < 1.2


def test_equal_seeds_give_equal_weights_and_other_seeds_others():
    config = replace(CONFIG, steps=3)
    (first, history), (again, _), (other, _) = run(evens, config), run(evens, config), run(evens, config, seed=1)
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(other))
    assert (history.norm > 0).all()


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(evens)
    assert torch.equal(torch.rand(3), expected)


@settings(max_examples=5)
@given(st.integers(0, 100))
def test_a_step_draws_different_prompts_and_shows_a_reward_whole_continuations(seed):
    _, _, drawn = recorded(replace(CONFIG, max_new_tokens=4), seed)
    assert len({index for index, _ in drawn}) == CONFIG.questions
    assert len(drawn) == CONFIG.questions * CONFIG.samples
    for _, tokens in drawn:
        assert END not in tokens[:-1]
        assert tokens[-1] == END or len(tokens) == 4


@pytest.mark.parametrize("family", ["chain", "checked"])
def test_committed_models_answer_more_problems_after_grpo_than_before(family):
    problems = arithmetic.problems(models.task_of(f"{family}-0"), 48, seed=91)
    before, after = (
        models.pass_at_1(models.load(name).model, problems, seed=0, samples=4)
        for name in (f"{family}-0", f"{family}-rl-0")
    )
    assert after > before + 0.05
    assert after < 0.95  # wrong answers remain, to be told from right ones


def test_a_recipe_of_grpo_rewards_right_answers_from_its_parent_on():
    recipe = models.RECIPES["chain-rl-1"] | {"problems": 9}
    recipe["rl"] = recipe["rl"] | {"questions": 3, "samples": 4, "steps": 5}
    shares = []
    found = models.continue_by_grpo(recipe, steps=2, progress=lambda step, share: shares.append(share))

    problems = arithmetic.problems(arithmetic.Task(1, 10), 9, np.random.default_rng([1, 2]))
    expected = models.load("chain-1").model
    history = rl.grpo(
        expected,
        problems.prompts,
        lambda index, tokens: float(arithmetic.check(problems, index, tokens).correct),
        replace(rl.GRPOConfig(**recipe["rl"]), steps=2),
        seed=1,
    )
    assert torch.equal(weights(found), weights(expected))
    assert shares == history.reward.tolist()


def test_grpo_does_not_continue_a_parent_of_another_recipe():
    with pytest.raises(InputError, match="chain-0 is not of this recipe's parent"):
        models.continue_by_grpo(models.RECIPES["chain-rl-0"] | {"parent_sha256": "0" * 64})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: replace(CONFIG, steps=0), "steps=0 must be an integer of at least 1"),
        (lambda: replace(CONFIG, samples=1), "samples=1 must be an integer of at least 2"),
        (lambda: replace(CONFIG, end=True), "end=True must be an integer"),
        (lambda: replace(CONFIG, updates=1.5), "updates=1.5 must be an integer"),
        (lambda: replace(CONFIG, learning_rate=float("nan")), "learning_rate=nan must be a finite number above 0"),
        (lambda: replace(CONFIG, temperature=0), "temperature=0 must be a finite number above 0"),
        (lambda: replace(CONFIG, clip=1), "clip=1 must be a finite number above 0 and below 1"),
        (lambda: replace(CONFIG, ddof=2), "ddof=2 must be an integer"),
        (lambda: rl.group_advantages([]), r"rewards has shape \(0,\)"),
        (lambda: rl.group_advantages(1.0), r"rewards has shape \(\)"),
        (lambda: rl.group_advantages([[1, 2], [3]]), "every group of the same size"),
        (lambda: rl.group_advantages([1.0, math.nan]), "rewards holds NaN"),
        (lambda: rl.group_advantages([1.0, 2.0], ddof=-1), "ddof=-1 must be an integer"),
        (lambda: rl.token_log_probs(tiny(), PROMPTS, torch.tensor([[1]])), "there are 4 prompts"),
        (lambda: rl.token_log_probs(tiny(), PROMPTS[:1], torch.tensor([[1]]), 0), "temperature=0"),
        (lambda: run(evens, seed=-1), "seed=-1 must be an integer"),
        (lambda: run(evens, prompts=PROMPTS[:2]), "prompts are 2, fewer than questions=3"),
        (lambda: run(lambda index, tokens: None), "reward returned None for prompt"),
        (lambda: run(lambda index, tokens: math.inf), "reward returned inf for prompt"),
        (lambda: run(evens, replace(CONFIG, steps=9, learning_rate=1e30)), "not finite"),
    ],
)
def test_wrong_arguments_get_one_line(call, message):
    with pytest.raises(InputError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
