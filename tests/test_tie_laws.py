"""Laws of lengths: capped expectations beside adaptive quadrature of survival functions, fits beside scipy's."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from icml26.errors import InputError
from icml26.tie.laws import LogNormalLaw, LogTLaw, fit_laws
from icml26.tie.log_t import log_t

PAIRS = [(5, 0.5), (3, 0.3), (4.6, 0.4), (6, 1.5), (8, 0.2), (2, 3), (5, 0.01), (7, 0.05), (-2, 2)]
FAMILIES = {
    "log-t": (LogTLaw, stats.t(3.5)),
    "heavier": (lambda mu, sigma: LogTLaw(mu, sigma, 1.0), stats.t(1)),
    "lighter": (lambda mu, sigma: LogTLaw(mu, sigma, 30.0), stats.t(30)),
    "log-normal": (LogNormalLaw, stats.norm()),
}
CAP = 2048


def layers(function, low, high, mu, sigma):
    """The integral of function over x from low to high, in ln x, cut where the law of ln x changes."""
    places = mu + sigma * np.array([-1e4, -300, -30, -8, -3, -1, 0, 1, 3, 8, 30, 300, 1e4])
    start = np.log(low) if low > 0 else min(mu, np.log(high)) - 45
    cuts = [start, *(place for place in places if start < place < np.log(high)), np.log(high)]
    return sum(
        integrate.quad(lambda u: np.exp(u) * function(np.exp(u)), a, b, epsabs=0, epsrel=1e-12, limit=400)[0]
        for a, b in pairwise(cuts)
    )


@pytest.fixture(params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


@pytest.mark.parametrize(("mu", "sigma"), PAIRS)
def test_capped_expectations_are_integrals_of_survival_functions(family, mu, sigma):
    make, z = family
    law = make(mu, sigma)

    def survival(x):
        return z.sf((np.log(x) - mu) / sigma)

    var = np.exp(mu + sigma * z.ppf(0.9))
    tail = CAP if var >= CAP else var + layers(survival, var, CAP, mu, sigma) / 0.1
    inverse = 1 / CAP + layers(lambda x: z.cdf((np.log(x) - mu) / sigma) / x**2, 1, CAP, mu, sigma)
    assert law.mean(CAP) == pytest.approx(layers(survival, 0, CAP, mu, sigma), rel=1e-11)
    assert law.cvar(0.9, CAP) == pytest.approx(tail, rel=1e-11)
    assert law.inverse_mean(CAP) == pytest.approx(inverse, rel=1e-11)


def test_many_requests_at_once_are_the_requests_one_by_one(family):
    make, _ = family
    mu, sigma = np.array(PAIRS).T
    for ask in (lambda law: law.mean(CAP), lambda law: law.cvar(0.9, CAP), lambda law: law.inverse_mean(CAP)):
        assert ask(make(mu, sigma)) == pytest.approx(np.concatenate([ask(make(*pair)) for pair in PAIRS]), rel=1e-12)


def test_the_official_monte_carlo_scatters_around_the_closed_form():
    law = LogTLaw(np.array([5.0, 4.0]), np.array([0.5, 0.9]))
    draws = np.exp(law.mu[:, None] + law.sigma[:, None] * np.random.default_rng(0).standard_t(3.5, (2, 400_000)))
    capped = np.sort(np.minimum(draws, CAP), axis=1)
    worst = capped[:, -40_000:]
    assert (np.abs(capped.mean(axis=1) - law.mean(CAP)) < 5 * capped.std(axis=1) / 400_000**0.5).all()
    assert (np.abs(worst.mean(axis=1) - law.cvar(0.9, CAP)) < 7 * worst.std(axis=1) / 40_000**0.5).all()


@given(
    mu=st.floats(-5, 12), sigma=st.floats(0.01, 5), alpha=st.floats(0, 0.999), more=st.floats(1.01, 3),
    normal=st.booleans(),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_the_worst_share_lies_between_mean_and_cap_and_grows_with_every_parameter(mu, sigma, alpha, more, normal):
    make = LogNormalLaw if normal else LogTLaw
    law = make(mu, sigma)
    mean, tail = law.mean(CAP)[0], law.cvar(alpha, CAP)[0]
    slack = 1 + 1e-11
    assert 0 < mean <= tail * slack <= CAP * slack
    assert law.cvar(0.0, CAP)[0] == pytest.approx(mean, rel=1e-12)
    assert law.cvar(1 - (1 - alpha) / more, CAP)[0] * slack >= tail
    assert make(mu + 0.1, sigma).cvar(alpha, CAP)[0] * slack >= tail
    assert law.cvar(alpha, CAP * more)[0] * slack >= tail
    if alpha >= 0.5:
        assert make(mu, sigma * more).cvar(alpha, CAP)[0] * slack >= tail
    assert make(mu + np.log(more), sigma).mean(CAP * more)[0] == pytest.approx(more * mean, rel=1e-9)
    assert 1 / CAP / slack <= law.inverse_mean(CAP)[0] <= slack


def test_the_worst_tenth_is_the_cap_itself_where_a_tenth_of_the_lengths_reach_it(family):
    make, z = family
    edge = np.log(CAP) - 0.7 * z.ppf(0.9)
    law = make(np.array([edge - 1e-6, edge + 1e-9, edge + 3, 60.0]), 0.7)
    assert (law.sf(CAP) >= 0.1).tolist() == [False, True, True, True]
    assert law.cvar(0.9, CAP)[0] == pytest.approx(CAP, rel=1e-6)
    assert law.cvar(0.9, CAP)[0] < CAP
    assert law.cvar(0.9, CAP)[1:].tolist() == [CAP] * 3


def test_extreme_parameters_give_the_limits():
    mu = np.array([5.0, 5.0, 700.0, -700.0, 5.0, 1e3])
    sigma = np.array([1e-9, 1e4, 1.0, 1e-3, 1e-300, 1e-12])
    for make in (LogTLaw, LogNormalLaw):
        with np.errstate(all="raise", under="ignore"):
            law = make(mu, sigma)
            mean, tail, inverse = law.mean(CAP), law.cvar(0.9, CAP), law.inverse_mean(CAP)
        e5 = np.exp(5)
        assert mean == pytest.approx([e5, CAP / 2, CAP, np.exp(-700), e5, CAP], rel=1e-3)
        assert tail[[0, 1, 2, 4, 5]] == pytest.approx([e5, CAP, CAP, e5, CAP], rel=1e-6)
        assert inverse == pytest.approx([1 / e5, (1 + 1 / CAP) / 2, 1 / CAP, 1, 1 / e5, 1 / CAP], rel=1e-3)


def test_a_log_t_law_of_many_degrees_of_freedom_is_log_normal():
    mu, sigma = np.array(PAIRS[:6]).T
    many, normal = LogTLaw(mu, sigma, 1e7), LogNormalLaw(mu, sigma)
    assert many.mean(CAP) == pytest.approx(normal.mean(CAP), rel=1e-5)
    assert many.cvar(0.9, CAP) == pytest.approx(normal.cvar(0.9, CAP), rel=1e-5)
    assert many.inverse_mean(CAP) == pytest.approx(normal.inverse_mean(CAP), rel=1e-5)


def test_without_a_cap_the_log_normal_has_the_ablations_closed_forms_and_the_log_t_no_mean():
    law = LogNormalLaw([4.0, 5.0], [0.4, 1.2])
    mean = np.exp(law.mu + law.sigma**2 / 2)
    assert law.mean(None) == pytest.approx(mean, rel=1e-14)
    tail = mean * stats.norm.cdf(law.sigma - stats.norm.ppf(0.9)) / 0.1
    assert law.cvar(0.9, None) == pytest.approx(tail, rel=1e-13)
    assert law.cvar(0.9, 1e12) == pytest.approx(tail, rel=1e-6)
    for ask in (lambda law: law.mean(None), lambda law: law.cvar(0.9, None)):
        with pytest.raises(InputError, match="infinite"):
            ask(LogTLaw([4.0], [0.4]))
    grown = LogTLaw([4.0], [0.4]).mean(1e200) / LogTLaw([4.0], [0.4]).mean(1e100)
    assert grown > 1e90  # the capped mean follows the cap, without limit
    assert LogTLaw([4.0], [0.4]).inverse_mean(None) == pytest.approx(LogTLaw([4.0], [0.4]).inverse_mean(1e100))


def test_sigma_is_the_scale_and_not_the_standard_deviation_of_the_logarithm():
    logs = np.log(LogTLaw([9.0], [0.5], 8.0).sample(np.random.default_rng(0), 10**9, 200_000))
    assert logs.std() == pytest.approx(0.5 * np.sqrt(8 / 6), rel=0.02)


def test_quantiles_survival_and_median_agree(family):
    make, z = family
    law = make(np.array([5.0, 3.0]), np.array([0.5, 1.5]))
    for q in (0.01, 0.5, 0.999):
        assert 1 - law.sf(law.quantile(q)) == pytest.approx(q, rel=1e-9)
    assert law.quantile(0.5) == pytest.approx(law.median(), rel=1e-12)
    assert law.quantile([0.0, 1.0]).tolist() == [0.0, np.inf]
    assert law.sf([0.0, -1.0]).tolist() == [1.0, 1.0]
    assert law.sf(200.0) == pytest.approx(z.sf((np.log(200) - law.mu) / law.sigma), rel=1e-12)


def test_drawn_lengths_are_whole_positive_capped_and_follow_the_law():
    law = LogTLaw([3.0, 0.1, 5.0], [0.8, 2.0, 0.5])
    drawn = law.sample(np.random.default_rng(0), 100, 40_000)
    assert drawn.dtype.kind == "i"
    assert drawn.shape == (3, 40_000)
    assert drawn.min() >= 1
    assert drawn.max() == 100
    for x in (1, 5, 20, 99):
        assert (drawn > x).mean(axis=1) == pytest.approx(law.sf(x + 0.5), abs=0.012)
    assert law.sample(np.random.default_rng(1), 100).shape == (3,)
    assert (law.sample(np.random.default_rng(2), 100) == law.sample(np.random.default_rng(2), 100)).all()


def test_a_law_is_indexed_like_its_requests():
    law = LogTLaw(np.arange(5.0), 0.5, np.arange(1, 6.0))
    assert len(law) == 5
    assert law[3].mean(CAP) == pytest.approx(law.mean(CAP)[[3]])
    assert law[np.array([True, False, False, True, False])].nu.tolist() == [1, 4]
    assert law[[4, 4]].mu.tolist() == [4, 4]
    assert law[1:3].sigma.tolist() == [0.5, 0.5]


def censored(row, cap):
    return stats.CensoredData.right_censored(row.astype(float), row >= cap)


@pytest.fixture(scope="module")
def lengths():
    law = LogTLaw(np.array([4.0, 3.0, 4.5, 5.0]), np.array([0.5, 0.9, 0.4, 0.6]))
    return law.sample(np.random.default_rng(5), 150, 60)


def test_log_t_fits_are_scipys_maximum_likelihood_with_censored_data(lengths):
    law, free = fit_laws(lengths, 150), fit_laws(lengths, 150, nu=None)
    assert (lengths == 150).mean(axis=1) == pytest.approx([0.1, 0.05, 0.2, 0.5], abs=0.13)
    for i, row in enumerate(lengths):
        data = censored(row, 150)
        _, s, _, scale = log_t.fit(data, fdf=3.5)
        assert (law.mu[i], law.sigma[i]) == pytest.approx((np.log(scale), s), rel=2e-4)
        ours, theirs = ((free.nu[i], free.sigma[i], 0, np.exp(free.mu[i])), log_t.fit(data))
        if theirs[0] < 100:
            assert log_t._penalized_nnlf(ours, data) - log_t._penalized_nnlf(theirs, data) < 2e-3


def test_log_normal_fits_are_scipys_and_without_a_cap_the_moments_of_the_logarithms(lengths):
    law = fit_laws(lengths, 150, family="log-normal")
    for i, row in enumerate(lengths):
        s, _, scale = stats.lognorm.fit(censored(row, 150), floc=0)
        assert (law.mu[i], law.sigma[i]) == pytest.approx((np.log(scale), s), rel=2e-4)
    plain = fit_laws(lengths, None, family="log-normal")
    assert plain.mu == pytest.approx(np.log(lengths).mean(axis=1))
    assert plain.sigma == pytest.approx(np.log(lengths).std(axis=1))


def test_a_fit_follows_a_change_of_unit(lengths):
    law, tripled = fit_laws(lengths, 150), fit_laws(3 * lengths, 450)
    assert tripled.mu == pytest.approx(law.mu + np.log(3), abs=1e-7)
    assert tripled.sigma == pytest.approx(law.sigma, rel=1e-7)


def test_taking_capped_lengths_for_observed_ones_shortens_the_tail():
    truth = LogTLaw(np.full(50, 4.0), 0.8)
    seen = truth.sample(np.random.default_rng(3), 100, 200)
    law, naive = fit_laws(seen, 100), fit_laws(seen, None)
    assert law.sigma.mean() == pytest.approx(0.8, abs=0.03)
    assert law.mu.mean() == pytest.approx(4.0, abs=0.03)
    assert naive.sigma.mean() < 0.7


def test_equal_lengths_stop_at_the_spread_that_rounding_has():
    rows = np.full((3, 20), 30)
    rows[1, 0] = 60  # 19 of 20 equal: the likelihood of points would still be without limit
    rows[2] = 64
    bound = 1 / np.sqrt(12) / np.array([30, 30, 64])
    law, normal = fit_laws(rows, 64), fit_laws(rows, 64, family="log-normal")
    assert law.median() == pytest.approx([30, 30, 64], abs=0.1)
    assert law.sigma == pytest.approx(bound)
    assert law.mean(64) == pytest.approx([30, 30, 64], rel=0.02)
    assert normal.sigma[[0, 2]] == pytest.approx(bound[[0, 2]])
    assert normal.sigma[1] == pytest.approx(np.log(rows[1]).std())


def test_almost_all_lengths_at_the_cap_still_have_a_finite_fit():
    rows = np.full((2, 20), 256)
    rows[0, :1], rows[1, :3] = 40, (10, 100, 250)
    for nu in (3.5, None):
        law = fit_laws(rows, 256, nu=nu)
        assert np.isfinite([law.mu, law.sigma]).all()
        assert (law.sf(256) > 0.7).all()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: LogTLaw([1.0, np.nan], 1.0), "mu holds nan"),
        (lambda: LogTLaw([1.0], [0.0]), "sigma holds 0"),
        (lambda: LogTLaw([1.0], [0.5], -1), "nu holds -1"),
        (lambda: LogTLaw([1.0, 2.0], [1.0, 1.0, 1.0]), "shapes"),
        (lambda: LogTLaw([[1.0]], 1.0), "axes"),
        (lambda: LogTLaw(["long"], 1.0), "must be numbers"),
        (lambda: LogNormalLaw([True], 1.0), "bool"),
        (lambda: LogTLaw(["5"], 1.0), "mu holds <U1 values; give real numbers"),
        (lambda: LogTLaw([10**400], 1.0), "must be numbers"),
        (lambda: LogTLaw([1.0, [2.0]], 1.0), "must be numbers"),
        (lambda: LogTLaw([1e308], [1.0]), r"mu holds 1e\+308; give logarithms of tokens, from -1000 to 1000"),
        (lambda: LogNormalLaw([-1001.0], [1.0]), "mu holds -1001"),
        (
            lambda: LogTLaw([1.0] * 3, 1.0).quantile([0.5, 0.6]),
            r"q has shape \(2,\); give one, or one for each of 3",
        ),
        (lambda: LogTLaw([1.0] * 3, 1.0).sf([5, 6]), r"x has shape \(2,\)"),
        (lambda: LogTLaw([1.0], [1.0]).inverse_mean(9, floor=[1, 2]), r"floor=\[1, 2\] must be one number"),
        (lambda: LogTLaw([1.0], [1.0]).sample(0, 10), "generator=0 must be a numpy Generator"),
        (lambda: fit_laws([[5, 6]], 10, nu="3"), "nu holds <U1 values; give real numbers"),
        (lambda: fit_laws([[5, 6], [7]], 10), "lengths is no array"),
        (lambda: LogTLaw([1.0], [1.0]).mean(0), "cap=0"),
        (lambda: LogTLaw([1.0], [1.0]).mean(True), "cap=True"),
        (lambda: LogTLaw([1.0], [1.0]).mean(np.inf), "cap=inf"),
        (lambda: LogTLaw([1.0], [1.0]).cvar(90, 100), "alpha=90"),
        (lambda: LogTLaw([1.0], [1.0]).cvar(1.0, 100), "alpha=1.0"),
        (lambda: LogTLaw([1.0], [1.0]).inverse_mean(0.5), "below floor"),
        (lambda: LogTLaw([1.0], [1.0]).quantile(1.5), "probabilities"),
        (lambda: LogTLaw([1.0], [1.0]).sample(np.random.default_rng(0), 10.5), "positive integer"),
        (lambda: LogTLaw([1.0], [1.0]).sample(np.random.default_rng(0), 10, 0), "samples=0"),
        (lambda: fit_laws([[1.5, 2.0]], 10), "integers"),
        (lambda: fit_laws([1, 2], 10), "one row per prompt"),
        (lambda: fit_laws([[5]], 10), "at least 2 samples"),
        (lambda: fit_laws([[0, 5]], 10), "end token"),
        (lambda: fit_laws([[5, 11]], 10), "above cap=10"),
        (lambda: fit_laws([[5, 6]], 10, family="log t"), "family='log t'"),
        (lambda: fit_laws([[5, 6]], 10, nu=[3.5]), "one number"),
        (lambda: fit_laws([[5, 6]], 10, nu=0), "nu holds 0"),
    ],
)
def test_bad_input_is_one_line_that_names_it(ask, words):
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert "\n" not in str(caught.value)
