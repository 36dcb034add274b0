"""Closed forms: the law of the residual, the best of many seeds, moments and autocorrelation over the cycle."""

import numpy as np
import pytest
from scipy import integrate

from icml26.errors import InputError
from icml26.s_quant import lfsr, theory
from icml26.s_quant.lfsr import TAPS, Register, basis_integers, cycle

# Expected best residual for k = 1, 2, ... by number of seeds and block length, to the digits given.
BEST = {
    (255, 8): ".25347 .14070 .07362 .03245 .01",
    (255, 16): ".53045 .42373 .34444 .27937 .22405 .17634 .13512 .09975",
    (4095, 8): ".11711 .05581 .02406 .00802",
    (4095, 16): ".37266 .28508 .22220 .17243 .13172 .09811 .07046 .04809",
    (65535, 8): ".05348 .02215 .00791 .00200 .00025",
    (65535, 12): ".15773 .09991 .06323 .03820 .02124 .01034",
    (65535, 16): ".26001 .19184 .14410 .10743 .07844 .05544 .03742 .02365",
}


def iid_residuals(block, bases, n_seeds, rng):
    q, _ = np.linalg.qr(rng.standard_normal((n_seeds, block, bases)))
    target = rng.standard_normal(block)
    return 1 - np.square(q.swapaxes(-1, -2) @ target).sum(-1) / np.square(target).sum()


@pytest.mark.parametrize(("n_seeds", "block"), BEST)
def test_the_expected_best_residual_matches_the_reference_values(n_seeds, block):
    for bases, printed in enumerate(BEST[n_seeds, block].split(), start=1):
        found = theory.expected_best_residual(block, bases, n_seeds)
        assert f"{found:.{len(printed) - 1}f}" == "0" + printed


@pytest.mark.parametrize(("block", "bases"), [(8, 1), (8, 7), (16, 6)])
def test_the_law_of_the_residual_is_that_of_random_subspaces(block, bases):
    residuals = iid_residuals(block, bases, 20_000, np.random.default_rng(0))
    law = theory.residual_distribution(block, bases)
    places = np.linspace(0.05, 0.95, 19)
    assert np.abs(np.mean(residuals[:, None] <= law.ppf(places), axis=0) - places).max() < 0.015


@pytest.mark.parametrize(("block", "bases"), [(8, 2), (16, 4)])
def test_the_expected_best_residual_is_the_mean_of_simulated_bests(block, bases):
    rng = np.random.default_rng(1)
    best = np.array([iid_residuals(block, bases, 63, rng).min() for _ in range(400)])
    error = best.std() / np.sqrt(best.size)
    assert abs(best.mean() - theory.expected_best_residual(block, bases, 63)) < 4 * error


def test_one_candidate_leaves_the_mean_and_more_candidates_or_bases_leave_less():
    for bases in range(1, 8):
        assert theory.expected_best_residual(8, bases, 1) == pytest.approx((8 - bases) / 8, rel=1e-9)
    by_seeds = [theory.expected_best_residual(8, 2, n) for n in (1, 15, 255, 65535)]
    by_bases = [theory.expected_best_residual(8, k, 255) for k in range(1, 8)]
    assert by_seeds == sorted(by_seeds, reverse=True)
    assert by_bases == sorted(by_bases, reverse=True)


@pytest.mark.parametrize(("block", "bases", "n_seeds"), [(8, 6, 65535), (16, 2, 2**24 - 1), (2, 1, 3)])
def test_the_integral_is_also_right_where_the_answer_is_tiny(block, bases, n_seeds):
    law = theory.residual_distribution(block, bases)
    # The same expectation over the quantiles of the smallest of N: F(minimum) = 1 - exp(-t/N), t exponential.
    direct = sum(
        integrate.quad(lambda t: law.ppf(-np.expm1(-t / n_seeds)) * np.exp(-t), low, high, epsabs=0)[0]
        for low, high in ((0, 0.1), (0.1, 5), (5, 60))
    )
    assert theory.expected_best_residual(block, bases, n_seeds) == pytest.approx(direct, rel=1e-5)


@pytest.mark.parametrize("register", [Register(width) for width in TAPS if width <= 18], ids=str)
def test_values_over_the_cycle_have_mean_zero_and_the_closed_form_variance(register):
    values = cycle(register).astype(np.int64) - register.half
    assert values.sum() == 0
    # h/(3(h - 1)) in integers: 3 (h - 1) sum (z - h)^2 = h (h - 1)^2 (2^K - 1)
    half = register.half
    assert 3 * int(np.square(values).sum()) == half * (half - 1) * register.period
    assert np.var(values / (half - 1)) == pytest.approx(theory.value_variance(register.width), rel=1e-12)


@pytest.mark.parametrize("width", [8, 12, 16])
def test_fibonacci_states_keep_half_of_themselves_at_each_lag(width):
    found = theory.autocorrelation(Register(width, "fibonacci"), [1, 2, 3])
    assert found == pytest.approx([0.5, 0.25, 0.125], abs=4 / 2**width)


@pytest.mark.parametrize(
    ("register", "expected", "tolerance"),
    [
        (Register.s_quant(16), [0.381, 0, 0], 0.005),
        (Register(16), [0.10], 0.005),
        (Register(8), [0.375, 0.004, 0.018, 0.047], 0.0006),
        (Register(12), [0.03], 0.005),
    ],
    ids=str,
)
def test_galois_states_are_correlated_as_their_mask_says(register, expected, tolerance):
    lags = range(1, len(expected) + 1)
    assert theory.autocorrelation(register, lags) == pytest.approx(expected, abs=tolerance)


def test_autocorrelation_is_that_of_the_fourier_transform_and_symmetric():
    register = Register(10, "galois")
    spectrum = np.abs(np.fft.fft(cycle(register) - float(register.half))) ** 2
    everywhere = np.fft.ifft(spectrum).real
    found = theory.autocorrelation(register, range(register.period))
    assert found == pytest.approx(everywhere / everywhere[0], abs=1e-12)
    assert theory.autocorrelation(register, [-3]) == pytest.approx(found[[3]])


def test_registers_lose_against_independent_bases_at_one_vector_per_block():
    # 4095 windows of one cycle are shifted copies of each other: far above the closed form for iid bases.
    register, rng = Register.s_quant(12), np.random.default_rng(2)
    basis = basis_integers(register, lfsr.cycle(register), 8, 1)[..., 0].astype(float)
    unit = basis / np.linalg.norm(basis, axis=1, keepdims=True)
    blocks = rng.standard_normal((200, 8))
    share = np.square(blocks @ unit.T).max(1) / np.square(blocks).sum(1)
    assert 1 - share.mean() > 1.5 * theory.expected_best_residual(8, 1, register.period)


def test_the_rate_distortion_bound_falls_fourfold_with_each_bit():
    assert theory.rate_distortion_bound(0) == 1
    assert theory.rate_distortion_bound(4.25) / theory.rate_distortion_bound(3.25) == pytest.approx(1 / 4)
    assert theory.rate_distortion_bound(3) ** 0.5 == 0.125


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.residual_distribution(8, 8), "bases 8.*1 to 7"),
        (lambda: theory.residual_distribution(8, 0), "bases 0"),
        (lambda: theory.expected_best_residual(8, 2, 0), "n_seeds 0"),
        (lambda: theory.rate_distortion_bound(-1), "bits -1"),
        (lambda: theory.rate_distortion_bound(float("nan")), "bits nan"),
        (lambda: theory.value_variance(1), "width 1"),
        (lambda: theory.autocorrelation(Register(4, taps=(0, 1, 2, 3)), [1]), "more than one cycle"),
    ],
)
def test_wrong_input_is_refused_with_a_remedy(call, message):
    with pytest.raises(InputError, match=message):
        call()
