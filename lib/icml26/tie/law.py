"""What is computed of any law of output lengths: quantiles, capped expectations, draws.

TIE (Zheng et al., ICML 2026, arXiv 2604.00499) scores a request by E[X'] + beta CVaR(X') (its Eqs. 11-12) with
X' = min(X, cap), where ln X has a symmetric law of location mu and scale sigma. What needs no more than that is here;
`laws` has the two families.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from icml26.checks import whole
from icml26.errors import InputError
from icml26.tie.checks import checked_cap, checked_reals, checked_scalar, checked_share

__all__ = ["Law"]

_LARGEST = 1e100  # standardised ends beyond it carry no mass and would overflow in squares


class Law:
    """X = exp(mu + sigma Z) with a symmetric Z; a frozen dataclass of arrays, one entry per request.

    A family defines `_sf`, `_quantile` and `_draw` of Z, `_partial`, the integral of exp(log_scale + sigma z) over a
    part of its law, and what is left of the capped expectations without a cap.
    """

    def __len__(self) -> int:
        return len(self.mu)

    def __getitem__(self, indices) -> "Law":
        """The law of some of the requests: an index, a slice, an array of indices or a mask."""
        return replace(self, **{name: value[indices] for name, value in vars(self).items()})

    def median(self) -> Float[np.ndarray, " requests"]:
        """The median exp(mu) of the uncapped length, in tokens."""
        with np.errstate(over="ignore"):  # a length too long for a float is infinite
            return np.exp(self.mu)

    def quantile(self, q: ArrayLike) -> Float[np.ndarray, " requests"]:
        """The quantile exp(mu + sigma z_q) of the uncapped length, in tokens.

        Parameters
        ----------
        q : float or array, shape (requests,)
            Probability, 0 to 1.

        Returns
        -------
        array, shape (requests,)

        Raises
        ------
        InputError
            If q is no probability, or of another number than the requests.
        """
        q = self._aligned("q", q)
        if not ((q >= 0) & (q <= 1)).all():
            raise InputError(f"q={q.min():g} to {q.max():g} must be probabilities, from 0 to 1")
        with np.errstate(over="ignore"):
            return np.exp(self.mu + self.sigma * self._quantile(q))

    def sf(self, x: ArrayLike) -> Float[np.ndarray, " requests"]:
        """P(X > x) of the uncapped length.

        Parameters
        ----------
        x : float or array, shape (requests,)
            Tokens; every length exceeds what is not positive.

        Returns
        -------
        array, shape (requests,)

        Raises
        ------
        InputError
            If x is not finite, or of another number than the requests.
        """
        x = self._aligned("x", x)
        with np.errstate(divide="ignore"):
            return self._sf((np.log(np.maximum(x, 0)) - self.mu) / self.sigma)

    def mean(self, cap: float | None) -> Float[np.ndarray, " requests"]:
        """E[min(X, cap)], the expectation of SEPT and the first term of TIE's score.

        Parameters
        ----------
        cap : float or None
            Largest length that is generated, in tokens. None leaves the law uncapped: the log-normal mean is then
            exp(mu + sigma^2 / 2), as in the official ablation, and the log-t mean does not exist.

        Returns
        -------
        array, shape (requests,)
            Tokens.

        Raises
        ------
        InputError
            If the cap is not positive, or None for a law without a mean.
        """
        if cap is None:
            return self._uncapped_mean()
        log_cap, high = self._end(cap)
        inside = self._partial(self.mu - log_cap, np.full_like(high, -np.inf), high)
        return cap * np.minimum(inside + self._sf(high), 1)  # the bound holds exactly, sums of it to rounding

    def cvar(self, alpha: float, cap: float | None) -> Float[np.ndarray, " requests"]:
        """E[X' | X' >= VaR_alpha(X')] with X' = min(X, cap): the mean of the worst 1 - alpha.

        It is the cap itself where P(X >= cap) >= 1 - alpha.

        Parameters
        ----------
        alpha : float
            0.9 for the worst 10 %; 0 gives the mean.
        cap : float or None
            As for `mean`.

        Returns
        -------
        array, shape (requests,)
            Tokens.

        Raises
        ------
        InputError
            If alpha is not from 0 to below 1, the cap is not positive, or None for a law without a mean.
        """
        alpha = checked_share("alpha", alpha)
        if cap is None:
            return self._uncapped_cvar(alpha)
        log_cap, high = self._end(cap)
        start = np.broadcast_to(-self._quantile(1 - alpha), high.shape)  # the law of Z is symmetric
        full = high <= start
        inside = self._partial(self.mu - log_cap, np.minimum(start, high), high)
        shares = (inside + self._sf(high)) / (1 - alpha)
        return cap * np.where(full, 1.0, np.minimum(shares, 1))

    def inverse_mean(self, cap: float | None, floor: float = 1.0) -> Float[np.ndarray, " requests"]:
        """E[1 / X'] with X' = min(max(X, floor), cap), the expected weight of a request whose metric is time per token.

        Without the floor it does not exist for the log-t law: its lower tail is as heavy as the upper one. An answer
        has at least one token.

        Parameters
        ----------
        cap : float or None
            Largest length, in tokens; None for no cap.
        floor : float
            Smallest length, in tokens.

        Returns
        -------
        array, shape (requests,)
            Per token.

        Raises
        ------
        InputError
            If the floor or the cap is not positive, or the cap is below the floor.
        """
        floor = checked_scalar("floor", floor)
        # 1 / X has the same kind of law with -mu.
        high = np.clip((self.mu - np.log(floor)) / self.sigma, -_LARGEST, _LARGEST)
        low = np.full_like(high, -np.inf)
        ends = self._sf(high)
        if cap is not None:
            if checked_cap(cap) < floor:
                raise InputError(f"cap={cap!r} is below floor={floor!r}; a length has to fit between them")
            low = np.minimum(-self._end(cap)[1], high)
            ends = ends + self._sf(-low) * (floor / cap)
        return (self._partial(np.log(floor) - self.mu, low, high) + ends) / floor

    def sample(
        self, generator: np.random.Generator, cap: int, samples: int | None = None
    ) -> Int[np.ndarray, "requests *samples"]:
        """Draw lengths: X rounded to whole tokens, at least 1, at most the cap.

        Parameters
        ----------
        generator : numpy.random.Generator
            Where randomness comes from.
        cap : int
            Largest length, in tokens.
        samples : int or None
            Number per request; None for one without an axis of its own.

        Returns
        -------
        int array, shape (requests,) or (requests, samples)
            Tokens.

        Raises
        ------
        InputError
            If the cap or the number is no positive integer, or the generator is none.
        """
        if not isinstance(generator, np.random.Generator):
            raise InputError(f"generator={generator!r} must be a numpy Generator, such as np.random.default_rng(0)")
        cap = checked_cap(cap, whole=True)
        draws = self._draw(generator, 1 if samples is None else whole("samples", samples, 1))
        logs = np.minimum(self.mu[:, None] + self.sigma[:, None] * draws, np.log(cap))
        lengths = np.clip(np.rint(np.exp(logs)), 1, cap).astype(np.int64)
        return lengths[:, 0] if samples is None else lengths

    def _aligned(self, name, value):
        value = checked_reals(name, value)
        try:
            np.broadcast_shapes(value.shape, self.mu.shape)
        except ValueError as error:
            raise InputError(f"{name} has shape {value.shape}; give one, or one for each of {len(self)}") from error
        return value

    def _end(self, cap):
        log_cap = np.log(checked_cap(cap))
        return log_cap, np.clip((log_cap - self.mu) / self.sigma, -_LARGEST, _LARGEST)
