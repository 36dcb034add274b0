"""The clusterings that the studies compare, fitted alike: same vectors, same cap on updates, same number of starts.

GSRQ (Kim et al., ICML 2026, arXiv 2607.01065) sets gain-shape k-means (GSKM, section 4.2) against Lloyd's k-means from
k-means++. Two things differ between those, the update and the start on the sphere, so a control stands between them:
Lloyd's k-means from the same spherical start. The released code's shape rule is the fourth arm.

Two things are not alike. Arms with the spherical start have up to 20 passes of k-means on the sphere before their own.
And a cluster that loses all members gets a far vector under Lloyd's k-means, which is scikit-learn's, while gain-shape
arms keep its codeword unused. How each is fitted is
for `clustering`, on what for `synthetic`, `tensors` and `rates`.
"""

from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from icml26.errors import InputError, nearest
from icml26.gsrq.clustering import Codebook, fit_codebook
from icml26.gsrq.distortion import measure
from icml26.gsrq.starts import spherical_start

__all__ = ["ARMS", "Arm", "arm_of", "fit_arm", "fit_arms", "measured", "paired"]


class Arm(NamedTuple):
    """A clustering: its update and where it starts.

    Attributes
    ----------
    rule : str
        "mean" (Lloyd), "unit" (the paper's shape rule) or "sum" (the released code's).
    start : str
        "k-means++" or "spherical".
    """

    rule: str
    start: str


ARMS = MappingProxyType(
    {
        "k-means++": Arm("mean", "k-means++"),
        "k-means, spherical start": Arm("mean", "spherical"),
        "GSKM": Arm("unit", "spherical"),
        "GSKM, sum rule": Arm("sum", "spherical"),
    }
)
"""Name and make of each arm. "GSKM" is the paper's rule; the "sum rule" has Lloyd's fixed points."""


def fit_arm(
    vectors: Float[np.ndarray, "N D"],
    codewords: int,
    arm: str,
    *,
    weights: Float[ArrayLike, " N"] | None = None,
    iterations: int = 100,
    starts: int = 1,
    seed: int = 0,
) -> Codebook:
    """Fit one arm.

    Parameters
    ----------
    vectors
        Training vectors.
    codewords
        K.
    arm
        One of `ARMS`.
    weights
        Of the vectors; equal by default.
    iterations
        At most so many updates.
    starts
        The best of so many.
    seed
        Of the starts.

    Returns
    -------
    Codebook
        As `clustering.fit_codebook` gives it.

    Raises
    ------
    InputError
        If the arm is unknown, or as `clustering.fit_codebook`.

    Examples
    --------
    >>> vectors = np.random.default_rng(0).normal(size=(50, 3))
    >>> fit_arm(vectors, 4, "GSKM").codewords.shape
    (4, 3)
    """
    rule, start = arm_of(arm)
    return fit_codebook(
        vectors, codewords, rule=rule, start=start, weights=weights, iterations=iterations, starts=starts, seed=seed
    )


def fit_arms(
    vectors: Float[np.ndarray, "N D"],
    codewords: int,
    arms: Iterable[str] = tuple(ARMS),
    *,
    iterations: int = 100,
    seed: int = 0,
) -> dict[str, Codebook]:
    """Fit several arms to the same vectors, those that start on the sphere from one and the same start.

    Parameters
    ----------
    vectors, codewords, iterations, seed
        As in `fit_arm`.
    arms
        Names of `ARMS`.

    Returns
    -------
    dict
        Each arm's codebook.

    Raises
    ------
    InputError
        As `fit_arm`.

    Examples
    --------
    >>> vectors = np.random.default_rng(0).normal(size=(50, 3))
    >>> list(fit_arms(vectors, 4, ["k-means++", "GSKM"]))
    ['k-means++', 'GSKM']
    """
    made = {name: arm_of(name) for name in arms}
    shared = None
    if any(arm.start == "spherical" for arm in made.values()):
        shared = spherical_start(vectors, codewords, seed=seed)
    return {
        name: fit_codebook(
            vectors,
            codewords,
            rule=arm.rule,
            start=shared if arm.start == "spherical" else arm.start,
            iterations=iterations,
            seed=seed,
        )
        for name, arm in made.items()
    }


def measured(vectors: Float[np.ndarray, "N D"], decoded: Float[np.ndarray, "N D"], prefix: str) -> dict[str, float]:
    """Distortion as columns of a table.

    Parameters
    ----------
    vectors, decoded
        Originals, and what stands for them.
    prefix
        Of the columns' names: "train" or "test".

    Returns
    -------
    dict
        ``{prefix}_mse`` (per element), ``{prefix}_nmse``, ``{prefix}_cosine``, ``{prefix}_gain_error``.

    Raises
    ------
    InputError
        As `distortion.measure`.

    Examples
    --------
    >>> measured(np.array([[3.0, 4.0]]), np.array([[0.0, 4.0]]), "test")["test_nmse"]
    0.36
    """
    found = measure(vectors, decoded)
    return {f"{prefix}_{name}": float(getattr(found, name)) for name in ("mse", "nmse", "cosine", "gain_error")}


def paired(
    frame: pd.DataFrame,
    column: str,
    first: str,
    second: str,
    *,
    unit: Sequence[str],
    how: Callable[[pd.Series, pd.Series], pd.Series] | None = None,
) -> pd.Series:
    """Compare two arms cell by cell, and average within each unit.

    Parameters
    ----------
    frame
        A table of `synthetic` or `tensors` with a column ``arm`` and a row per arm in each cell.
    column
        What is compared, such as ``test_cosine``.
    first, second
        Two arms.
    unit
        Columns that name the unit to be resampled. Cells that differ in anything else are averaged, positions and seeds
        first, so that data, sizes, kinds and sources count equally, however many positions and seeds they have.
    how
        Of two columns, what is averaged; ``first - second`` by default.

    Returns
    -------
    Series
        One value per unit.

    Raises
    ------
    InputError
        If the table lacks an arm or a column, a cell lacks one of the two arms or has one twice, or no unit is named.

    Examples
    --------
    >>> frame = pd.DataFrame({"arm": ["a", "b", "a", "b"], "seed": [0, 0, 1, 1], "size": 8, "nmse": [1.0, 2, 5, 3]})
    >>> paired(frame, "nmse", "a", "b", unit=["seed"]).tolist()
    [-1.0, 2.0]
    """
    cells = [name for name in _CELLS if name in frame.columns]
    for name in (column, "arm", *unit):
        if name not in frame.columns:
            raise InputError(f"the table has no column {name!r}{nearest(name, frame.columns)}")
    keys, chosen = list(dict.fromkeys([*unit, *cells])), frame[frame["arm"].isin([first, second])]
    if not len(unit):
        raise InputError("unit is empty: name at least one column")
    if chosen.duplicated([*keys, "arm"]).any():
        raise InputError("the table has a cell twice: do not join tables of the same cells")
    wide = chosen.pivot(index=keys, columns="arm", values=column)
    if not {first, second} <= set(wide.columns) or wide.isna().any().any():
        raise InputError(f"arms {first!r} and {second!r} are not both in every cell of the table")
    compared = wide[first] - wide[second] if how is None else how(wide[first], wide[second])
    strata = [name for name in _STRATA if name in cells and name not in unit]
    return compared.groupby(level=[*unit, *strata]).mean().groupby(level=list(unit), sort=True).mean()


_STRATA = ("data", "dimension", "codewords", "kind", "source")
# Columns that tell cells apart, in the tables of all studies.
_CELLS = ("data", "dimension", "codewords", "layer", "kind", "position", "source", "stage", "tokens", "seed")


def arm_of(name: str) -> Arm:
    """Look an arm up.

    Parameters
    ----------
    name
        One of `ARMS`.

    Returns
    -------
    Arm
        Its update and start.

    Raises
    ------
    InputError
        If there is no such arm.

    Examples
    --------
    >>> arm_of("GSKM")
    Arm(rule='unit', start='spherical')
    """
    if name not in ARMS:
        raise InputError(f"arm={name!r} must be one of {', '.join(map(repr, ARMS))}{nearest(str(name), ARMS)}")
    return ARMS[name]
