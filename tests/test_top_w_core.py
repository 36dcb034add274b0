"""Top-W's theory: both rules of the S-step against all sets, what transport costs, and what potentials bound."""

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import wasserstein_distance

from icml26.errors import InputError
from icml26.top_w import core, optimum
from icml26.top_w.core import entropy_mass, gain, objective, ordered_prefix_rule, prefix_rule, s_step, singleton_rule
from icml26.top_w.geometry import Geometry
from icml26.top_w.optimum import brute_force, lower_bound, subsets
from icml26.top_w.potential import nearest_potential
from icml26.top_w.transport import wasserstein

SEEDS = st.integers(0, 2**32 - 1)


def instance(seed, tokens, width=3):
    """Probabilities, a potential, and the cosine and chord costs of random unit vectors."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(tokens, rng.choice([0.3, 1.0, 5.0])))
    rows = rng.standard_normal((tokens, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = 1 - rows @ rows.T
    np.fill_diagonal(cosine, 0)
    cosine = np.clip(cosine, 0, 2)
    return p, rng.normal(scale=rng.choice([0.1, 1.0, 3.0]), size=tokens), cosine, np.sqrt(2 * cosine)


def gain_by_hand(p, kept, f, lam, beta):
    mass = sum(p[i] for i in kept)
    mean = sum(p[i] / mass * (f[i] + lam * np.log(p[i])) for i in kept)
    return mean + (beta - lam) * np.log(mass)


def best_by_hand(p, f, lam, beta):
    sets = [c for size in range(1, len(p) + 1) for c in itertools.combinations(range(len(p)), size)]
    return max(gain_by_hand(p, kept, f, lam, beta) for kept in sets)


def transport_by_hand(p, q, cost):
    """The same linear programme with every variable, equation by equation."""
    n = len(p)
    rows, sides = [], []
    for i in range(n):
        rows.append([float(a == i) for a in range(n) for _ in range(n)])
        sides.append(p[i])
    for j in range(n - 1):
        rows.append([float(b == j) for _ in range(n) for b in range(n)])
        sides.append(q[j])
    return linprog(np.asarray(cost).ravel(), A_eq=rows, b_eq=sides, method="highs-ipm").fun


@given(SEEDS, st.integers(1, 8), st.floats(0, 3), st.floats(0, 3))
@settings(max_examples=60)
def test_the_s_step_is_the_best_of_all_sets_whichever_weight_is_larger(seed, tokens, lam, beta):
    p, f, _, _ = instance(seed, tokens)
    p = np.maximum(p, 1e-9)
    found = gain_by_hand(p, np.flatnonzero(s_step(p, f, lam, beta)), f, lam, beta)
    assert found == pytest.approx(best_by_hand(p, f, lam, beta), abs=1e-9)


@pytest.mark.parametrize(("lam", "beta"), [(2.2, 2.8), (0.3, 1.0), (0.0, 0.3), (1.0, 1.0), (2.8, 2.2), (2.0, 0.0)])
def test_the_s_step_is_the_best_of_all_sets_of_twelve_tokens(lam, beta):
    sets = subsets(12)
    for seed in range(6):
        p, f, _, _ = instance(seed, 12)
        gains = gain(p, sets, f, lam, beta)
        assert gain(p, s_step(p, f, lam, beta), f, lam, beta) == pytest.approx(gains.max(), abs=1e-12)


def test_the_plain_scan_is_wrong_where_entropy_weighs_more_than_mass():
    p, f = torch.tensor([0.6, 0.4], dtype=torch.float64), torch.tensor([-0.5, 0.0], dtype=torch.float64)
    assert prefix_rule(p, f, 2.0, 0.5).tolist() == [True, False]
    assert singleton_rule(p, f, 2.0, 0.5).tolist() == s_step(p, f, 2.0, 0.5).tolist() == [False, True]
    worse, better = (gain_by_hand(p.numpy(), [i], f.numpy(), 2.0, 0.5) for i in (0, 1))
    assert best_by_hand(p.numpy(), f.numpy(), 2.0, 0.5) == pytest.approx(better)
    assert worse < better


def test_both_rules_agree_where_the_weights_are_equal():
    for seed in range(20):
        p, f = map(torch.tensor, instance(seed, 9)[:2])
        assert torch.equal(prefix_rule(p, f, 0.7, 0.7), singleton_rule(p, f, 0.7, 0.7))


def test_the_gain_is_minus_the_objective_with_the_potential_in_place_of_the_distance():
    p, f, _, _ = instance(3, 6)
    sets = subsets(6)
    inside = np.where(sets, p, 0)
    dual = f @ p - (inside / inside.sum(1, keepdims=True)) @ f
    np.testing.assert_allclose(gain(p, sets, f, 1.3, 2.1), f @ p - (dual + entropy_mass(p, sets, 1.3, 2.1)), atol=1e-12)


def test_without_a_potential_a_larger_beta_never_keeps_less_mass():
    for seed in range(20):
        p = instance(seed, 30)[0]
        masses = [p[s_step(p, np.zeros(30), 2.2, beta)].sum() for beta in (0.0, 1.0, 2.2, 2.8, 4.0, 6.0, 20.0)]
        assert np.all(np.diff(masses) >= -1e-15)


def test_rows_of_a_batch_and_tensors_give_what_single_arrays_give():
    p, f, _, _ = (np.stack(part) for part in zip(*(instance(seed, 7) for seed in range(6)), strict=True))
    for lam, beta in ((0.5, 1.0), (1.0, 0.5)):
        kept = s_step(p.reshape(2, 3, 7), f.reshape(2, 3, 7), lam, beta)
        assert kept.shape == (2, 3, 7)
        assert kept.reshape(6, 7).tolist() == [s_step(a, b, lam, beta).tolist() for a, b in zip(p, f, strict=True)]
        assert s_step(torch.tensor(p), torch.tensor(f), lam, beta).tolist() == kept.reshape(6, 7).tolist()


def test_of_equal_tokens_the_first_is_taken_and_none_without_probability():
    assert s_step(np.full(4, 0.25), np.zeros(4), 1.0, 0.5).tolist() == [True, False, False, False]
    assert s_step(np.full(4, 0.25), np.array([-9, 0, -9, 0.0]), 0.0, 0.0).tolist() == [False, True, False, False]
    assert s_step(np.array([0.0, 1, 0]), np.array([9.0, 0, 9]), 0.0, 2.0).tolist() == [False, True, False]


@given(SEEDS, st.integers(2, 5))
@settings(max_examples=6)
def test_for_a_metric_only_the_mass_outside_the_set_travels(seed, tokens):
    p, _, _, chord = instance(seed, tokens)
    for kept in subsets(tokens)[:-1]:
        mass = p[kept].sum()
        outside, inside = np.where(kept, 0, p) / (1 - mass), np.where(kept, p, 0) / mass
        assert wasserstein(p, inside, chord) == pytest.approx(
            (1 - mass) * wasserstein(outside, inside, chord), abs=1e-9
        )


def test_for_one_minus_cosine_it_pays_to_pass_mass_on_through_the_set():
    # Angles 0, 60 and 120 degrees cost .5 + .5 by way of the middle and 1.5 directly.
    cost = np.array([[0, 0.5, 1.5], [0.5, 0, 0.5], [1.5, 0.5, 0]])
    p, kept = np.array([0.2, 0.4, 0.4]), np.array([False, True, True])
    inside, outside = np.where(kept, p, 0) / 0.8, np.array([1.0, 0, 0])
    assert wasserstein(p, inside, cost) == pytest.approx(0.2 * 0.5 + 0.1 * 0.5)
    assert 0.2 * wasserstein(outside, inside, cost) == pytest.approx(0.2 * (0.5 * 0.5 + 0.5 * 1.5))


def test_the_transport_is_that_of_the_line_and_of_the_programme_written_out():
    rng = np.random.default_rng(0)
    places = rng.standard_normal(6)
    line = np.abs(places[:, None] - places)
    for seed in range(5):
        p, q = instance(seed, 6)[0], instance(seed + 50, 6)[0]
        assert wasserstein(p, q, line) == pytest.approx(wasserstein_distance(places, places, p, q), abs=1e-9)
        skewed = rng.random((6, 6)) * (1 - np.eye(6))
        assert wasserstein(p, q, skewed) == pytest.approx(transport_by_hand(p, q, skewed), abs=1e-7)


@given(SEEDS, st.integers(1, 5))
@settings(max_examples=6)
def test_minus_the_distance_bounds_by_zero_and_plus_the_distance_by_the_transport(seed, tokens):
    p, _, cosine, chord = instance(seed, tokens)
    for cost in (chord, cosine):  # the bound needs no triangle inequality, whatever duality says
        for kept in subsets(tokens):
            inside = np.where(kept, p, 0) / p[kept].sum()
            minus, plus = (nearest_potential(cost, kept, sign=sign) for sign in (-1, 1))
            assert (p - inside) @ minus <= 1e-12
            assert -1e-12 <= (p - inside) @ plus <= wasserstein(p, inside, cost) + 1e-9
            assert lower_bound(p, kept, cost) == pytest.approx((p - inside) @ plus, abs=1e-12)


def test_a_potential_is_one_lipschitz_for_the_chord_and_not_for_one_minus_cosine():
    slack = {}
    for seed in range(30):
        _, _, cosine, chord = instance(seed, 6, width=2)
        for name, cost in (("cosine", cosine), ("chord", chord)):
            f = nearest_potential(cost, np.arange(6) < 2)
            slack.setdefault(name, []).append((np.abs(f[:, None] - f) - cost).max())
    assert max(slack["chord"]) < 1e-12
    assert max(slack["cosine"]) > 0.1


def test_the_triangle_inequality_holds_for_the_chord_and_fails_for_one_minus_cosine():
    table = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    excess = {}
    for metric in ("cosine", "chord", "euclidean"):
        d = Geometry(table, metric).distances(torch.arange(40))
        excess[metric] = float((d[:, None, :] - d[:, :, None] - d[None]).max())
    assert excess["cosine"] > 0.4
    assert excess["chord"] < 1e-3
    assert excess["euclidean"] < 1e-3


def test_the_potential_is_the_mean_over_the_nearest_members():
    rng = np.random.default_rng(1)
    points = rng.standard_normal((9, 2))
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    kept = np.array([1, 0, 1, 1, 0, 0, 1, 0, 0], bool)
    few = np.arange(9) == 4
    for k in (1, 2, 3, 4, 7):
        both = nearest_potential(np.stack([distances, distances]), np.stack([kept, few]), neighbours=k)
        by_hand = [-np.mean(sorted(distances[i][kept])[:k]) for i in range(9)]
        np.testing.assert_allclose(both, [by_hand, -distances[4]], atol=1e-12)


@given(SEEDS, st.integers(1, 5), st.sampled_from([(2.2, 2.8), (0.3, 0.8), (0.0, 0.3), (1.5, 0.5)]))
@settings(max_examples=8)
def test_brute_force_is_the_least_of_all_objectives(seed, tokens, weights):
    p, _, cosine, chord = instance(seed, tokens)
    for cost in (0.6 * cosine, chord):
        values = []
        for kept in subsets(tokens):
            q = np.where(kept, p, 0) / p[kept].sum()
            entropy = -sum(x * np.log(x) for x in q if x > 0)
            distance = wasserstein(p, q, cost)
            values.append(distance + weights[0] * entropy - weights[1] * np.log(p[kept].sum()))
        mask, value = brute_force(p, cost, *weights)
        assert value == pytest.approx(min(values), abs=1e-8)
        assert objective(p, mask, cost, *weights) == pytest.approx(value, abs=1e-9)


def test_brute_force_solves_few_programmes(monkeypatch):
    calls = []
    monkeypatch.setattr(optimum, "wasserstein", lambda *a: calls.append(1) or wasserstein(*a))
    p, _, cosine, _ = instance(0, 7)
    brute_force(p, 0.6 * cosine, 2.2, 2.8)
    assert len(calls) < 20


@pytest.mark.parametrize("n", [1, 4])
def test_there_are_all_sets_but_the_empty_one(n):
    assert len({tuple(kept) for kept in subsets(n)}) == 2**n - 1
    assert subsets(n).any(1).all()


def test_a_uniform_metric_gives_one_minus_the_kept_mass():
    p = instance(5, 7)[0]
    for kept in subsets(7)[::9]:
        plain = entropy_mass(p, kept, 0.4, 0.9)
        assert objective(p, kept, 1 - np.eye(7), 0.4, 0.9) == pytest.approx(1 - p[kept].sum() + plain, abs=1e-9)


P, C = np.array([0.5, 0.5]), 1 - np.eye(2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: s_step(P, np.zeros(2), -0.1, 1), "lam=-0.1"),
        (lambda: s_step(P, np.zeros(2), 1, float("nan")), "beta=nan"),
        (lambda: s_step(np.array([0.5, np.nan]), np.zeros(2), 1, 1), "p of shape"),
        (lambda: s_step(np.zeros(2), np.zeros(2), 1, 1), "zeros"),
        (lambda: s_step(-P, np.zeros(2), 1, 1), "negative"),
        (lambda: s_step(P, np.array([0, np.inf]), 1, 1), "potential"),
        (lambda: gain(P, np.array([False, False]), np.zeros(2), 1, 1), "kept"),
        (lambda: entropy_mass(P, np.array([1, 1]), 1, 1), "kept of torch.int64"),
        (lambda: objective(2 * P, P > 0, C, 1, 1), "p sums to 2"),
        (lambda: objective(P, P > 0, C[:1], 1, 1), "cost has shape"),
        (lambda: wasserstein(P, P, -C), "cost"),
        (lambda: wasserstein(P, P, C + np.eye(2)), "diagonal"),
        (lambda: wasserstein(P, np.ones(1), C), "q has 1 tokens"),
        (lambda: subsets(17), "tokens=17"),
        (lambda: nearest_potential(C, np.zeros(2, bool)), "empty set"),
        (lambda: nearest_potential(C, P > 0, sign=2), "sign=2"),
        (lambda: nearest_potential(C, P > 0, neighbours=0), "neighbours=0"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(call, says):
    with pytest.raises(InputError, match=says) as error:
        call()
    assert "\n" not in str(error.value)


def test_the_package_is_light_until_a_name_is_used():
    code = "import sys, icml26.top_w; assert not {'torch', 'scipy', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    import icml26.top_w

    assert icml26.top_w.s_step is core.s_step
    assert all(getattr(icml26.top_w, name) for name in icml26.top_w.__all__)
    with pytest.raises(AttributeError, match="no attribute"):
        icml26.top_w.nothing  # noqa: B018
    assert pickle.loads(pickle.dumps(icml26.top_w.TopWConfig(lam=1))).lam == 1


@pytest.mark.parametrize(("lam", "beta"), [(2.2, 2.8), (0.0, 0.3), (1.0, 1.0)])
def test_sorted_probabilities_need_no_sorting_for_the_potential_zero(lam, beta):
    draw = torch.Generator().manual_seed(3)
    p = torch.rand((50, 9), generator=draw, dtype=torch.float64).pow(6).sort(-1, descending=True).values
    p[:10, 5:] = 0
    p[10:20, 2] = p[10:20, 3]
    assert torch.equal(ordered_prefix_rule(p, lam, beta), prefix_rule(p, torch.zeros_like(p), lam, beta))
