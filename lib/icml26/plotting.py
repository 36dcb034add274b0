"""The book's one plotting style, and the figures that several chapters share.

Figures are opaque white with dark ink, so that they read on a white page and in dark mode; colours are told apart by
colour-blind readers, and no figure relies on colour alone. What is plotted, captions and alt text are the chapters'
business. Needs the extra ``book`` (matplotlib and seaborn).
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from icml26.claims import Ledger
from icml26.errors import InputError

try:
    import matplotlib.pyplot as plt
    import seaborn as sns
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}; plots need the extra: pip install 'icml26[book]'", name=error.name) from error

__all__ = ["MARKERS", "PALETTE", "WIDTHS", "band", "figure", "use_style", "verdict_plot"]

# Okabe and Ito's colours without yellow, which is too faint on white; neighbours differ in lightness too.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#4D4D4D", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# Inches: the book's text column, and the column with its margin.
WIDTHS = {"text": 7.2, "wide": 9.6}

_VERDICT_MARKS = {
    "holds": ("o", PALETTE[2]),
    "holds in direction": ("^", PALETTE[0]),
    "inconclusive": ("D", PALETTE[4]),
    "contradicted": ("X", PALETTE[1]),
}


def use_style() -> None:
    """Set the book's style for all figures that follow.

    Examples
    --------
    >>> use_style()
    >>> plt.rcParams["savefig.facecolor"]
    'white'
    """
    sns.set_theme(
        context="notebook",
        style="whitegrid",
        palette=PALETTE,
        rc={
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.constrained_layout.use": True,
            "figure.figsize": (WIDTHS["text"], 3.6),
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "savefig.transparent": False,
            "axes.titlesize": "medium",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "grid.color": "#E3E3E3",
            "legend.frameon": False,
            "font.size": 10,
            "axes.labelsize": 10,
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "legend.fontsize": 9,
            "lines.linewidth": 1.6,
            "lines.markersize": 5,
        },
    )


def figure(
    rows: int = 1, columns: int = 1, *, width: str = "text", height: float = 3.6, **options: Any
) -> tuple[Figure, Any]:
    """Make a figure in the book's style.

    Parameters
    ----------
    rows, columns : int
        Grid of axes.
    width : {"text", "wide"}
        The text column, or the column with its margin.
    height : float
        Inches.
    **options
        Passed to `matplotlib.pyplot.subplots`, such as ``sharey=True``.

    Returns
    -------
    Figure
        The figure.
    Axes or ndarray of Axes
        As `matplotlib.pyplot.subplots` gives them.

    Raises
    ------
    InputError
        If `width` is neither word.

    Examples
    --------
    >>> drawing, ax = figure(width="wide", height=3)
    >>> drawing.get_size_inches().tolist()
    [9.6, 3.0]
    >>> plt.close(drawing)
    """
    if width not in WIDTHS:
        raise InputError(f"width={width!r}: say {' or '.join(map(repr, WIDTHS))}")
    use_style()
    return plt.subplots(rows, columns, figsize=(WIDTHS[width], height), **options)


def band(
    ax: Axes,
    x: Float[ArrayLike, " points"],
    low: Float[ArrayLike, " points"],
    high: Float[ArrayLike, " points"],
    *,
    value: Float[ArrayLike, " points"] | None = None,
    label: str | None = None,
    color: str | None = None,
    marker: str | None = None,
    **line: Any,
) -> None:
    """Draw a curve with its confidence band.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    x : array-like, shape (points,)
        Positions.
    low, high : array-like, shape (points,)
        Ends of the intervals.
    value : array-like, shape (points,), optional
        The curve itself; without it the band stands alone.
    label : str, optional
        Name in the legend.
    color : str, optional
        Of both; the next of `PALETTE` by default.
    marker : str, optional
        Of the curve's points; give each curve of a figure its own of `MARKERS`.
    **line
        Passed to `Axes.plot`.

    Raises
    ------
    InputError
        If the shapes differ or an interval is reversed.

    Examples
    --------
    >>> drawing, ax = figure()
    >>> band(ax, [1, 2, 3], [0, 1, 2], [2, 3, 4], value=[1, 2, 3], label="ours")
    >>> ax.get_legend_handles_labels()[1]
    ['ours']
    >>> plt.close(drawing)
    """
    x, low, high = (np.asarray(points, dtype=float) for points in (x, low, high))
    if not x.shape == low.shape == high.shape:
        raise InputError(f"x, low and high have shapes {x.shape}, {low.shape}, {high.shape}; they must be alike")
    if (low > high).any():
        raise InputError(f"interval at x={x[low > high][0]} is reversed; give low before high")
    if value is not None:
        (curve,) = ax.plot(x, value, color=color, marker=marker, label=label, **line)
        color, label = curve.get_color(), None
    ax.fill_between(x, low, high, color=color, alpha=0.22, linewidth=0, label=label)


def verdict_plot(ledger: Ledger, *, reach: float = 3.0) -> Figure:
    """Draw every judged interval of a ledger relative to its null: a forest plot.

    Each claim has its own scale: 0 is the null, and the claimed side is on the right. Where the paper gives a number, 1
    is that number, with its tolerance as a grey bar; elsewhere 1 is the far end of our own interval.

    Parameters
    ----------
    ledger : Ledger
        With at least one claim judged by an interval.
    reach : float
        Largest distance shown, in those units; what lies beyond is cut with an arrow, its numbers stand beside it.

    Returns
    -------
    Figure
        One row a claim, in the file's order; marker and colour give the verdict, which is also written.

    Raises
    ------
    InputError
        If no claim was judged by an interval.

    Examples
    --------
    >>> ledger = Ledger("15_s_quant")
    >>> ledger.judge("Q4", value=3.9, interval=(3.8, 4.0))
    >>> drawing = verdict_plot(ledger)
    >>> [label.get_text() for label in drawing.axes[0].get_yticklabels()]
    ['Q4']
    >>> plt.close(drawing)
    """
    rows = [row for row in ledger.rows() if row["interval"] is not None]
    if not rows:
        raise InputError(f"no claim of {ledger.slug} is judged by an interval; there is nothing to plot")
    drawing, ax = figure(height=1.3 + 0.42 * len(rows))
    relative = [_relative(row) for row in rows]
    reach = min(reach, max(1.25, *(1.1 * abs(ends).max() for ends, _ in relative)))
    for position, (row, (ends, tolerance)) in enumerate(zip(rows, relative, strict=True)):
        if tolerance is not None:
            spread = [1 - tolerance, 1 + tolerance]
            ax.plot(spread, [position] * 2, color="#C8C8C8", linewidth=9, solid_capstyle="butt")
        _forest_row(ax, position, row, ends, reach)
    ax.axvline(0, color="#222222", linewidth=1)
    ax.set_xlim(-reach, reach)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [row["id"] for row in rows])
    ax.set_xlabel("distance from the null; 1 is the paper's number (filled) or our far end (hollow)\nclaimed side →")
    ax.grid(axis="y", visible=False)
    return drawing


def _relative(row: dict[str, Any]) -> tuple[np.ndarray, float | None]:
    """Value and ends of an interval in `verdict_plot`'s units, and the tolerance where there is one."""
    rule, number = row["rule"], row["paper"]["value"]
    sign = 1 if rule["direction"] == "above" else -1
    measured = sign * (np.array([row["value"], *row["interval"]]) - rule["null"])
    if number is None:
        return measured / (abs(measured).max() or 1.0), None
    unit = abs(number - rule["null"])
    return measured / unit, rule["tolerance"] / unit


def _forest_row(ax: Axes, position: int, row: dict[str, Any], relative: np.ndarray, reach: float) -> None:
    marker, color = _VERDICT_MARKS[row["verdict"]]
    value, low, high = relative[0], min(relative[1:]), max(relative[1:])
    ax.plot(np.clip([low, high], -reach, reach), [position] * 2, color=color, linewidth=2)
    if low < -reach:
        ax.plot(-reach, position, "<", color=color, clip_on=False)
    if high > reach:
        ax.plot(reach, position, ">", color=color, clip_on=False)
    if abs(value) <= reach:
        face = "white" if row["paper"]["value"] is None else color
        ax.plot(value, position, marker, color=color, markersize=7, markerfacecolor=face, markeredgecolor=color)
    text = f"{row['value']:.4g} [{row['interval'][0]:.4g}, {row['interval'][1]:.4g}]\n{row['label']}"
    ax.annotate(text, (1.02, position), xycoords=("axes fraction", "data"), va="center", fontsize=8, color="#222222")
