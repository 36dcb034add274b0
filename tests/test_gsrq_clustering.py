"""One codebook: every rule does what plain loops do, degenerate clusters are told, and the released code is itself."""

import numpy as np
import pytest
import torch

from icml26.errors import InputError
from icml26.gsrq import vectors as vectors_module
from icml26.gsrq.clustering import Codebook, assign, fit_codebook, inertia
from icml26.gsrq.distortion import cosines, measure, shrinkage
from icml26.gsrq.released import _bfloat16, released_codebook
from icml26.gsrq.starts import plus_plus_start, spherical_start


def clouds(count=300, dimension=5, seed=0):
    """Directions with lognormal lengths, some of them around a few centres."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(6, dimension))
    x = centres[rng.integers(6, size=count)] + rng.normal(size=(count, dimension))
    return x * np.exp(0.6 * rng.normal(size=(count, 1)))


def distances(x, book):
    return np.array([[np.sum((row - word) ** 2) for word in book] for row in x])


def looped(x, first, weights, rule, passes=100):
    """Section 4.2 word by word."""
    gains = [np.linalg.norm(word) for word in first]
    shapes = [word / np.linalg.norm(word) for word in first]
    labels = distances(x, first).argmin(1)
    done, before = 0, None
    while done < passes and (before is None or (labels != before).any()):
        for k in range(len(first)):
            members = np.flatnonzero(labels == k)
            if weights[members].sum() == 0:
                continue
            total = np.zeros(x.shape[1])
            for i in members:
                total += weights[i] * (x[i] / np.linalg.norm(x[i]) if rule == "unit" else x[i])
            shapes[k] = total / np.linalg.norm(total)
            gains[k] = max(0, sum(weights[i] * x[i] @ shapes[k] for i in members) / weights[members].sum())
        book = np.array([g * s for g, s in zip(gains, shapes, strict=True)])
        before, labels, done = labels, distances(x, book).argmin(1), done + 1
    return book, labels, done


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rule", ["unit", "sum"])
def test_gain_shape_passes_are_those_of_plain_loops(rule, weighted):
    x = clouds()
    weights = np.random.default_rng(1).exponential(size=len(x)) if weighted else np.ones(len(x))
    first = x[:8].copy()
    found = fit_codebook(x, 8, rule=rule, start=first, weights=weights if weighted else None)
    book, labels, passes = looped(x, first, weights, rule)
    assert (found.labels == labels).all()
    assert found.iterations == passes
    assert found.converged
    np.testing.assert_allclose(found.codewords, book, atol=1e-10)
    assert (first == x[:8]).all()  # the caller's array


def test_the_mean_rule_is_lloyds_algorithm():
    x = clouds()
    found = fit_codebook(x, 6, rule="mean", start=x[:6])
    book = x[:6]
    for _ in range(found.iterations):
        labels = distances(x, book).argmin(1)
        book = np.array([x[labels == k].mean(0) for k in range(6)])
    assert found.converged
    assert (found.labels == labels).all()
    np.testing.assert_allclose(found.codewords, book, atol=1e-10)


def test_assignment_is_to_the_nearest_codeword_whatever_is_held_at_a_time(monkeypatch):
    x, book = clouds(seed=2), clouds(20, seed=3)
    nearest = distances(x, book).argmin(1)
    assert (assign(x, book) == nearest).all()
    monkeypatch.setattr(vectors_module, "_SCORES", 50)
    assert (assign(x, book) == nearest).all()
    assert (assign(x.astype(np.float32), book) == nearest).all()


def test_equal_distances_go_to_the_lowest_index():
    book = np.array([[5.0, 5.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    assert assign([[0.0, 3.0], [0.0, 0.0], [2.0, 0.0]], book).tolist() == [1, 1, 1]


@pytest.mark.parametrize("rule", ["unit", "sum", "mean"])
@pytest.mark.parametrize("iterations", [1, 100])
def test_labels_are_those_of_the_codewords_even_where_the_cap_ends_a_fit(rule, iterations):
    x = clouds()
    book = fit_codebook(x, 12, rule=rule, iterations=iterations)
    assert (book.labels == assign(x, book.codewords)).all()
    assert (book.sizes == np.bincount(book.labels, minlength=12)).all()
    assert book.iterations <= iterations
    assert book.converged == (iterations == 100)


def test_the_spherical_start_has_mean_projections_as_gains_of_shapes_found_on_the_sphere():
    x = clouds(seed=4)
    book = Codebook(spherical_start(x, 7, seed=1), None, 0, False, np.ones(7))
    units = x / np.linalg.norm(x, axis=1)[:, None]
    labels = (units @ book.shapes.T).argmax(1)
    gains = [np.mean(x[labels == k] @ book.shapes[k]) for k in range(7)]
    np.testing.assert_allclose(book.gains, gains)
    random = units[np.random.default_rng(0).choice(len(x), 7, replace=False)]
    assert (units @ book.shapes.T).max(1).mean() > (units @ random.T).max(1).mean()
    np.testing.assert_allclose(spherical_start(9 * x, 7, seed=1), 9 * book.codewords)


def test_k_means_plus_plus_picks_different_vectors():
    x = clouds()
    chosen = plus_plus_start(x, 10)
    assert all((x == word).all(1).any() for word in chosen)
    assert len(np.unique(chosen, axis=0)) == 10


def test_an_empty_cluster_keeps_its_codeword_and_is_counted():
    x = clouds()
    far = np.full((1, 5), -1e3)
    for rule in ("unit", "sum"):
        book = fit_codebook(x, 4, rule=rule, start=np.vstack([x[:3], far]))
        assert book.unused == 1
        assert book.sizes[3] == 0
        np.testing.assert_allclose(book.codewords[3], far[0])


def test_a_cluster_whose_directions_cancel_keeps_its_codeword():
    x = np.array([[1.0, 0.0], [-2.0, 0.0]])
    book = fit_codebook(x, 1, start=[[0.0, 0.5]])
    assert book.codewords.tolist() == [[0.0, 0.5]]
    assert book.converged
    assert fit_codebook(x, 1, rule="sum", start=[[0.0, 0.5]]).codewords.tolist() == [[-0.5, 0.0]]
    turns = 2 * np.pi * np.arange(3) / 3 + 0.1
    thirds = np.stack([np.cos(turns), np.sin(turns)], axis=1)  # their sum is rounding error, which is no direction
    assert fit_codebook(thirds, 1, start=[[0.0, 0.5]]).codewords.tolist() == [[0.0, 0.5]]


def test_a_negative_mean_projection_makes_a_zero_codeword():
    x = np.array([[1.0, 0.0], [2.0, 0.0], [-9.0, 0.0]])
    book = fit_codebook(x, 1, start=[[1.0, 0.0]])
    assert book.codewords.tolist() == [[0.0, 0.0]]
    assert book.gains.tolist() == [0.0]


def test_vectors_without_weight_move_nothing():
    x = clouds()
    weights = np.ones(len(x))
    weights[::3] = 0
    start = x[1:6]
    for rule in ("unit", "sum"):
        book = fit_codebook(x, 5, rule=rule, start=start, weights=weights)
        kept = fit_codebook(x[weights > 0], 5, rule=rule, start=start)
        np.testing.assert_allclose(book.codewords, kept.codewords, atol=1e-12)
    alone = fit_codebook(np.vstack([x, [[99.0] * 5]]), 2, start=[[1.0] * 5, [90.0] * 5], weights=[*np.ones(len(x)), 0])
    assert alone.sizes[1] == 1
    assert alone.codewords[1].tolist() == [90.0] * 5


@pytest.mark.parametrize("rule", ["unit", "sum", "mean"])
def test_weights_count_like_repeated_vectors(rule):
    x = clouds(150)
    repeats = np.random.default_rng(0).integers(1, 4, len(x))
    weighted = fit_codebook(x, 6, rule=rule, start=x[:6], weights=repeats)
    repeated = fit_codebook(np.repeat(x, repeats, axis=0), 6, rule=rule, start=x[:6])
    np.testing.assert_allclose(weighted.codewords, repeated.codewords, atol=1e-10)
    scaled = fit_codebook(x, 6, rule=rule, start=x[:6], weights=1e-9 * repeats)
    np.testing.assert_allclose(weighted.codewords, scaled.codewords, atol=1e-10)


@pytest.mark.parametrize("rule", ["unit", "sum", "mean"])
@pytest.mark.parametrize("start", ["spherical", "k-means++"])
def test_surplus_codewords_stay_unused(rule, start, recwarn):
    x = np.repeat([[1.0, 0.0], [0.0, 3.0], [-2.0, -2.0]], 10, axis=0)
    book = fit_codebook(x, 5, rule=rule, start=start)
    assert book.unused >= 2
    assert inertia(x, book.codewords, book.labels) < 1e-20
    assert not recwarn.list


@pytest.mark.parametrize("rule", ["unit", "sum", "mean"])
def test_zero_vectors_are_no_trouble(rule):
    x = np.vstack([np.zeros((30, 5)), clouds(60)])
    book = fit_codebook(x, 4, rule=rule)
    assert np.isfinite(book.codewords).all()
    assert (book.labels[:30] == book.labels[0]).all()
    nothing = fit_codebook(np.zeros((10, 3)), 2, rule=rule)
    assert not nothing.codewords.any()
    assert nothing.sizes.tolist() == [10, 0]


def test_of_several_starts_the_best_is_kept_and_a_seed_repeats_itself():
    x = clouds()
    generator = np.random.default_rng(7)
    books = [fit_codebook(x, 9, seed=generator) for _ in range(4)]
    errors = [inertia(x, book.codewords, book.labels) for book in books]
    best = fit_codebook(x, 9, starts=4, seed=7)
    assert inertia(x, best.codewords, best.labels) == min(errors) < errors[0]
    assert (fit_codebook(x, 9, seed=7).codewords == books[0].codewords).all()


def test_float32_stays_and_finds_what_float64_finds():
    x = clouds().astype(np.float32)
    for rule in ("unit", "sum", "mean"):
        single, double = (fit_codebook(rows, 6, rule=rule) for rows in (x, x.astype(np.float64)))
        assert single.codewords.dtype == np.float32
        assert (single.labels == double.labels).all()
        np.testing.assert_allclose(single.codewords, double.codewords, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vectors": np.ones(3)}, "vectors of shape"),
        ({"vectors": [[np.nan]]}, "NaN"),
        ({"vectors": [["a"]]}, "real numbers"),
        ({"vectors": np.ones((0, 3))}, "at least one row"),
        ({"codewords": 11}, "too few for codewords=11"),
        ({"codewords": True}, "codewords=True"),
        ({"rule": "median"}, "unit, sum, mean"),
        ({"start": "random"}, "spherical, k-means"),
        ({"start": np.ones((2, 2))}, "start of shape"),
        ({"start": np.ones((2, 3)), "starts": 2}, "starts=2"),
        ({"weights": np.ones(9)}, "weights of shape"),
        ({"weights": -np.ones(10)}, "not negative"),
        ({"weights": np.zeros(10)}, "not all zero"),
        ({"iterations": 0}, "iterations=0"),
        ({"starts": 0}, "starts=0"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(change, told):
    arguments = {"vectors": np.random.default_rng(0).normal(size=(10, 3)), "codewords": 2} | change
    with pytest.raises(InputError, match=told) as error:
        fit_codebook(**arguments)
    assert "\n" not in str(error.value)


def test_codewords_of_another_dimension_are_refused():
    with pytest.raises(InputError, match="vectors have 3 columns, codewords 2"):
        assign(np.ones((4, 3)), np.ones((4, 2)))


def test_bfloat16_is_rounded_as_torch_rounds_it():
    values = np.exp(np.random.default_rng(0).normal(size=1000) * 5)
    values[:2] = 1 + 2**-8, 1 + 3 * 2**-8  # half way: to even
    assert (_bfloat16(values) == torch.tensor(values).float().bfloat16().float().numpy()).all()


def test_the_released_code_uses_old_shapes_sums_and_floors():
    x = clouds(200)
    for passes in (1, 2):
        found = released_codebook(x, 5, iterations=passes, seed=0)
        before = None if passes == 1 else released_codebook(x, 5, iterations=1, seed=0)
        if before is not None:
            labels = (2 * x @ before.shapes.T * _bfloat16(before.gains) - _bfloat16(before.gains) ** 2).argmax(1)
            for k in range(5):
                members = x[labels == k]
                total = members.sum(0)
                np.testing.assert_allclose(found.shapes[k], total / np.linalg.norm(total), atol=1e-10)
                np.testing.assert_allclose(found.gains[k], (members @ before.shapes[k]).mean(), atol=1e-10)
    assert released_codebook(np.full((6, 2), 1e-7), 1).gains == pytest.approx([1e-4])


def test_where_the_released_code_has_converged_lloyd_changes_nothing():
    x = clouds(400)
    found = released_codebook(x, 6, iterations=200)
    assert found.converged
    on = fit_codebook(x, 6, rule="mean", start=found.codewords, iterations=20)
    assert inertia(x, on.codewords, on.labels) == pytest.approx(inertia(x, found.codewords, found.labels), rel=1e-3)
    np.testing.assert_allclose(on.codewords, found.codewords, rtol=0.02, atol=0.02)


def test_distortion_is_what_plain_loops_measure():
    rng = np.random.default_rng(0)
    x, decoded = rng.normal(size=(2, 40, 6))
    x[0], decoded[1] = 0, 0
    found = measure(x, decoded)
    pairs = list(zip(x, decoded, strict=True))
    errors = sum(np.sum((a - b) ** 2) for a, b in pairs)
    angles = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) if b.any() else 0 for a, b in pairs if a.any()]
    assert found.mse == pytest.approx(errors / 240)
    assert found.nmse == pytest.approx(errors / sum(a @ a for a in x))
    assert found.cosine == pytest.approx(np.mean(angles))
    assert len(angles) == 39
    assert found.gain_error == pytest.approx(np.mean([abs(np.linalg.norm(a) - np.linalg.norm(b)) for a, b in pairs]))
    assert shrinkage(x, decoded) == pytest.approx(np.sum(decoded**2) / np.sum(x**2))
    assert np.isnan(cosines(x, decoded)[0])
    assert cosines(x, decoded)[1] == 0


@pytest.mark.parametrize(
    ("decoded", "told"), [(np.ones((2, 3)), "must agree"), ([[np.inf] * 2] * 2, "decoded must hold no NaN")]
)
def test_distortion_refuses_what_does_not_fit(decoded, told):
    with pytest.raises(InputError, match=told):
        measure(np.ones((2, 2)), decoded)
    with pytest.raises(InputError, match="zero throughout"):
        measure(np.zeros((2, 2)), np.ones((2, 2)))
