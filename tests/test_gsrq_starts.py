"""First codewords: who may be picked, what weights do, and that neither offsets nor magnitudes change what is found."""

import numpy as np
import pytest
from sklearn.cluster import kmeans_plusplus

from icml26.errors import InputError
from icml26.gsrq.clustering import RULES, assign, fit_codebook, inertia
from icml26.gsrq.distortion import cosines, measure
from icml26.gsrq.residual import ResidualQuantizer
from icml26.gsrq.starts import plus_plus_start, spherical_start
from icml26.gsrq.vectors import norms, unit_rows


def clouds(count=400, dimension=6, seed=0):
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(8, dimension))
    return centres[rng.integers(8, size=count)] + rng.normal(size=(count, dimension))


def looped(x, count, weights, seed):
    """Greedy k-means++ with plain distances, by the same draws."""
    rng, trials = np.random.default_rng(seed), 2 + int(np.log(count))
    picked, left = [], np.ones(len(x))
    for number in range(count):
        chances = np.cumsum(weights * left)
        draws = np.searchsorted(chances, rng.random(trials if number else 1) * chances[-1], side="right")
        best = None
        for draw in draws:
            distances = ((x - x[draw]) ** 2).sum(1)
            distances = np.minimum(distances, left) if number else distances
            if best is None or distances @ weights < best[1] @ weights:
                best = draw, distances
        picked.append(best[0])
        left = best[1]
    return x[picked]


@pytest.mark.parametrize("weighted", [False, True])
def test_k_means_plus_plus_is_the_greedy_one_of_plain_loops(weighted):
    x, weights = clouds(), np.random.default_rng(1).exponential(size=400) if weighted else np.ones(400)
    found = plus_plus_start(x, 12, weights=weights if weighted else None, seed=3)
    np.testing.assert_array_equal(found, looped(x, 12, weights, 3))


def test_k_means_plus_plus_starts_as_near_as_scikit_learns():
    x = clouds(600)

    def left(book):
        return inertia(x, book, assign(x, book))

    ours = [left(plus_plus_start(x, 16, seed=seed)) for seed in range(30)]
    theirs = [left(kmeans_plusplus(x, 16, random_state=seed)[0]) for seed in range(30)]
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.05)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("start", ["k-means++", "spherical"])
def test_vectors_without_weight_have_no_part_in_a_start(start, rule):
    x = np.vstack([clouds(), clouds(seed=1) * [[-9, 9, -9, 9, -9, 9]] + 50])
    weights = np.repeat([1.0, 0.0], 400)
    function = {"k-means++": plus_plus_start, "spherical": spherical_start}[start]
    for seed in range(3):
        alone = function(x[:400], 7, seed=seed)
        first = function(x, 7, weights=weights, seed=seed)
        assert np.abs(first).max() <= np.abs(x[:400]).max()
        assert inertia(x[:400], first, assign(x[:400], first)) < 2 * inertia(x[:400], alone, assign(x[:400], alone))
    book = fit_codebook(x, 7, rule=rule, start=start, weights=weights).codewords
    assert np.abs(book).max() <= np.abs(x[:400]).max()


def test_gains_of_a_spherical_start_are_weighted_mean_projections():
    rng = np.random.default_rng(0)
    x = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 6.0]])
    weights = rng.exponential(size=4)
    found = spherical_start(x, 2, weights=weights)
    expected = [weights[:2] @ [1, 3] / weights[:2].sum(), weights[2:] @ [2, 6] / weights[2:].sum()]
    np.testing.assert_allclose(found.max(axis=0), expected)


def test_of_several_weighted_starts_the_one_of_the_least_weighted_error_is_kept():
    x, weights = clouds(120), np.random.default_rng(2).exponential(size=120) ** 4
    generator = np.random.default_rng(5)
    each = [fit_codebook(x, 9, rule="mean", start="k-means++", weights=weights, seed=generator) for _ in range(6)]
    errors = [inertia(x, book.codewords, book.labels, weights) for book in each]
    plain = [inertia(x, book.codewords, book.labels) for book in each]
    assert np.argmin(errors) != np.argmin(plain)
    found = fit_codebook(x, 9, rule="mean", start="k-means++", weights=weights, starts=6, seed=5)
    np.testing.assert_array_equal(found.codewords, each[int(np.argmin(errors))].codewords)


def test_chains_keep_the_best_of_several_starts():
    x = clouds(150)
    errors = [ResidualQuantizer(6, 1, 9, starts=starts).fit(x).energies[0, 1] for starts in (1, 8)]
    assert errors[1] < errors[0]


@pytest.mark.parametrize("offset", [0.0, 100.0, 1000.0])
def test_an_offset_that_all_vectors_share_does_not_change_the_nearest_codeword(offset):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((500, 48)) + offset).astype(np.float32)
    book = (rng.standard_normal((64, 48)) + offset).astype(np.float32)
    exact = ((x[:, None].astype(float) - book[None].astype(float)) ** 2).sum(-1)
    assert (assign(x, book) == exact.argmin(1)).mean() > 0.998
    found = fit_codebook(x, 16)
    assert found.converged
    left = inertia(x, found.codewords, found.labels)
    moved = fit_codebook(x - np.float32(offset), 16, start=found.codewords - np.float32(offset))
    assert left < 1.05 * inertia(x - np.float32(offset), moved.codewords, moved.labels)


@pytest.mark.parametrize(
    ("dtype", "power"), [(np.float32, 80), (np.float32, -80), (np.float64, 600), (np.float64, -560)]
)
@pytest.mark.parametrize("rule", RULES)
def test_magnitudes_whose_squares_over_or_underflow_change_nothing(rule, dtype, power):
    x = clouds(200).astype(dtype)
    scaled = np.ldexp(x, power)
    book, other = (fit_codebook(rows, 5, rule=rule) for rows in (x, scaled))
    np.testing.assert_array_equal(np.ldexp(book.codewords, power), other.codewords)
    assert (book.labels == other.labels).all()
    assert (assign(scaled, other.codewords) == other.labels).all()
    np.testing.assert_allclose(norms(scaled), np.ldexp(norms(x), power), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(unit_rows(scaled).astype(float), axis=1), 1, rtol=1e-6)
    found, expected = (measure(rows, book.codewords[book.labels]) for rows, book in ((scaled, other), (x, book)))
    assert found.nmse == pytest.approx(expected.nmse)
    assert found.cosine == pytest.approx(expected.cosine)
    assert np.isfinite(cosines(scaled, scaled)).all()


@pytest.mark.parametrize(
    "wrong", [[[1j, 2]], [["1", "2"]], [[1], [2, 3]], np.ma.masked_array([[1.0, 2.0]], [[True, False]]), "ab"]
)
def test_what_is_no_matrix_of_real_numbers_is_refused(wrong):
    with pytest.raises(InputError):
        fit_codebook(wrong, 1)
    with pytest.raises(InputError):
        fit_codebook([[1.0, 2.0]], 1, weights=wrong)


@pytest.mark.parametrize("seed", [-1, 1.5, "a"])
def test_a_seed_that_is_none_is_named(seed):
    for call in (plus_plus_start, spherical_start, fit_codebook):
        with pytest.raises(InputError, match="seed"):
            call(clouds(20), 2, seed=seed)
