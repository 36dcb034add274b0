"""Principal angles, CKA and their random levels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from icml26.errors import InputError
from icml26.kappa import geometry

DRAW = np.random.default_rng(0)
ONE, OTHER = DRAW.normal(size=(2, 20, 4))


def projector(weights):
    centred = weights - weights.mean(1, keepdims=True)
    return centred @ np.linalg.pinv(centred)


def test_a_basis_is_orthonormal_spans_the_centred_columns_and_has_rank_k_minus_1():
    found = geometry.basis(ONE)
    assert found.shape == (20, 3)
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(found @ found.T, projector(ONE), atol=1e-12)


def test_collinear_columns_lower_the_rank():
    direction = DRAW.normal(size=20)
    assert geometry.basis(np.outer(direction, [0.0, 1.0, 2.0])).shape == (20, 1)


def test_angles_are_the_arccosines_of_singular_values():
    cosines = np.linalg.svd(geometry.basis(ONE).T @ geometry.basis(OTHER), compute_uv=False)
    np.testing.assert_allclose(geometry.principal_angles(ONE, OTHER), np.degrees(np.arccos(cosines))[::-1], atol=1e-6)
    assert geometry.mean_angle(ONE, OTHER) == pytest.approx(np.degrees(np.arccos(cosines)).mean())


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_angles_do_not_see_what_a_softmax_does_not_see(seed):
    draw = np.random.default_rng(seed)
    one, other = draw.normal(size=(2, 9, 3))
    shared = draw.normal(size=(9, 1)) * 10
    expected = geometry.principal_angles(one, other)
    np.testing.assert_allclose(geometry.principal_angles(one + shared, 3 * other), expected, atol=1e-7)
    turn = ortho_group.rvs(9, random_state=seed)
    np.testing.assert_allclose(geometry.principal_angles(turn @ one, turn @ other), expected, atol=1e-7)


def test_equal_probes_have_angle_0_and_orthogonal_ones_90():
    np.testing.assert_allclose(geometry.principal_angles(ONE, ONE), 0, atol=1e-5)
    np.testing.assert_allclose(geometry.principal_angles(np.eye(8)[:, :3], np.eye(8)[:, 3:6]), 90)


def test_cka_is_one_for_equal_features_and_ignores_rotation_and_scale():
    hidden = DRAW.normal(size=(50, 20))
    first, second = geometry.basis(ONE), geometry.basis(OTHER)
    turn = ortho_group.rvs(3, random_state=1)
    assert geometry.cka(hidden, first, first @ turn * 7) == pytest.approx(1)
    plain = geometry.cka(hidden, first, second)
    assert 0 < plain < 1
    assert geometry.cka(hidden, first @ turn, second * 0.1) == pytest.approx(plain)
    assert geometry.cka(hidden + 100, first, second) == pytest.approx(plain)


def test_cka_is_the_alignment_of_centred_kernels():
    hidden = DRAW.normal(size=(12, 20))
    features = [hidden @ geometry.basis(weights) for weights in (ONE, OTHER)]
    centre = np.eye(12) - 1 / 12
    kernels = [centre @ a @ a.T @ centre for a in features]
    expected = (kernels[0] * kernels[1]).sum() / np.sqrt((kernels[0] ** 2).sum() * (kernels[1] ** 2).sum())
    assert geometry.cka(hidden, geometry.basis(ONE), geometry.basis(OTHER)) == pytest.approx(expected)


@pytest.mark.parametrize(("width", "classes", "level"), [(64, 4, 79.6), (576, 4, 86.6), (576, 3, 87.2)])
def test_random_subspaces_are_the_less_apart_from_orthogonal_the_wider_the_model(width, classes, level):
    found = geometry.random_angles(width, classes, 40, seed=0)
    assert found.shape == (40,)
    assert abs(found.mean() - level) < 5 * found.std() / 40**0.5 + 0.05


def test_random_draws_follow_their_seed():
    hidden = DRAW.normal(size=(30, 20))
    np.testing.assert_array_equal(geometry.random_cka(hidden, 3, 4), geometry.random_cka(hidden, 3, 4))
    assert (geometry.random_cka(hidden, 3, 4, seed=1) != geometry.random_cka(hidden, 3, 4, seed=2)).all()
    assert (geometry.random_angles(20, 3, 4, seed=1) != geometry.random_angles(20, 3, 4, seed=2)).all()
    assert ((geometry.random_cka(hidden, 3) > 0) & (geometry.random_cka(hidden, 3) < 1)).all()


def test_a_full_basis_shows_all_so_its_cka_is_one():
    np.testing.assert_allclose(geometry.random_cka(DRAW.normal(size=(30, 5)), 5, 4), 1)


def test_the_share_inside_is_the_squared_length_of_the_projection():
    vectors = DRAW.normal(size=(7, 20))
    expected = [np.linalg.norm(projector(ONE) @ v) ** 2 / np.linalg.norm(v) ** 2 for v in vectors]
    np.testing.assert_allclose(geometry.share_inside(vectors, ONE), expected)
    np.testing.assert_allclose(geometry.share_inside((ONE - ONE.mean(1, keepdims=True)).T, ONE), 1)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: geometry.basis(np.ones((3, 3))), "equal columns"),
        (lambda: geometry.basis(np.tile(DRAW.normal(size=(20, 1)), 3)), "equal columns"),
        (lambda: geometry.basis(np.ones((3, 1))), "one column"),
        (lambda: geometry.basis(np.ones(3)), "matrix"),
        (lambda: geometry.basis([[np.inf, 1.0]]), "finite"),
        (lambda: geometry.basis([["a", "b"]]), "numbers"),
        (lambda: geometry.principal_angles(ONE, OTHER[:5]), "width"),
        (lambda: geometry.cka(np.ones((5, 20)), ONE, OTHER), "constant"),
        (lambda: geometry.cka(np.ones((5, 3)), ONE, OTHER), "width"),
        (lambda: geometry.share_inside(np.zeros((1, 20)), ONE), "zero"),
        (lambda: geometry.share_inside(np.ones((1, 3)), ONE), "width"),
        (lambda: geometry.random_angles(2, 3, 4, seed=0), "width"),
        (lambda: geometry.random_angles(9, 3, 0, seed=0), "draws"),
        (lambda: geometry.random_cka(np.ones((5, 3)), 4), "rank"),
    ],
)
def test_wrong_input_is_refused(call, told):
    with pytest.raises(InputError, match=told):
        call()
