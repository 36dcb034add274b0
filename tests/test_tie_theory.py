"""Closed forms beside integrals and simulations: tails of mixtures, the noise of labels, skewness."""

import numpy as np
import pytest
from scipy import integrate, stats

from icml26.errors import InputError
from icml26.tie import theory
from icml26.tie.laws import LogTLaw, fit_laws


@pytest.mark.parametrize(("a", "b"), [(0.5, 3), (1, 1), (2.2, 0.7)])
@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_the_tail_of_a_mixture_is_the_mean_of_the_tails_of_its_parts(a, b, n):
    mean = integrate.quad(lambda u: (1 - u**4) ** n * stats.beta.pdf(u**4, a, b) * 4 * u**3, 0, 1, epsrel=1e-10)[0]
    assert theory.mixture_tail(a, b, n) == pytest.approx(mean, rel=1e-6)


def test_lengths_that_end_with_a_chance_of_their_own_have_that_tail():
    generator = np.random.default_rng(0)
    lengths = generator.geometric(np.maximum(generator.beta(0.8, 4, 200_000), 1e-12))
    for n in (1, 10, 100, 1000):
        tail = theory.mixture_tail(0.8, 4, n)
        assert (lengths > n).mean() == pytest.approx(tail, abs=5 * (tail / 200_000) ** 0.5)


def test_the_power_law_is_the_limit():
    n = np.array([100, 10_000, 10**8, 10**12])
    ratio = theory.mixture_tail(0.5, 3, n) / theory.mixture_tail_power_law(0.5, 3, n)
    assert ratio[:2].round(5).tolist() == [0.98653, 0.99986]
    assert ratio[2:] == pytest.approx(1, rel=1e-7)
    slope = np.diff(np.log(theory.mixture_tail(0.5, 3, n[2:]))) / np.diff(np.log(n[2:]))
    assert slope == pytest.approx(-0.5, abs=1e-6)


def test_the_theorem_holds_for_a_density_that_is_no_beta():
    # p uniform on 0 to 1/2: c = 2 and a = 1, that is 2 / n; Beta(1, b) has c = b
    for n in (10**3, 10**5):
        tail = integrate.quad(lambda p, n=n: 2 * (1 - p) ** n, 0, 0.5, points=[1 / n, 20 / n])[0]
        assert tail == pytest.approx(theory.mixture_tail_power_law(1, 2, n), rel=3 / n)


def test_the_power_law_is_lighter_than_a_log_t_tail():
    x = np.array([1e20, 1e40, 1e80])
    ratio = LogTLaw([0.0], 0.5).sf(x) / theory.mixture_tail_power_law(0.5, 3, x)
    assert (np.diff(ratio) > 0).all()


@pytest.mark.parametrize("nu", [1, 3.5, 20])
def test_the_variance_of_the_location_is_the_inverse_fisher_information(nu):
    def information(t):
        return ((nu + 1) * t / (nu + t * t)) ** 2 * stats.t.pdf(t, nu)

    found = integrate.quad(information, -np.inf, np.inf)[0]
    assert theory.location_variance(nu) == pytest.approx(1 / found, rel=1e-7)
    if nu > 2:
        assert theory.log_mean_variance(nu) == pytest.approx(stats.t.var(nu))


def test_log_normal_labels_of_log_t_lengths_are_noisier_by_the_ratio_of_the_theory():
    prompts, samples, sigma = 3000, 60, 0.4
    lengths = LogTLaw(np.full(prompts, 9.0), sigma).sample(np.random.default_rng(0), 10**9, samples)
    noise = [fit_laws(lengths, None, family=family).mu.var() * samples / sigma**2 for family in ("log-t", "log-normal")]
    assert noise[0] == pytest.approx(theory.location_variance(3.5), rel=0.1)
    assert noise[1] == pytest.approx(theory.log_mean_variance(3.5), rel=0.15)
    assert noise[1] / noise[0] == pytest.approx(theory.label_noise_ratio(3.5), rel=0.12)


def test_the_ratio_is_infinite_without_a_variance_and_one_in_the_normal_limit():
    assert theory.label_noise_ratio([1.0, 2.0]).tolist() == [np.inf, np.inf]
    assert theory.label_noise_ratio(1e8) == pytest.approx(1, rel=1e-7)
    assert theory.label_noise_ratio(3.5) == pytest.approx(1.6154, abs=1e-4)


def test_the_geometric_skewness_is_scipys():
    means = np.array([1.5, 10, 300])
    assert theory.geometric_skewness(means) == pytest.approx([stats.geom.stats(1 / m, moments="s") for m in means])


def test_the_skewness_of_samples_is_below_that_of_the_law_and_far_below_under_a_cap():
    large = theory.geometric_sample_skewness([20.0, 80.0], 20_000, seed=0, repeats=40)
    assert large == pytest.approx(theory.geometric_skewness([20, 80]), abs=0.06)
    small = theory.geometric_sample_skewness([80.0], 100, seed=0)[0]
    capped = theory.geometric_sample_skewness([80.0], 100, cap=160, seed=0)[0]
    assert capped + 0.8 < small < 1.9
    draws = np.minimum(np.random.default_rng(1).geometric(1 / 80, (400, 100)), 160)
    assert capped == pytest.approx(stats.skew(draws, axis=1).mean(), abs=0.06)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: theory.mixture_tail(0, 1, 5), "a holds 0"),
        (lambda: theory.mixture_tail(1, 1, -1), "n holds -1"),
        (lambda: theory.mixture_tail_power_law(1, 1, 0), "n holds 0"),
        (lambda: theory.location_variance(-3.5), "nu holds -3.5"),
        (lambda: theory.geometric_skewness([3, 1]), "mean holds 1"),
        (lambda: theory.geometric_sample_skewness([3], 2, seed=0), "samples=2"),
        (lambda: theory.geometric_sample_skewness([3], 9, cap=0, seed=0), "cap=0"),
    ],
)
def test_bad_input_is_one_line_that_names_it(ask, words):
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert "\n" not in str(caught.value)
