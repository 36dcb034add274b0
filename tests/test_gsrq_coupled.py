"""Coupled quantisation beside k-means and nearest centres written out."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from icml26.errors import InputError
from icml26.gsrq.coupled import CoupledQuantizer


@pytest.fixture(scope="module")
def tokens():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(300, 4)) @ rng.normal(size=(4, 12)) + rng.normal(size=12)).astype(np.float32)


def test_each_group_of_channels_has_a_fixed_point_of_lloyds_algorithm(tokens):
    quantizer = CoupledQuantizer(4, 3).fit(tokens)
    assert quantizer.codebooks.shape == (3, 1, 8, 4)
    for position, (book,) in enumerate(quantizer.codebooks):
        group = tokens[:, 4 * position : 4 * position + 4]
        own = KMeans(8, init=book, n_init=1, max_iter=50, tol=0).fit(group)
        np.testing.assert_allclose(book, own.cluster_centers_, atol=1e-4)
        best = KMeans(8, n_init=10, random_state=0).fit(group)
        assert own.inertia_ < 1.3 * best.inertia_


def test_codes_name_the_nearest_centre_and_decode_to_it(tokens):
    quantizer = CoupledQuantizer(2, 4).fit(tokens[:200])
    codes = quantizer.encode(tokens)
    assert (codes.shape, codes.dtype) == ((300, 6, 1), np.uint8)
    read = quantizer.decode(codes).reshape(300, 6, 2)
    for position, group in enumerate(tokens.reshape(300, 6, 2).transpose(1, 0, 2)):
        distances = np.linalg.norm(group[:, None] - quantizer.codebooks[position, 0], axis=-1)
        np.testing.assert_allclose(np.linalg.norm(group - read[:, position], axis=-1), distances.min(1), atol=1e-5)


def test_coupling_channels_that_move_together_beats_coding_them_apart(tokens):
    def error(quantizer):
        return ((quantizer.decode(quantizer.encode(tokens)) - tokens) ** 2).mean()

    apart, together = CoupledQuantizer(1, 1), CoupledQuantizer(4, 4)
    assert apart.bits_per_value == together.bits_per_value == 1
    assert error(together.fit(tokens)) < error(apart.fit(tokens))


def test_a_weight_counts_a_token_as_often_as_repeating_it():
    tokens = np.repeat(np.array([[0.0], [1.0], [10.0], [14.0]]), 5, axis=0)
    weights = np.ones((20, 1))
    weights[15:] = 3
    quantizer = CoupledQuantizer(1, 1).fit(tokens, weights)
    np.testing.assert_allclose(np.sort(quantizer.codebooks.ravel()), [0.5, 13])


def test_heavy_tokens_are_coded_more_exactly(tokens):
    gradients = np.random.default_rng(1).normal(size=tokens.shape) * np.where(np.arange(300) % 10, 1, 30)[:, None]
    weights = (gradients.reshape(300, 3, 4) ** 2).sum(-1)
    uniform, weighted = CoupledQuantizer(4, 4).fit(tokens), CoupledQuantizer(4, 4).fit(tokens, weights)
    heavy = tokens[::10]
    errors = [((each.decode(each.encode(heavy)) - heavy) ** 2).mean() for each in (uniform, weighted)]
    assert errors[1] < 0.8 * errors[0]


def test_the_same_seed_makes_the_same_codebooks(tokens):
    first, second, other = (CoupledQuantizer(4, 4, seed=seed).fit(tokens).codebooks for seed in (1, 1, 2))
    assert (first == second).all()
    assert (first != other).any()


def test_tokens_that_repeat_leave_codewords_that_repeat():
    tokens = np.repeat(np.eye(4), 8, axis=0)
    quantizer = CoupledQuantizer(4, 4).fit(tokens)
    np.testing.assert_allclose(quantizer.decode(quantizer.encode(tokens)), tokens, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tokens: CoupledQuantizer(0, 4), "channels=0"),
        (lambda tokens: CoupledQuantizer(2, 17), "bits=17"),
        (lambda tokens: CoupledQuantizer(2, 4, seed=-1), "seed=-1"),
        (lambda tokens: CoupledQuantizer(5, 4).fit(tokens), "12 channels, no multiple"),
        (lambda tokens: CoupledQuantizer(2, 4).fit(tokens[:15]), "15 vectors are too few"),
        (lambda tokens: CoupledQuantizer(2, 4).fit(tokens, np.ones((300, 2))), "shape"),
        (lambda tokens: CoupledQuantizer(2, 4).encode(tokens), "call fit first"),
    ],
)
def test_wrong_input_is_refused_in_one_line(tokens, call, message):
    with pytest.raises(InputError, match=message):
        call(tokens)
