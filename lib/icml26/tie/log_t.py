"""The log-t law as a distribution of `scipy.stats`: frozen, vectorised, fitted and tested like any of theirs.

TIE (Zheng et al., ICML 2026, arXiv 2604.00499) models the output length of a request as X = exp(mu + sigma T), T
Student-t with nu = 3.5 degrees of freedom. `log_t(nu, sigma, scale=exp(mu))` is that law, in the manner of
`scipy.stats.lognorm`. `laws` computes what a scheduler needs of many such laws once they are capped.
"""

import numpy as np
from scipy import special, stats

from icml26.checks import is_number
from icml26.errors import InputError
from icml26.tie.checks import checked_reals

__all__ = ["log_t"]


class LogTDistribution(stats.rv_continuous):
    r"""A log-t continuous random variable: the logarithm has a Student-t law.

    Shapes are ``df``, the degrees of freedom, and ``s``, the scale of the logarithm (the paper's sigma; it is not the
    logarithm's standard deviation). ``scale`` is the median, exp(mu).

    %(before_notes)s

    Notes
    -----
    The density is

    .. math::

        f(x, \nu, s) = \frac{1}{s x} t_\nu\left(\frac{\ln x}{s}\right), \quad x > 0,

    and falls like :math:`1 / (x (\ln x)^{\nu + 1})`: no moment exists, the mean is infinite for all parameters. Take
    the median, quantiles, or the capped expectations of `icml26.tie.laws.LogTLaw`.

    `fit` keeps ``loc`` at 0 unless ``floc`` or a first guess ``loc`` is given; the paper's fit is ``fdf=3.5``.
    `scipy.stats.CensoredData` is understood.

    %(after_notes)s

    Examples
    --------
    >>> lengths = log_t(3.5, 0.5, scale=150)
    >>> lengths.sf(2048).round(5), lengths.mean()
    (np.float64(0.00458), np.float64(inf))
    >>> seen = lengths.rvs(size=4000, random_state=0)
    >>> df, s, loc, median = log_t.fit(seen, fdf=3.5)
    >>> df, round(s, 1), loc, round(median, -1)
    (3.5, np.float64(0.5), 0, np.float64(150.0))
    """

    def _shape_info(self):
        info = stats.lognorm._shape_info()[0]
        return [type(info)(name, False, (0, np.inf), (False, False)) for name in ("df", "s")]

    def _argcheck(self, df, s):
        return (df > 0) & (s > 0)

    def _logpdf(self, x, df, s):
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(x)
            inside = stats.t._logpdf(log / s, df) - np.log(s) - log
        return np.where(x > 0, inside, np.inf)  # the density has a pole at 0, though a light one

    def _pdf(self, x, df, s):
        return np.exp(self._logpdf(x, df, s))

    def _cdf(self, x, df, s):
        with np.errstate(divide="ignore"):
            return stats.t._cdf(np.log(x) / s, df)

    def _sf(self, x, df, s):
        with np.errstate(divide="ignore"):
            return stats.t._sf(np.log(x) / s, df)

    def _ppf(self, q, df, s):
        with np.errstate(over="ignore"):  # a quantile too large for a float is infinite
            return np.exp(s * special.stdtrit(df, q))

    def _isf(self, q, df, s):
        with np.errstate(over="ignore"):
            return np.exp(-s * special.stdtrit(df, q))

    def _rvs(self, df, s, size=None, random_state=None):
        with np.errstate(over="ignore"):
            return np.exp(s * random_state.standard_t(df, size=size))

    def _munp(self, n, df, s):
        return np.where(n == 0, 1.0, np.inf)

    def _stats(self, df, s):
        infinite = np.full(np.broadcast_shapes(np.shape(df), np.shape(s)), np.inf)
        return infinite, infinite, infinite * np.nan, infinite * np.nan

    def _entropy(self, df, s):
        # that of s T plus E[ln X], which is 0 by symmetry where it exists
        return np.where(df > 1, stats.t._entropy(np.asarray(df, float)) + np.log(s), np.nan)

    def _fitstart(self, data, args=None):
        values = data._uncensor() if isinstance(data, stats.CensoredData) else data
        logs = np.log(values[values > 0])
        low, median, high = np.quantile(logs, [0.25, 0.5, 0.75])
        spread = max((high - low) / 1.5, logs.std() / 4) or 1e-3
        return 3.5, spread, 0.0, np.exp(median)

    def fit(self, data, *args, **kwds):
        """Estimate df, s, loc and scale from data, plain or censored, by maximum likelihood.

        Parameters
        ----------
        data : array_like or scipy.stats.CensoredData
            Positive numbers, unless loc is to be estimated.
        *args, **kwds
            As for any distribution of `scipy.stats`: first guesses, and what is fixed (``fdf``, ``fs``, ``floc``,
            ``fscale``). loc is fixed at 0 unless ``loc`` or ``floc`` is given.

        Returns
        -------
        tuple
            df, s, loc, scale.

        Raises
        ------
        InputError
            If a moment fit is asked for; or data are no finite numbers, all censored, all equal though s is not fixed,
            or at or below a fixed loc.
        """
        if str(kwds.get("method", "mle")).lower() == "mm":
            raise InputError("method='MM' needs moments, which a log-t law has not; use method='MLE'")
        if "loc" not in kwds:
            kwds.setdefault("floc", 0)
        censored = isinstance(data, stats.CensoredData)
        values = checked_reals("data", data._uncensor() if censored else data)
        if not values.size or (censored and not len(data._uncensored) + len(data._interval)):
            raise InputError(f"data holds {values.size} numbers, none of them seen; give lengths that are not censored")
        if "floc" in kwds and not (is_number(kwds["floc"]) and (values > kwds["floc"]).all()):
            raise InputError(
                f"data holds {values.min():g}, not above floc={kwds['floc']!r}; give lengths above it, a finite number"
            )
        if values.min() == values.max() and not {"fs", "f1", "fix_s"} & kwds.keys():
            raise InputError(f"data holds {values.min():g} alone, which leaves s without a maximum; fix it by fs")
        return super().fit(data, *args, **kwds)


log_t = LogTDistribution(a=0.0, name="log_t", shapes="df, s")
