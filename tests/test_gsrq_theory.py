"""What GSRQ's clustering must satisfy by algebra: each of these fails if the equation behind it is wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from icml26.errors import InputError
from icml26.gsrq.clustering import assign, fit_codebook, inertia
from icml26.gsrq.distortion import measure, shrinkage
from icml26.gsrq.released import released_codebook
from icml26.gsrq.residual import ResidualQuantizer
from icml26.gsrq.starts import spherical_start
from icml26.gsrq.weights import log_weights

SEEDS = st.integers(0, 10_000)


def gaussian(count, dimension, seed=0, spread=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, dimension)) * np.exp(spread * rng.normal(size=(count, 1)))


def converged(x, codewords, **options):
    book = fit_codebook(x, codewords, iterations=1000, **options)
    assert book.converged
    assert book.unused == 0
    return book


@settings(max_examples=20)
@given(seed=SEEDS, dimension=st.integers(1, 20))
def test_the_paper_s_score_picks_the_nearest_codeword(seed, dimension):
    x, gains = gaussian(50, dimension, seed), np.random.default_rng(seed).exponential(size=9)
    shapes = gaussian(9, dimension, seed + 1)
    shapes /= np.linalg.norm(shapes, axis=1)[:, None]
    scores = 2 * gains * (x @ shapes.T) - gains**2
    distances = np.sum((x[:, None] - gains[:, None] * shapes) ** 2, axis=2)
    labels = assign(x, gains[:, None] * shapes)
    assert (labels == scores.argmax(1)).all()
    assert (labels == distances.argmin(1)).all()


def test_the_angle_alone_is_another_assignment():
    x = gaussian(200, 6)
    book = gaussian(8, 6, seed=1, spread=1.0)
    cosines = x @ (book / np.linalg.norm(book, axis=1)[:, None]).T
    assert (assign(x, book) != cosines.argmax(1)).mean() > 0.2
    assert (assign(x, book) != (x @ book.T).argmax(1)).mean() > 0.2  # without - g^2


@settings(max_examples=10)
@given(seed=SEEDS)
def test_means_are_no_longer_than_their_members_are_on_average(seed):
    x = gaussian(200, 8, seed, spread=0.5)
    book = fit_codebook(x, 5, rule="mean")
    for k in range(5):
        assert np.linalg.norm(book.codewords[k]) < np.linalg.norm(x[book.labels == k], axis=1).mean()
    rays = np.outer(np.random.default_rng(seed).exponential(size=30), x[0])
    parallel = fit_codebook(rays, 1, rule="mean").codewords[0]
    assert np.linalg.norm(parallel) == pytest.approx(np.linalg.norm(rays, axis=1).mean())


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["unit", "sum", "mean"])
def test_shrinkage_is_one_minus_the_normalised_error(rule, spread):
    x = gaussian(600, 10, spread=spread)
    book = converged(x, 8, rule=rule, seed=2)
    decoded = book.codewords[book.labels]
    assert shrinkage(x, decoded) + measure(x, decoded).nmse == pytest.approx(1, abs=1e-12)
    fresh = gaussian(600, 10, seed=1, spread=spread)  # not so for vectors that the codewords were not made from
    decoded = book.codewords[assign(fresh, book.codewords)]
    assert abs(shrinkage(fresh, decoded) + measure(fresh, decoded).nmse - 1) > 1e-3


def test_with_weights_the_identity_holds_for_weighted_sums_only():
    x, w = gaussian(600, 10, spread=0.7), np.random.default_rng(0).exponential(size=600)
    book = converged(x, 8, weights=w)
    decoded = book.codewords[book.labels]
    total, coded, lost = (w @ np.sum(part**2, axis=1) for part in (x, decoded, x - decoded))
    assert coded + lost == pytest.approx(total, rel=1e-12)
    assert abs(shrinkage(x, decoded) + measure(x, decoded).nmse - 1) > 1e-4


def test_gains_of_old_shapes_break_the_identity_until_all_has_converged():
    x = gaussian(600, 10, spread=0.7)
    gaps = []
    for passes in (1, 500):
        book = released_codebook(x, 8, iterations=passes)
        decoded = book.codewords[book.labels]
        gaps.append(abs(shrinkage(x, decoded) + measure(x, decoded).nmse - 1))
    assert gaps[0] > 1e-3
    assert gaps[1] < 1e-3


def test_fixed_points_of_the_sum_rule_are_means():
    x = gaussian(800, 7, spread=0.8)
    book = converged(x, 9, rule="sum")
    for k in range(9):
        np.testing.assert_allclose(book.codewords[k], x[book.labels == k].mean(0), atol=1e-12)
    lloyd = fit_codebook(x, 9, rule="mean", start=book.codewords)
    assert (lloyd.labels == book.labels).all()
    np.testing.assert_allclose(lloyd.codewords, book.codewords, atol=1e-12)


def test_sum_rule_and_lloyd_take_the_same_way_from_the_same_start():
    x = gaussian(500, 6, spread=0.8)
    start = spherical_start(x, 6)
    ways = [fit_codebook(x, 6, rule=rule, start=start) for rule in ("sum", "mean")]
    np.testing.assert_allclose(ways[0].codewords, ways[1].codewords, atol=1e-10)


def test_one_step_of_lloyd_lowers_the_error_of_a_unit_solution_where_norms_differ():
    x = gaussian(1500, 16, spread=0.8)
    book = converged(x, 16)
    step = fit_codebook(x, 16, rule="mean", start=book.codewords, iterations=1)
    before, after = (inertia(x, found.codewords, found.labels) for found in (book, step))
    assert after < before * 0.999


def test_the_error_never_rises_under_the_sum_rule_and_may_under_the_unit_rule():
    rises = {}
    for rule in ("unit", "sum"):
        rises[rule] = []
        for seed in range(4):
            x = gaussian(600, 8, seed, spread=0.8)
            book = spherical_start(x, 12, seed=seed)
            errors = []
            for _ in range(40):
                found = fit_codebook(x, 12, rule=rule, start=book, iterations=1)
                book = found.codewords
                errors.append(inertia(x, book, found.labels))
            rises[rule].append(max(np.diff(errors)) / errors[0])
    assert max(rises["sum"]) < 1e-12
    assert max(rises["unit"]) > 1e-9


def test_for_constant_norms_unit_and_sum_rule_coincide_and_else_not():
    x = gaussian(400, 6)
    equal = 3 * x / np.linalg.norm(x, axis=1)[:, None]
    unit, total = (fit_codebook(equal, 8, rule=rule) for rule in ("unit", "sum"))
    np.testing.assert_allclose(unit.codewords, total.codewords, atol=1e-12)
    unit, total = (fit_codebook(x, 8, rule=rule) for rule in ("unit", "sum"))
    assert not np.allclose(unit.codewords, total.codewords, atol=1e-3)


@settings(max_examples=10)
@given(seed=SEEDS, power=st.integers(-40, 40))
def test_scaling_the_vectors_scales_the_gains_alone(seed, power):
    x, factor = gaussian(120, 5, seed, spread=0.5), 2.0**power  # exact in floating point
    x[0] = 0
    for rule in ("unit", "sum"):
        book, scaled = (fit_codebook(rows, 6, rule=rule, seed=seed) for rows in (x, factor * x))
        assert (book.labels == scaled.labels).all()
        np.testing.assert_allclose(scaled.gains, factor * book.gains, rtol=1e-9)
        np.testing.assert_allclose(scaled.shapes, book.shapes, atol=1e-9)


@settings(max_examples=10)
@given(seed=SEEDS)
def test_rotating_the_vectors_rotates_the_codewords(seed):
    x = gaussian(200, 5, seed, spread=0.5)
    rotation = ortho_group.rvs(5, random_state=seed)
    for rule in ("unit", "sum", "mean"):
        book = fit_codebook(x, 6, rule=rule, start=x[:6])
        turned = fit_codebook(x @ rotation, 6, rule=rule, start=x[:6] @ rotation)
        np.testing.assert_allclose(turned.codewords, book.codewords @ rotation, atol=1e-8)


@pytest.mark.parametrize("rule", ["unit", "sum", "mean"])
def test_no_stage_of_a_chain_raises_the_training_error(rule):
    found = ResidualQuantizer(8, 6, 8, rule=rule, iterations=1000).fit(gaussian(500, 16, spread=0.6))
    assert found.converged.all()
    assert (np.diff(found.energies, axis=1) < 0).all()
    # Each stage takes away exactly the energy of its codewords.
    words = np.sum(found.codebooks**2, axis=3)
    np.testing.assert_allclose(-np.diff(found.energies, axis=1), np.sum(found.sizes * words, axis=2), rtol=1e-9)


def test_on_fresh_vectors_a_stage_may_raise_the_error_unless_zero_is_a_codeword():
    train, fresh = gaussian(130, 32), gaussian(500, 32, seed=1)
    found = ResidualQuantizer(32, 4, 64).fit(train)
    codes = found.encode(fresh)
    errors = [measure(fresh, found.decode(codes[:, :, :n])).nmse for n in range(1, 5)]
    assert max(errors) > 1
    left = [np.sum(fresh**2)]
    residual = fresh
    for book in found.codebooks[0]:
        book = np.vstack([np.zeros(32), book])
        residual = residual - book[assign(residual, book)]
        left.append(np.sum(residual**2))
    assert (np.diff(left) <= 0).all()


@settings(max_examples=20)
@given(seed=SEEDS, tau=st.floats(0.01, 100))
def test_log_weights_are_log_two_at_the_median_monotone_and_below_the_line(seed, tau):
    norms = np.random.default_rng(seed).lognormal(sigma=2, size=(101, 3))
    weights, medians = log_weights(norms, tau), np.median(norms, axis=0)
    for position in range(3):
        order = norms[:, position].argsort()
        assert weights[order[50], position] == pytest.approx(np.log1p(tau))
        assert (np.diff(weights[order, position]) > 0).all()
        assert (weights[:, position] <= tau * norms[:, position] / medians[position]).all()
    np.testing.assert_allclose(log_weights(1e-6 * norms, tau), weights, rtol=1e-9)
    assert log_weights(norms[:, 0])[norms[:, 0].argsort()[50]] == pytest.approx(np.log(2))
    assert weights.max() / np.median(weights) < norms.max() / np.median(norms)


def test_gradients_that_are_zero_weigh_nothing_and_all_zero_ones_are_refused():
    assert log_weights([0.0, 0.0, 0.0, 5.0]).tolist()[:3] == [0, 0, 0]
    assert np.isfinite(log_weights([0.0, 0.0, 0.0, 5.0])).all()
    for wrong, told in (([0.0, 0.0], "zero throughout"), ([-1.0], "not negative"), ([np.nan], "finite"), ([], "shape")):
        with pytest.raises(InputError, match=told):
            log_weights(wrong)
    with pytest.raises(InputError, match="tau=0"):
        log_weights([1.0], tau=0)


@pytest.mark.parametrize("rule", ["unit", "mean"])
@pytest.mark.parametrize(("dimension", "stages", "codewords"), [(8, 2, 16), (8, 1, 8)])
def test_held_out_gaussians_stay_above_the_rate_distortion_bound(rule, dimension, stages, codewords):
    found = ResidualQuantizer(dimension, stages, codewords, rule=rule).fit(gaussian(1500, dimension))
    fresh = gaussian(3000, dimension, seed=1)
    nmse = measure(fresh, found.decode(found.encode(fresh))).nmse
    assert 2 ** (-2 * found.bits_per_value) < nmse < 1


def test_training_vectors_can_fall_below_the_bound_which_is_overfitting():
    x = gaussian(100, 64)
    book = fit_codebook(x, 64)
    bound = 2 ** (-2 * np.log2(64) / 64)
    assert measure(x, book.codewords[book.labels]).nmse < 0.6 * bound
    fresh = gaussian(2000, 64, seed=1)
    assert measure(fresh, book.codewords[assign(fresh, book.codewords)]).nmse > bound
