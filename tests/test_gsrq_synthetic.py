"""Clustering and chains on random vectors: what is measured on which vectors, and what theory says of it."""

import numpy as np
import pandas as pd
import pytest
from scipy import special

from icml26.errors import InputError
from icml26.gsrq.arms import ARMS, fit_arm, fit_arms, paired
from icml26.gsrq.distortion import measure
from icml26.gsrq.synthetic import (
    ChainConfig,
    ClusteringConfig,
    chains,
    clustering,
    gaussian,
    low_rank,
    rate_bound,
)

SMALL = ClusteringConfig(
    vectors=200, dimensions=(4, 16), codewords=(16,), seeds=2, large=((16, 64),), large_seeds=1, best_of_dimension=4
)


@pytest.fixture(scope="module")
def frame():
    return clustering(SMALL)


@pytest.fixture(scope="module")
def chained():
    return chains(ChainConfig(vectors=200, settings=((8, 16, 3, 2),), arms=tuple(ARMS)))


def nearest(vectors, codewords):
    """Brute force, in float64."""
    distances = [[((x - word) ** 2).sum() for word in codewords.astype(float)] for x in vectors.astype(float)]
    return codewords[np.argmin(distances, axis=1)]


def test_every_cell_has_every_arm_once_and_one_dimension_the_best_of_several_starts(frame):
    cells = frame.groupby(["dimension", "codewords", "seed"])["arm"].agg(list)
    assert list(cells.index) == [(4, 16, 0), (4, 16, 1), (16, 16, 0), (16, 16, 1), (16, 64, 0)]
    assert all(arms[:4] == list(ARMS) for arms in cells)
    assert ["k-means++, best of 5" in arms for arms in cells] == [True, True, False, False, False]
    best = paired(frame[frame["dimension"] == 4], "train_mse", "k-means++, best of 5", "k-means++", unit=["seed"])
    assert (best <= 1e-9).all()


def test_training_and_test_columns_are_of_fitted_and_of_fresh_vectors(frame):
    both = gaussian(400, 16, seed=1)
    book = fit_arm(both[:200], 16, "GSKM", seed=1)
    row = frame.query("dimension == 16 and codewords == 16 and seed == 1 and arm == 'GSKM'").iloc[0]
    for prefix, part in (("train", both[:200]), ("test", both[200:])):
        expected = measure(part, nearest(part, book.codewords))
        for name in ("mse", "nmse", "cosine", "gain_error"):
            assert row[f"{prefix}_{name}"] == pytest.approx(getattr(expected, name), rel=1e-5)
    assert row["single"] == (book.sizes <= 1).sum()
    assert row["smallest"] == book.sizes.min()


def test_shrinkage_and_error_of_training_vectors_add_up_to_one(frame):
    settled = frame[frame["converged"]]
    assert len(settled) > 0.8 * len(frame)
    np.testing.assert_allclose(settled["shrinkage"] + settled["train_nmse"], 1, atol=1e-5)


def test_fresh_gaussian_vectors_never_beat_the_rate_distortion_bound_and_training_vectors_do(frame):
    assert (frame["test_nmse"] > frame["bound"] - 0.02).all()
    crowded = frame[frame["codewords"] == 64]
    assert (crowded["train_nmse"] < crowded["bound"]).all()


def test_bound_is_the_error_at_which_gaussian_information_equals_the_rate():
    for bits in (0.375, 1.0, 2.0):
        assert special.xlogy(0.5, 1 / rate_bound(bits)) / np.log(2) == pytest.approx(bits)
    with pytest.raises(InputError, match="bits"):
        rate_bound(-1)


def test_arms_that_start_on_the_sphere_share_their_start():
    vectors = gaussian(300, 6, seed=3)
    shared = fit_arms(vectors, 8, seed=5)
    for arm in ARMS:
        np.testing.assert_array_equal(shared[arm].codewords, fit_arm(vectors, 8, arm, seed=5).codewords)


def test_low_rank_vectors_lie_in_their_subspace_with_lognormal_gains():
    vectors = low_rank(3000, 12, rank=3, log_sd=0.5, seed=0).astype(float)
    assert np.linalg.matrix_rank(vectors, tol=1e-3) == 3
    lengths = np.log(np.linalg.norm(low_rank(3000, 12, rank=3, log_sd=0.5, seed=0), axis=1))
    plain = np.log(np.linalg.norm(low_rank(3000, 12, rank=3, log_sd=0.0, seed=0), axis=1))
    assert (lengths - plain).std() == pytest.approx(0.5, rel=0.05)
    assert np.exp(2 * plain).mean() == pytest.approx(12, rel=0.1)


def test_a_chain_equals_stages_fitted_one_by_one(chained):
    both = gaussian(400, 8, seed=1)
    left, fresh = both[:200], both[200:]
    for stage in (1, 2, 3):
        book = fit_arm(left, 16, "k-means++", seed=1)
        left, fresh = left - nearest(left, book.codewords), fresh - nearest(fresh, book.codewords)
        row = chained.query("data == 'gaussian' and seed == 1 and arm == 'k-means++' and stage == @stage").iloc[0]
        assert row["bits"] == stage * 4 / 8
        assert row["train_nmse"] == pytest.approx((left**2).sum() / (both[:200] ** 2).sum(), rel=1e-4)
        assert row["test_nmse"] == pytest.approx((fresh**2).sum() / (both[200:] ** 2).sum(), rel=1e-4)


def test_training_error_falls_with_every_stage_of_means(chained):
    means = chained[chained["arm"].str.startswith("k-means")]
    for _, chain in means.groupby(["data", "seed", "arm"]):
        assert (np.diff(chain.sort_values("stage")["train_nmse"]) <= 1e-7).all()


def test_paired_differences_match_cells_and_average_within_units(chained):
    last = chained[chained["stage"] == 3]
    found = paired(last, "test_nmse", "GSKM", "k-means++", unit=["data", "seed"])
    by_hand = [
        float(
            last.query("data == @data and seed == @seed and arm == 'GSKM'")["test_nmse"].iloc[0]
            - last.query("data == @data and seed == @seed and arm == 'k-means++'")["test_nmse"].iloc[0]
        )
        for data, seed in found.index
    ]
    np.testing.assert_allclose(found, by_hand)
    wide = paired(chained, "test_nmse", "GSKM", "k-means++", unit=["data"], how=lambda first, second: first / second)
    assert len(wide) == 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda frame: paired(frame, "test_nmse", "GSKM", "k-means", unit=["seed"]), "not both"),
        (lambda frame: paired(frame, "test_nmsee", "GSKM", "k-means++", unit=["seed"]), "did you mean 'test_nmse'"),
        (lambda frame: paired(frame.iloc[1:], "test_nmse", "GSKM", "k-means++", unit=["seed"]), "not both"),
        (lambda frame: fit_arm(np.eye(3), 2, "GSKMM"), "did you mean 'GSKM'"),
        (lambda frame: chains(ChainConfig(vectors=20, settings=((2, 2, 1, 1),), data=("normal",))), "low rank"),
        (lambda frame: low_rank(5, 3, rank=4, log_sd=1.0, seed=0), "rank"),
    ],
)
def test_wrong_input_is_named(wrong, told, frame):
    with pytest.raises(InputError, match=told):
        wrong(pd.DataFrame(frame))
