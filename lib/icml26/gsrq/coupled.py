"""Coupled quantisation (CQ): neighbouring channels share one code into a codebook of k-means centres.

The method is that of Zhang et al. (arXiv 2405.03917), a baseline of GSRQ (Kim et al., ICML 2026, arXiv 2607.01065):
CQ-``<c>c<b>b`` cuts the channels of a token into groups of c and stores one code of b bits for each: b/c bits a value.
Each group has a codebook of its own, made by Lloyd's algorithm from k-means++ on calibration tokens. CQ itself weights
these by the diagonal of the Fisher information; here they count equally unless weights are passed. So it is a
`residual.ResidualQuantizer` of narrow groups with a single stage, and whatever takes one takes the other.
"""

from icml26.checks import whole
from icml26.gsrq.residual import ResidualQuantizer

__all__ = ["CoupledQuantizer"]


class CoupledQuantizer(ResidualQuantizer):
    """CQ-``<c>c<b>b``: a residual quantiser of c channels, one stage and 2^b codewords, fitted by Lloyd's algorithm.

    Parameters
    ----------
    channels
        c, channels that share a code.
    bits
        b, bits of a code, 1 to 16.
    iterations
        At most so many passes of Lloyd's algorithm per group.
    seed
        Of the k-means++ starts.

    Attributes
    ----------
    codebooks : float array (positions, 1, 2^b, c)
        Once fitted; for this and the other attributes see `residual.ResidualQuantizer`.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> tokens = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    >>> quantizer = CoupledQuantizer(channels=2, bits=4).fit(tokens)
    >>> codes = quantizer.encode(tokens)
    >>> codes.shape, quantizer.bits_per_value, bool(np.mean((quantizer.decode(codes) - tokens) ** 2) < 0.2)
    ((200, 3, 1), 2.0, True)
    """

    def __init__(self, channels: int, bits: int, *, iterations: int = 100, seed: int = 0) -> None:
        self.channels, self.bits = whole("channels", channels, 1), whole("bits", bits, 1, 16)
        super().__init__(
            self.channels, 1, 1 << self.bits, rule="mean", start="k-means++", iterations=iterations, seed=seed
        )
