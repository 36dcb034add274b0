"""Figures are readable by colour-blind readers and on any page, small, and true to the numbers they show."""

import io
import itertools

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from icml26 import plotting
from icml26.claims import Ledger
from icml26.errors import InputError

# Machado, Oliveira and Fernandes (2009), severity 1, in linear RGB.
SIGHTS = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(color):
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    x, y, z = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.fixture(autouse=True)
def no_figure_is_left_open():
    with mpl.rc_context():
        yield
    plt.close("all")


@pytest.fixture
def ledger(project):
    return Ledger("15_s_quant", path=project / "book" / "claims" / "15_s_quant.yml")


@pytest.mark.parametrize("sight", SIGHTS)
def test_any_two_colours_are_told_apart_by_every_kind_of_sight(sight):
    seen = [lab(np.array(SIGHTS[sight]) @ linear(color)) for color in plotting.PALETTE]
    # 2.3 is a just noticeable difference.
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 10


def test_every_colour_stands_out_from_white():
    contrasts = [1.05 / (linear(color) @ [0.2126, 0.7152, 0.0722] + 0.05) for color in plotting.PALETTE]
    assert min(contrasts) > 2
    assert len(set(plotting.MARKERS)) == len(plotting.PALETTE)


def test_a_figure_is_opaque_white_at_the_book_s_width_and_small():
    drawing, axes = plotting.figure(1, 2, width="wide", height=3.6, sharey=True)
    rng = np.random.default_rng(0)
    for ax, marker in itertools.product(axes, plotting.MARKERS):
        value = rng.normal(size=12).cumsum()
        plotting.band(ax, range(12), value - 1, value + 1, value=value, marker=marker, label=marker)
        ax.legend()
    file = io.BytesIO()
    drawing.savefig(file)
    image = Image.open(file).convert("RGBA")
    assert image.size == (round(9.6 * 110), round(3.6 * 110))
    assert np.asarray(image)[..., 3].min() == 255
    assert image.getpixel((0, 0)) == (255, 255, 255, 255)
    assert file.tell() < 150_000  # ten such figures fit in a chapter


def test_the_layout_keeps_labels_inside_the_figure():
    drawing, ax = plotting.figure(height=2)
    ax.set_xlabel("a label on\ntwo lines")
    drawing.draw_without_rendering()
    assert ax.xaxis.label.get_window_extent().y0 >= 0


def test_an_unknown_width_is_an_error():
    with pytest.raises(InputError, match="width='full': say 'text' or 'wide'"):
        plotting.figure(width="full")


def test_a_band_spans_the_interval_and_shares_its_curve_s_colour_and_only_one_legend_entry():
    _, ax = plotting.figure()
    for shift in (0, 5):
        plotting.band(ax, [1, 2, 3], np.array([0, 1, 0]) + shift, [9, 8, 9], value=[5, 6, 7], label=f"plus {shift}")
    for line, area, color in zip(ax.lines, ax.collections, plotting.PALETTE, strict=False):
        assert to_hex(line.get_color()) == to_hex(area.get_facecolor()[0]) == color.lower()
    low, high = ax.collections[0].get_datalim(ax.transData).intervaly
    assert (low, high) == (0, 9)
    assert ax.get_legend_handles_labels()[1] == ["plus 0", "plus 5"]


def test_a_band_that_cannot_be_drawn_truly_is_an_error():
    _, ax = plotting.figure()
    with pytest.raises(InputError, match=r"interval at x=2\.0 is reversed"):
        plotting.band(ax, [1, 2], [0, 3], [1, 2])
    with pytest.raises(InputError, match="must be alike"):
        plotting.band(ax, [1, 2], [0], [1])


def forest(ledger):
    """The interval's line and the marker's position of each row, in the plot's units."""
    ax = plotting.verdict_plot(ledger).axes[0]
    lines = {}
    for line in ax.lines:
        if len(line.get_xdata()) == 2 and line.get_linewidth() == 2:
            lines[ax.get_yticklabels()[int(line.get_ydata()[0])].get_text()] = line.get_xdata()
    return ax, lines


def test_the_forest_plot_puts_the_null_at_zero_the_paper_at_one_and_the_claimed_side_right(ledger):
    ledger.judge("Q2", value=3.4, interval=(2.5, 4.0))  # null 1, paper 4, above
    ledger.judge("Q3", value=1.2, interval=(1.1, 1.4))  # null 1, below, no number
    ledger.judge("Q6", exact=True)
    ledger.skip("L1", reason="a", needs="b")
    _, lines = forest(ledger)
    assert lines.keys() == {"Q2", "Q3"}
    np.testing.assert_allclose(lines["Q2"], [0.5, 1.0])
    np.testing.assert_allclose(lines["Q3"], [-1.0, -0.25])


def test_the_forest_plot_writes_verdict_and_numbers_beside_each_row(ledger):
    ledger.judge("Q2", value=3.4, interval=(2.5, 4.0))
    ledger.judge("Q3", value=1.2, interval=(1.1, 1.4))
    ax, _ = forest(ledger)
    assert [text.get_text() for text in ax.texts] == [
        "3.4 [2.5, 4]\nholds in direction",
        "1.2 [1.1, 1.4]\ncontradicted at this scale",
    ]


def test_the_forest_plot_cuts_what_lies_far_out_with_an_arrow(ledger):
    ledger.judge("Q2", value=90, interval=(2.5, 100))
    ledger.judge("L4", value=-90, interval=(-100, 2))
    ax, lines = forest(ledger)
    np.testing.assert_allclose(lines["Q2"], [0.5, 3.0])
    assert {line.get_marker() for line in ax.lines} >= {"<", ">"}
    assert ax.get_xlim() == (-3, 3)


def test_the_forest_plot_of_no_interval_is_an_error(ledger):
    ledger.judge("Q6", exact=True)
    with pytest.raises(InputError, match="no claim of 15_s_quant is judged by an interval"):
        plotting.verdict_plot(ledger)
    ledger.judge("Q3", value=1, interval=(1, 1))  # at the null, of zero width
    _, lines = forest(ledger)
    assert lines["Q3"].tolist() == [0, 0]
