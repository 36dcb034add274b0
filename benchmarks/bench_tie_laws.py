"""Capped expectations and fits of log-t laws beside the official code's draws, adaptive quadrature and scipy's fit.

Each result is compared with the others' of its group: the draws agree to their noise, all else to many digits.
"""

import numpy as np
import pytest
from scipy import integrate, stats

from icml26.tie.laws import LogNormalLaw, LogTLaw, fit_laws
from icml26.tie.log_t import log_t

CAP, ALPHA, NU = 2048, 0.9, 3.5
REQUESTS = 1000
GENERATOR = np.random.default_rng(0)
MU, SIGMA = GENERATOR.normal(4.6, 1.2, REQUESTS), np.exp(GENERATOR.normal(-0.9, 0.45, REQUESTS))
SCORES = f"Mean and worst tenth of requests' lengths, capped at {CAP:,} tokens"
LENGTHS = LogTLaw(MU[:100], SIGMA[:100]).sample(np.random.default_rng(1), CAP, 20)
FITS = "Fits of log-t laws to 20 generations of a prompt, capped ones censored"


def drawn(mu, sigma, generator, draws=10_000):
    """The official estimates of one request: fresh draws for each, the strict exceedances of a percentile."""
    mean = np.minimum(np.exp(mu + sigma * generator.standard_t(NU, draws)), CAP).mean()
    lengths = np.minimum(np.exp(mu + sigma * generator.standard_t(NU, draws)), CAP)
    edge = np.percentile(lengths, 100 * ALPHA)
    worst = lengths[lengths > edge]
    return mean, worst.mean() if worst.size else edge


def adaptive(mu, sigma):
    """The same by `scipy.integrate.quad` of the survival function, in ln x."""
    law = stats.t(NU)

    def layer(u):
        return np.exp(u) * law.sf((u - mu) / sigma)

    edge = min(mu + sigma * law.ppf(ALPHA), np.log(CAP))
    low, high = (
        integrate.quad(layer, *ends, epsabs=1e-9, limit=200)[0]
        for ends in ((min(mu, edge) - 30, edge), (edge, np.log(CAP)))
    )
    return low + high, np.exp(edge) + high / (1 - ALPHA)


def scores(law):
    return np.stack([law.mean(CAP), law.cvar(ALPHA, CAP)])


@pytest.fixture(scope="module")
def expected():
    return scores(LogTLaw(MU, SIGMA))


def test_draws(measure, expected):
    generator = np.random.default_rng(0)

    def run():
        return drawn(MU[0], SIGMA[0], generator)

    found = measure(SCORES, "10,000 draws for each, as the official code", 1, "request", run, baseline=True)
    assert np.allclose(found, expected[:, 0], rtol=0.15)


def test_quad(measure, expected):
    found = measure(SCORES, "`scipy.integrate.quad`", 1, "request", adaptive, MU[0], SIGMA[0])
    assert np.allclose(found, expected[:, 0], rtol=1e-7)


def test_one(measure, expected):
    found = measure(SCORES, "`LogTLaw`, one at a time", 1, "request", lambda: scores(LogTLaw(MU[0], SIGMA[0])))
    assert np.allclose(found[:, 0], expected[:, 0], rtol=1e-12)


@pytest.mark.parametrize("n", [32, REQUESTS])
def test_many(measure, expected, n):
    label = f"`LogTLaw`, {n:,} together"
    found = measure(SCORES, label, n, "request", lambda: scores(LogTLaw(MU[:n], SIGMA[:n])))
    assert np.allclose(found, expected[:, :n], rtol=1e-12)


def test_log_normal(measure):
    label = f"`LogNormalLaw`, {REQUESTS:,} together (another law)"
    found = measure(SCORES, label, REQUESTS, "request", lambda: scores(LogNormalLaw(MU, SIGMA)))
    assert (found[0] <= found[1]).all()


def test_scipy_fit(measure):
    row = LENGTHS[0].astype(float)
    data = stats.CensoredData.right_censored(row, row >= CAP)
    found = measure(FITS, "`log_t.fit`, scipy's simplex", 1, "prompt", lambda: log_t.fit(data, fdf=NU), baseline=True)
    law = fit_laws(LENGTHS[:1], CAP)
    assert np.allclose([np.log(found[3]), found[1]], [law.mu[0], law.sigma[0]], atol=1e-3)


@pytest.mark.parametrize("family", ["log-t", "log-normal"])
def test_fit_laws(measure, family):
    law = measure(FITS, f"`fit_laws`, {family}, 100 together", 100, "prompt", fit_laws, LENGTHS, CAP, family)
    assert np.isfinite(law.mu).all()
    assert np.corrcoef(law.mu, MU[:100])[0, 1] > 0.9
