"""KAPPA's step as linear algebra, and in a running model."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import DynamicCache

from icml26.checkpoints import build
from icml26.errors import InputError
from icml26.kappa import hooks
from icml26.kappa.intervention import Kappa, condition, shift, spectral_radius
from icml26.kappa.probes import Probe
from icml26.models import load_lm

WIDTH = 12


def probes(seed=0, classes=3, width=WIDTH, scale=1.0):
    draw = np.random.default_rng(seed)
    return tuple(Probe(draw.normal(size=(width, classes)) * scale, draw.normal(size=classes)) for _ in range(2))


def states(seed=0, count=5, width=WIDTH):
    return np.random.default_rng([seed, 1]).normal(size=(count, width)) * 2


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


KNOW, PRED = probes()
H = states()


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(-3, 3), st.floats(-3, 3))
def test_one_step_makes_the_prediction_logits_the_target(seed, classes, alpha, beta):
    (know, pred), h = probes(seed, classes), states(seed)
    moved = h + shift(h, know, pred, alpha=alpha, beta=beta, centred=False)
    target = alpha * know.logits(h) + beta * np.sign(know.logits(h))
    np.testing.assert_allclose(pred.logits(moved), target, atol=1e-7)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 6), st.booleans())
def test_the_step_is_the_shortest_of_all_that_meet_the_constraint(seed, classes, centred):
    (know, pred), h = probes(seed, classes), states(seed)
    step = shift(h, know, pred, centred=centred)
    columns = (pred.centred() if centred else pred).weights
    inside = columns @ np.linalg.pinv(columns)
    np.testing.assert_allclose(step @ inside, step, atol=1e-7)
    # Another feasible point: anything orthogonal to the columns is free.
    free = states(seed + 1) @ (np.eye(WIDTH) - inside)
    np.testing.assert_allclose((h + step + free) @ columns, (h + step) @ columns, atol=1e-7)
    assert (np.linalg.norm(step + free, axis=1) > np.linalg.norm(step, axis=1)).all()
    orthogonal = np.eye(WIDTH) - inside
    np.testing.assert_allclose((h + step) @ orthogonal, h @ orthogonal, atol=1e-7)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.floats(0.1, 3))
def test_repeated_steps_shrink_or_grow_by_alpha_m(seed, alpha):
    (know, pred), h = probes(seed), states(seed, count=1)[0]
    m = know.weights.T @ pred.weights @ np.linalg.inv(pred.weights.T @ pred.weights)
    left = alpha * know.logits(h) - pred.logits(h)
    for _ in range(4):
        before = know.logits(h)
        h = h + shift(h, know, pred, alpha=alpha, centred=False)
        np.testing.assert_allclose(know.logits(h), before + m @ left, rtol=1e-6, atol=1e-6)
        left = alpha * m @ left
        np.testing.assert_allclose(alpha * know.logits(h) - pred.logits(h), left, rtol=1e-6, atol=1e-6)
    radius = spectral_radius(know, pred, alpha=alpha, centred=False)
    assert radius == pytest.approx(alpha * np.abs(np.linalg.eigvals(m)).max())


def test_steps_run_away_exactly_above_spectral_radius_one():
    radius = spectral_radius(KNOW, PRED)
    for alpha, grows in ((0.9 / radius, False), (1.1 / radius, True)):
        h = H.copy()
        for _ in range(200):
            h = h + shift(h, KNOW, PRED, alpha=alpha)
        rest = shift(h, KNOW, PRED, alpha=alpha)
        assert (np.abs(rest).max() > 1e3) == grows
        assert grows or np.abs(rest).max() < 1e-3


def test_one_step_is_enough_where_the_subspaces_are_orthogonal():
    know, pred = Probe(np.eye(8)[:, :3], [0.1, 0, -0.2]), Probe(np.eye(8)[:, 4:7] * 2, [0.5, 0, 0])
    h = states(width=8)
    moved = h + shift(h, know, pred, alpha=4)
    np.testing.assert_allclose(shift(moved, know, pred, alpha=4), 0, atol=1e-12)
    assert spectral_radius(know, pred, alpha=4) == pytest.approx(0)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 5), st.sampled_from([0.0, 1.5]))
def test_the_centred_step_does_not_see_what_a_softmax_does_not_see(seed, classes, beta):
    (know, pred), h = probes(seed, classes), states(seed)
    draw = np.random.default_rng(seed)
    plain = shift(h, know, pred, alpha=2, beta=beta)
    for _ in range(2):
        know, pred = (
            Probe(p.weights + 5 * draw.normal(size=(WIDTH, 1)), p.bias + 7 * draw.normal()) for p in (know, pred)
        )
        np.testing.assert_allclose(shift(h, know, pred, alpha=2, beta=beta), plain, atol=1e-6)


def test_alignment_gives_the_prediction_probe_the_distribution_that_the_knowledge_probe_had():
    moved = H + shift(H, KNOW, PRED)
    np.testing.assert_allclose(softmax(PRED.logits(moved)), softmax(KNOW.logits(H)), atol=1e-9)
    assert np.abs(softmax(KNOW.logits(moved)) - softmax(KNOW.logits(H))).max() > 0.01


def test_states_that_half_precision_cannot_hold_are_refused():
    states = torch.full((1, 2, WIDTH), 2000.0, dtype=torch.float16)
    pairs = {0: tuple(Probe(p.weights * 5, p.bias) for p in (KNOW, PRED))}
    with pytest.raises(InputError, match="beyond torch"):
        Kappa(pairs, alpha=3000.0).edit(states, 0)
    assert Kappa(pairs, alpha=1.0).edit(states, 0).isfinite().all()


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_without_a_sign_the_centred_step_is_never_longer(seed, classes):
    (know, pred), h = probes(seed, classes), states(seed)
    centred, plain = (np.linalg.norm(shift(h, know, pred, centred=c), axis=1) for c in (True, False))
    assert (centred <= plain + 1e-9).all()


def test_equal_probes_move_nothing():
    for mode in ({"centred": True}, {"centred": False}):
        np.testing.assert_allclose(shift(H, PRED, PRED, **mode), 0, atol=1e-12)


def test_two_options_are_one_logit_difference():
    know, pred = probes(3, classes=2)
    (wk, ck), (wp, cp) = ((p.weights[:, 1] - p.weights[:, 0], p.bias[1] - p.bias[0]) for p in (know, pred))
    expected = [((wk @ h + ck) - (wp @ h + cp)) / (wp @ wp) * wp for h in H]
    np.testing.assert_allclose(shift(H, know, pred), expected, atol=1e-12)


def released(h, know, pred, w, beta, m):
    """The released module, line by line, for one state."""
    a_matrix = know.weights.T / np.sqrt((know.weights**2).sum())
    p_matrix = pred.weights.T / np.sqrt((pred.weights**2).sum())
    tau_k, tau_p = -know.bias, -pred.bias
    a, p = a_matrix @ h, p_matrix @ h
    s = np.array([-1.0 if a[i] < tau_k[i] else 1.0 for i in range(len(a))])
    t = w * (a - tau_k) + beta * s + tau_p
    return m * p_matrix.T @ (t - p)


@pytest.mark.parametrize(("w", "beta", "m"), [(30.0, 0.0, 1.0), (2.0, 1.5, 0.5)])
def test_the_released_form_is_the_released_modules(w, beta, m):
    found = shift(H, KNOW, PRED, alpha=w, beta=beta, mode="released", multiplier=m)
    np.testing.assert_allclose(found, [released(h, KNOW, PRED, w, beta, m) for h in H], atol=1e-12)
    assert not np.allclose(found, shift(H, KNOW, PRED, alpha=w, beta=beta, multiplier=m))


def test_released_and_exact_coincide_for_one_row_of_unit_norm_without_bias():
    know, pred = (Probe(p.weights[:, :1] / np.linalg.norm(p.weights[:, :1]), [0.0]) for p in (KNOW, PRED))
    exact = shift(H, know, pred, alpha=3, centred=False)
    np.testing.assert_allclose(shift(H, know, pred, alpha=3, mode="released"), exact, atol=1e-12)


def test_the_released_step_is_under_relaxed_by_the_number_of_options():
    know, pred = Probe(np.eye(8)[:, :4], np.zeros(4)), Probe(np.eye(8)[:, 4:], np.zeros(4))
    h = np.eye(8)[:1]
    step = shift(h, know, pred, alpha=1, mode="released")
    # Orthonormal columns: exact mode reaches the target 1, released mode 1/k of it.
    assert pred.logits(h + shift(h, know, pred, centred=False))[0, 0] == pytest.approx(1)
    assert pred.logits(h + step)[0, 0] == pytest.approx(1 / 4)


def test_only_the_released_sign_of_zero_is_positive():
    know, pred = Probe(np.eye(4)[:, :2], np.zeros(2)), Probe(np.eye(4)[:, 2:], np.zeros(2))
    zero = np.zeros((1, 4))
    np.testing.assert_array_equal(shift(zero, know, pred, beta=1), 0)
    assert (shift(zero, know, pred, beta=1, mode="released")[0, 2:] > 0).all()


def test_the_multiplier_scales_the_step():
    np.testing.assert_allclose(shift(H, KNOW, PRED, multiplier=0.5), shift(H, KNOW, PRED) / 2)
    np.testing.assert_array_equal(shift(H, KNOW, PRED, multiplier=0), 0)


def test_nearly_collinear_columns_are_cut_instead_of_blowing_up():
    weights = PRED.weights.copy()
    weights[:, 1] = weights[:, 0] + 1e-9 * weights[:, 1]  # a class that never differs from another
    pred = Probe(weights, PRED.bias)
    for centred in (True, False):
        assert condition(pred, centred=centred) == np.inf
        assert np.abs(shift(H, KNOW, pred, centred=centred)).max() < 100
    values = np.linalg.svd(PRED.centred().weights, compute_uv=False)
    assert condition(PRED) == pytest.approx(values[0] / values[1])


def test_numpy_and_torch_agree_and_half_precision_is_computed_in_float32():
    expected = shift(H, KNOW, PRED, alpha=2)
    found = shift(torch.from_numpy(H), KNOW, PRED, alpha=2)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        given_states = torch.from_numpy(H).to(dtype)
        found = shift(given_states, KNOW, PRED, alpha=2)
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, shift(given_states.double(), KNOW, PRED, alpha=2), atol=1e-4)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: shift(H, KNOW, probes(classes=4)[0]), "two probes"),
        (lambda: shift(H, KNOW, probes(width=3)[0]), "two probes"),
        (lambda: shift(H[:, :3], KNOW, PRED), "hidden has width 3"),
        (lambda: shift([["a"]], KNOW, PRED), "hidden is not numbers"),
        (lambda: shift(H, KNOW.weights, PRED), "know is a ndarray"),
        (lambda: shift(H, KNOW, PRED, mode="paper"), "mode='paper'"),
        (lambda: shift(H, KNOW, PRED, alpha=np.nan), "alpha=nan"),
        (lambda: shift(H, KNOW, PRED, beta=True), "beta=True"),
        (lambda: shift(H, Probe(np.zeros((WIDTH, 3)), np.ones(3)), PRED, mode="released"), "zero"),
        (lambda: Kappa({0: (KNOW, PRED)}, positions="all"), "positions='all'"),
        (lambda: Kappa({"0": (KNOW, PRED)}), "blocks"),
        (lambda: Kappa([(KNOW, PRED)]), "blocks"),
        (lambda: Kappa({0: KNOW}), "pairs must"),
        (lambda: shift(np.full((2, WIDTH), np.nan), KNOW, PRED), "not finite"),
        (lambda: shift(torch.from_numpy(H).float(), KNOW, PRED, alpha=1e39), "beyond torch.float32 with alpha=1e"),
        (lambda: shift(H * 1j, KNOW, PRED), "complex"),
        (lambda: shift(1.0, KNOW, PRED), "hidden has width 0"),
        (lambda: shift(H, KNOW, PRED, centred="no"), "centred='no'"),
        (lambda: Kappa({0: (KNOW, PRED)}).edit(H[None], 0), "Tensor"),
        (lambda: Kappa({0: (KNOW, PRED)}).edit(torch.zeros(1, 4, WIDTH), 0, start=2), "'last' takes none"),
        (lambda: Kappa({0: (KNOW, PRED)}, positions="after").edit(torch.zeros(1, 4, WIDTH), 0), "needs a start"),
        (lambda: Kappa({0: (KNOW, PRED)}, positions="after").edit(torch.zeros(1, 4, WIDTH), 0, start=4), "start=4"),
        (lambda: Kappa({0: (KNOW, PRED)}, positions="after").edit(torch.zeros(1, 4, WIDTH), 0, start=1.5), "start=1.5"),
    ],
)
def test_wrong_input_is_refused(call, told):
    with pytest.raises(InputError, match=told):
        call()


# In a model.


@pytest.fixture(scope="module")
def lm():
    return load_lm("tiny-random-llama")


@pytest.fixture(scope="module")
def kappa():
    return Kappa({layer: probes(layer, width=128, scale=0.3) for layer in (0, 1)}, alpha=5.0)


def ids(lm, text):
    return lm[1](text, return_tensors="pt")["input_ids"]


def padded(lm, texts, side):
    lm[1].padding_side = side
    return lm[1](texts, return_tensors="pt", padding=True)


def by_hand(model, tokens, edit):
    """Run a Llama block by block on one unpadded prompt; ``edit(layer, states)`` returns the edited states."""
    with torch.no_grad():
        hidden = model.model.embed_tokens(tokens)
        places = torch.arange(tokens.shape[1])[None]
        rotary = model.model.rotary_emb(hidden, places)
        mask = torch.full((tokens.shape[1],) * 2, -1e9).triu(1)[None, None]
        for layer, block in enumerate(model.model.layers):
            hidden = block(hidden, attention_mask=mask, position_ids=places, position_embeddings=rotary)
            hidden = edit(layer, hidden)
        return model.lm_head(model.model.norm(hidden))


def step(kappa, layer, state):
    """The exact centred step of one state, in NumPy."""
    know, pred = (p.centred() for p in kappa.pairs[layer])
    gap = kappa.alpha * know.logits(state.numpy()) - pred.logits(state.numpy())
    return torch.from_numpy(pred.weights @ np.linalg.pinv(pred.weights.T @ pred.weights, rcond=1e-10) @ gap).float()


def edited(kappa, first, last=None, each=False):
    """An edit of positions first to last by the shift of the last, or of each of them by its own."""

    def edit(layer, hidden):
        hidden = hidden.clone()
        end = hidden.shape[1] if last is None else last + 1
        common = step(kappa, layer, hidden[0, end - 1])
        for place in range(first, end):
            hidden[0, place] += step(kappa, layer, hidden[0, place]) if each else common
        return hidden

    return edit


@torch.no_grad()
def run(lm, kappa, *arguments, **named):
    options = {name: named.pop(name) for name in ("start", "prompt_length", "generated") if name in named}
    told = named.pop("told", None)
    with kappa.applied(lm[0], attention_mask=told, **options):
        return lm[0](*arguments, **named).logits


def test_several_blocks_are_shifted_in_order_of_depth(lm, kappa):
    tokens = ids(lm, "some words")
    found, expected = run(lm, kappa, tokens), by_hand(lm[0], tokens, edited(kappa, tokens.shape[1] - 1))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        plain = lm[0](tokens).logits
    torch.testing.assert_close(plain, by_hand(lm[0], tokens, lambda layer, hidden: hidden), atol=1e-4, rtol=1e-4)
    assert (found[:, -1] - plain[:, -1]).abs().max() > 0.01
    assert torch.equal(found[:, :-1], plain[:, :-1])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches_equal_single_runs(lm, kappa, side):
    texts = ["one", "three words here", "two words"]
    batch = padded(lm, texts, side)
    found = run(lm, kappa, **batch)
    for row, text in enumerate(texts):
        alone = run(lm, kappa, ids(lm, text))
        torch.testing.assert_close(found[row][batch["attention_mask"][row] == 1], alone[0], atol=1e-4, rtol=1e-4)


def test_a_mask_can_be_told_to_the_context_alone(lm, kappa):
    batch = padded(lm, ["one", "three words here"], "right")
    with torch.no_grad(), kappa.applied(lm[0], attention_mask=batch["attention_mask"]):
        found = lm[0](batch["input_ids"]).logits[0, 2]
    torch.testing.assert_close(found, run(lm, kappa, ids(lm, "one"))[0, -1], atol=1e-4, rtol=1e-4)


def test_all_tokens_from_a_start_get_the_last_ones_shift(lm, kappa):
    after = Kappa(kappa.pairs, alpha=5.0, positions="after")
    tokens = ids(lm, "some words")
    expected = by_hand(lm[0], tokens, edited(kappa, 4))
    torch.testing.assert_close(run(lm, after, tokens, start=4), expected, atol=1e-4, rtol=1e-4)
    batch = padded(lm, ["some words", "one"], "left")
    found = run(lm, after, **batch, start=torch.tensor([4, 9]))
    torch.testing.assert_close(found[:1], expected, atol=1e-4, rtol=1e-4)
    alone = run(lm, after, ids(lm, "one"), start=2)
    torch.testing.assert_close(found[1, -3:], alone[0], atol=1e-4, rtol=1e-4)


def greedy(lm, kappa, tokens, count, each):
    """Greedy decoding without a cache."""
    prompt = tokens.shape[1]
    for _ in range(count):
        edit = edited(kappa, prompt - 1, None if each else prompt - 1, each=each)
        tokens = torch.cat([tokens, by_hand(lm[0], tokens, edit)[:, -1].argmax(-1)[:, None]], 1)
    return tokens


@pytest.mark.parametrize("generated", [False, True])
def test_generate_shifts_the_prompt_and_decoded_tokens_only_on_request(lm, kappa, generated):
    tokens = ids(lm, "ab")
    with kappa.applied(lm[0], generated=generated):
        found = lm[0].generate(tokens, max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert torch.equal(found, greedy(lm, kappa, tokens, 6, generated))


def test_shifting_decoded_tokens_makes_a_difference(lm, kappa):
    strong = Kappa(kappa.pairs, alpha=20.0)
    tokens = ids(lm, "ab")
    assert not torch.equal(greedy(lm, strong, tokens, 6, True), greedy(lm, strong, tokens, 6, False))


def test_a_padded_batch_generates_what_single_prompts_do(lm, kappa):
    texts = ["one", "three words here"]
    batch = padded(lm, texts, "left")
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    for generated in (False, True):
        with kappa.applied(lm[0], generated=generated):
            found = lm[0].generate(**batch, **options)
            for row, text in enumerate(texts):
                alone = lm[0].generate(ids(lm, text), **options)
                assert torch.equal(found[row, -4:], alone[0, -4:])


@torch.no_grad()
def test_a_kept_cache_gives_the_same_answer_when_the_end_of_the_prompt_is_told(lm, kappa):
    tokens = ids(lm, "some words")
    length = tokens.shape[1]
    cache = DynamicCache(config=lm[0].config)
    lm[0](tokens[:, :-1], cache=cache)
    for _ in range(2):
        found = run(lm, kappa, tokens[:, -1:], cache=cache, prompt_length=length)
        torch.testing.assert_close(found[:, -1], run(lm, kappa, tokens)[:, -1], atol=1e-4, rtol=1e-4)
        cache.crop(-1)


@torch.no_grad()
def test_a_prompt_fed_in_pieces_is_shifted_at_its_end_alone(lm, kappa):
    tokens = ids(lm, "some words")
    cache = DynamicCache(config=lm[0].config)
    with kappa.applied(lm[0], prompt_length=10):
        for piece in (tokens[:, :4], tokens[:, 4:7], tokens[:, 7:]):
            found = lm[0](piece, cache=cache).logits
        decoded = lm[0](tokens[:, :1], cache=cache).logits
    torch.testing.assert_close(found[:, -1], run(lm, kappa, tokens)[:, -1], atol=1e-4, rtol=1e-4)
    longer = torch.cat([tokens, tokens[:, :1]], 1)
    torch.testing.assert_close(decoded, by_hand(lm[0], longer, edited(kappa, 9, 9))[:, -1:], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_filled_cache_without_a_word_about_it_is_refused(lm, kappa):
    tokens = ids(lm, "some words")
    cache = DynamicCache(config=lm[0].config)
    lm[0](tokens[:, :-1], cache=cache)
    with pytest.raises(InputError, match="prompt_length=10"), kappa.applied(lm[0]):
        lm[0](tokens[:, -1:], cache=cache)
    assert hooked(lm[0]) == 0


def hooked(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@torch.no_grad()
def test_without_probes_and_after_the_context_a_model_is_what_it_was(lm, kappa):
    tokens = ids(lm, "some words")
    hooks_before = hooked(lm[0])
    plain = lm[0](tokens).logits
    with Kappa({}).applied(lm[0]):
        assert hooked(lm[0]) == hooks_before
        assert torch.equal(lm[0](tokens).logits, plain)
    run(lm, kappa, tokens)
    assert hooked(lm[0]) == hooks_before
    assert torch.equal(lm[0](tokens).logits, plain)


def test_an_exception_leaves_no_hook_behind(lm, kappa):
    before = hooked(lm[0])
    with pytest.raises(ZeroDivisionError), kappa.applied(lm[0]):
        raise ZeroDivisionError
    with pytest.raises(InputError, match="width"), Kappa({0: (KNOW, PRED)}).applied(lm[0]):
        lm[0](ids(lm, "ab"))
    assert hooked(lm[0]) == before


@torch.no_grad()
def test_recorded_hidden_states_are_the_shifted_ones_and_nothing_is_changed_in_place(lm, kappa):
    tokens = ids(lm, "some words")
    plain = lm[0](tokens, output_hidden_states=True).hidden_states[1]
    kept = plain.clone()
    one = Kappa({0: kappa.pairs[0]}, alpha=5.0)
    with one.applied(lm[0]):
        moved = lm[0](tokens, output_hidden_states=True).hidden_states[1]
    torch.testing.assert_close(moved[0, -1], plain[0, -1] + step(one, 0, plain[0, -1]), atol=1e-4, rtol=1e-4)
    assert torch.equal(plain, kept)


class Tuples(nn.Module):
    """A model whose blocks return tuples, in any precision: each adds one."""

    class Block(nn.Module):
        def forward(self, hidden):
            return hidden + 1, "attention"

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([self.Block(), self.Block()])

    def forward(self, inputs_embeds):
        hidden = inputs_embeds
        for block in self.layers:
            hidden, extra = block(hidden)
            assert extra == "attention"
        return hidden


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tuples_and_precisions_are_kept_and_half_precision_does_not_overflow(dtype):
    # Logits of about 1e5 do not fit fp16; the shift, about 1, does.
    know, pred = (Probe(1e4 * p.weights, p.bias) for p in (KNOW, PRED))
    states = torch.from_numpy(np.stack([H, H + 1], 1)).to(dtype)
    with Kappa({1: (know, pred)}).applied(Tuples()) as nothing:
        assert nothing is None
    model = Tuples()
    with Kappa({1: (know, pred)}).applied(model):
        found = model(inputs_embeds=states)
    assert found.dtype == dtype
    before = states + 1 + 1
    expected = before[:, -1] + torch.from_numpy(shift(before[:, -1].double().numpy(), know, pred)).to(dtype)
    exactness = {torch.float16: 2e-2, torch.bfloat16: 0.1}.get(dtype, 1e-4)
    torch.testing.assert_close(found[:, -1], expected, atol=exactness, rtol=exactness)
    assert torch.equal(found[:, 0], before[:, 0])


def test_the_edit_alone_equals_the_hook(lm, kappa):
    block = kappa.edit(torch.from_numpy(states(width=128)[None]), 1)
    plain = torch.from_numpy(states(width=128)[None])
    assert torch.equal(block[:, :-1], plain[:, :-1])
    torch.testing.assert_close(block[0, -1].float(), (plain[0, -1] + step(kappa, 1, plain[0, -1])).float())
    after = Kappa(kappa.pairs, alpha=5.0, positions="after").edit(plain, 1, start=2)
    torch.testing.assert_close(after[0, 2:] - plain[0, 2:], (block - plain)[0, -1:].expand(3, -1))
    with pytest.raises(InputError, match="layer=7"):
        kappa.edit(plain, 7)


FAMILIES = {
    "gpt2": {"n_embd": 8, "n_layer": 3, "n_head": 1},
    "opt": {"num_hidden_layers": 3, "num_attention_heads": 1, "ffn_dim": 8, "word_embed_proj_dim": 8},
    **{
        family: {
            "num_hidden_layers": 3,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "intermediate_size": 8,
            "head_dim": 8,
        }
        for family in ("gemma3_text", "mistral", "qwen3")
    },
}


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_models_of_other_families_are_shifted_at_the_last_token(family):
    shape = FAMILIES[family] | ({} if family == "gpt2" else {"hidden_size": 8})
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    model = build({"model_type": family, "vocab_size": 30, **shape, **special}, seed=0)
    tokens = torch.arange(5)[None]
    plain = model(tokens).logits
    kappa = Kappa({1: probes(width=8)}, alpha=5.0)
    with kappa.applied(model):
        moved = model(tokens).logits
        written = model.generate(tokens, max_new_tokens=1, do_sample=False)
    assert torch.equal(moved[:, :-1], plain[:, :-1])
    assert not torch.equal(moved[:, -1], plain[:, -1])
    assert written[0, -1] == moved[0, -1].argmax()


def test_the_blocks_are_the_language_models_and_not_an_image_towers(lm):
    both = nn.Module()
    both.vision, both.language = Tuples(), lm[0]
    both.get_decoder = lm[0].get_decoder
    assert hooks.blocks(both) == (lm[0].model, lm[0].model.layers)
    with pytest.raises(InputError, match="Linear without"):
        hooks.blocks(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"start": 3}, "'last' takes none"),
        ({"prompt_length": 0}, "prompt_length=0"),
        ({"prompt_length": 4, "generated": True}, "beyond prompt_length=4"),
        ({"attention_mask": torch.ones(2, 10)}, "attention_mask"),
        ({"attention_mask": torch.ones(1, 3)}, "attention_mask"),
        ({"attention_mask": torch.zeros(1, 10)}, "padding alone"),
    ],
)
def test_what_does_not_fit_a_prompt_is_refused(lm, kappa, options, told):
    with pytest.raises(InputError, match=told), kappa.applied(lm[0], **options):
        lm[0](ids(lm, "some words"))


@pytest.mark.parametrize("start", [None, -1, 10, 2.5, torch.tensor([1, 2])])
def test_a_start_outside_of_the_prompt_is_refused(lm, kappa, start):
    after = Kappa(kappa.pairs, positions="after")
    with pytest.raises(InputError, match="start="), after.applied(lm[0], start=start):
        lm[0](ids(lm, "some words"))


def test_a_block_that_is_not_there_is_refused(lm, kappa):
    with pytest.raises(InputError, match="0 to 1"), Kappa({2: kappa.pairs[0]}).applied(lm[0]):
        pass
    with pytest.raises(InputError, match="counted from 0"):
        Kappa({-1: kappa.pairs[0]})


@pytest.mark.parametrize("texts", [["some words"], ["one", "three words here"]])
def test_decoding_without_a_cache_shifts_what_decoding_with_one_does(lm, kappa, texts):
    batch = padded(lm, texts, "left")
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    with kappa.applied(lm[0]):
        expected = lm[0].generate(**batch, **options)
    length = batch["input_ids"].shape[1]
    for told in ({}, {"attention_mask": batch["attention_mask"]}):
        with kappa.applied(lm[0], prompt_length=length, **told):
            assert torch.equal(lm[0].generate(**batch, **options, use_cache=False), expected)


def test_decoding_without_a_cache_and_without_a_word_about_it_is_refused(lm, kappa):
    tokens, options = ids(lm, "some words"), {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None}
    with pytest.raises(InputError, match="prompt_length=10"), kappa.applied(lm[0]):
        lm[0].generate(tokens, **options, use_cache=False)
    with pytest.raises(InputError, match="needs a cache"), kappa.applied(lm[0], prompt_length=10, generated=True):
        lm[0].generate(tokens, **options, use_cache=False)
    with kappa.applied(lm[0]):  # prompts of their own
        for text in ("some words", "some wordy", "some words or other"):
            lm[0](ids(lm, text))


@torch.no_grad()
def test_a_pass_longer_than_the_prompt_is_shifted_at_the_prompts_end(lm, kappa):
    tokens = ids(lm, "some words")
    found = run(lm, kappa, tokens, prompt_length=4)
    torch.testing.assert_close(found, by_hand(lm[0], tokens, edited(kappa, 3, 3)), atol=1e-4, rtol=1e-4)


def test_a_prompt_fed_in_pieces_has_to_say_where_it_ends(lm, kappa):
    tokens = ids(lm, "some words")
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    with kappa.applied(lm[0]):
        expected = lm[0].generate(tokens, **options)
    with kappa.applied(lm[0], prompt_length=10):
        assert torch.equal(lm[0].generate(tokens, **options, prefill_chunk_size=4), expected)
    for generated in (False, True):
        with pytest.raises(InputError, match="say prompt_length"), kappa.applied(lm[0], generated=generated):
            lm[0].generate(tokens, **options, prefill_chunk_size=4)


@torch.no_grad()
def test_a_mask_that_does_not_tell_the_padding_is_refused_unless_the_context_is_told(lm, kappa):
    batch = padded(lm, ["one", "three words here"], "right")
    length = batch["input_ids"].shape[1]
    causal = torch.ones(length, length).tril().bool() & batch["attention_mask"].bool()[:, None, None]
    with pytest.raises(InputError, match="tell what is padding"), kappa.applied(lm[0]):
        lm[0](batch["input_ids"], attention_mask=causal)
    expected = run(lm, kappa, **batch)
    found = run(lm, kappa, batch["input_ids"], attention_mask=causal, told=batch["attention_mask"])
    last = batch["attention_mask"].sum(1) - 1
    torch.testing.assert_close(found[[0, 1], last], expected[[0, 1], last], atol=1e-4, rtol=1e-4)
