"""SeedLM's printed speed-ups and the fixed overhead per product that explains them.

SeedLM (Shafipour et al., arXiv 2410.10714) prints 3.67, 3.92 and 3.98 for growing matrix-vector products on an FPGA
whose memory delivers 64 bytes per clock. With T = N^2 q/(8 beta) + o clocks for N x N weights of q bits, the first
number fixes o, and o predicts the other two. The sizes are not stated: 512, 1024 and 2048 are inferred, so agreement
is a check of consistency, no more. The machine behind such clocks is `asic`'s subject.
"""

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from icml26.errors import InputError
from icml26.s_quant.asic_config import Design
from icml26.s_quant.roofline import port_rate
from icml26.stats import Interval

__all__ = ["SEEDLM_PRINTED", "fit_overhead", "overhead_speedup", "predicted_speedup"]

SEEDLM_PRINTED = {512: 3.67, 1024: 3.92, 2048: 3.98}  # speed-ups by N of N x N weights
PRINTED_TO = 0.005  # half a unit of the last printed digit


def overhead_speedup(
    sizes: ArrayLike,
    overhead: float,
    design: Design | None = None,
    reference: Design | None = None,
    *,
    bytes_per_clock: int = 64,
) -> Float64[np.ndarray, " sizes"]:
    """Speed-up on N x N weights if a product takes its bytes over beta, plus a fixed number of clocks.

    Parameters
    ----------
    sizes
        N.
    overhead
        o, clocks per product, the same for both.
    design, reference
        How weights are stored: SeedLM at 4 bits, and FP16, unless given.
    bytes_per_clock
        beta.

    Returns
    -------
    float64 array, one entry per size
        Speed-ups.

    Examples
    --------
    >>> overhead_speedup([512, 1024, 2048], 253).round(3)
    array([3.67 , 3.91 , 3.977])
    """
    weights = np.square(np.asarray(sizes, dtype=float))
    before = weights / port_rate(reference or Design.fp16(), bytes_per_clock)
    return (before + overhead) / (weights / port_rate(design or Design.seedlm(), bytes_per_clock) + overhead)


def fit_overhead(speedup: float, size: int, *, bytes_per_clock: int = 64) -> float:
    """The overhead with which SeedLM at 4 bits has this speed-up over FP16 on N x N weights.

    Parameters
    ----------
    speedup
        Above 1 and at most 4.
    size
        N.
    bytes_per_clock
        beta.

    Returns
    -------
    float
        o, clocks per product.

    Raises
    ------
    InputError
        If no overhead gives this speed-up.

    Examples
    --------
    >>> [round(fit_overhead(printed, size)) for size, printed in SEEDLM_PRINTED.items()]
    [253, 224, 220]
    """
    before, after = (size**2 / port_rate(design, bytes_per_clock) for design in (Design.fp16(), Design.seedlm()))
    if not 1 < speedup <= before / after:
        raise InputError(f"speedup {speedup} has no overhead behind it: use above 1, at most {before / after:g}")
    return (before - speedup * after) / (speedup - 1)


def predicted_speedup(size: int = 2048, *, fitted_at: int = 512) -> Interval:
    """SeedLM's speed-up on N x N weights, from its printed one at another size alone.

    Parameters
    ----------
    size
        N of the prediction.
    fitted_at
        The size in `SEEDLM_PRINTED` that fixes the overhead.

    Returns
    -------
    Interval
        The prediction; its ends are those of the printed number's rounding.

    Raises
    ------
    InputError
        If no speed-up is printed for `fitted_at`.

    Examples
    --------
    >>> ["%.4f" % end for end in predicted_speedup()]
    ['3.9770', '3.9766', '3.9774']
    """
    if fitted_at not in SEEDLM_PRINTED:
        raise InputError(f"fitted_at {fitted_at} has no printed speed-up: use {', '.join(map(str, SEEDLM_PRINTED))}")
    printed = SEEDLM_PRINTED[fitted_at]
    overheads = [fit_overhead(printed + shift, fitted_at) for shift in (0, -PRINTED_TO, PRINTED_TO)]
    return Interval(*(overhead_speedup(size, overhead).item() for overhead in overheads))
