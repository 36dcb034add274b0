"""The codecs' search beside the machine's peak and beside what it replaces; 16-bit seeds, one thread, Gaussian weights.

Rates of one group are of one run. Where a result can be compared with another member's, it is, before it counts.
"""

import numpy as np
import pytest
import torch

from icml26.s_quant import search, seedlm
from icml26.s_quant.bases import TILE, as_blocks, orthonormal, unit_blocks
from icml26.s_quant.codec import (
    OFFICIAL_DEFAULT,
    PAPER_4BIT,
    REPAIR_FACTORS,
    SEEDLM_3BIT,
    SEEDLM_4BIT,
    SQuantConfig,
    decode,
    encode,
    encode_path,
)

PRODUCTS = "Arithmetic of the search: share of the peak (16 weights, 12 bases)"
CANDIDATES = "Candidates scored: blocks of 16 weights, seeds, 6 bases"
SEEDLM = "SeedLM, 4 bits: blocks encoded"
ENCODING = "Weights encoded"
DECODING = "Weights decoded"
BASES, K = PAPER_4BIT.bases, 12
SEEDS, TILES = 65535, 4
AWARE = {"coefficient_bits": 4, "layout": "row-major", "seed_choice": "after", "scale_factors": REPAIR_FACTORS}


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def gaussian(n):
    return torch.randn(n, generator=torch.Generator().manual_seed(0)) * 0.02


@pytest.fixture(scope="module")
def work():
    """A part of the search that one call of a few milliseconds covers: some tiles of seeds, all bases, 256 blocks."""
    unit = unit_blocks(as_blocks(gaussian(256 * 16), 16))
    table = orthonormal(BASES, K)[:TILES].contiguous()
    return unit, table, 2 * TILES * TILE * 16 * K * len(unit)


def test_peak(measure):
    a, b = gaussian(1 << 20).view(1024, 1024), gaussian(1 << 20).view(1024, 1024)
    out = torch.empty(1024, 1024)
    measure(PRODUCTS, "one large float32 product, 1024³: the peak", 2 * 1024**3, "flop", torch.mm, a, b, baseline=True)
    assert torch.equal(torch.mm(a, b, out=out), a @ b)


def test_products_alone(measure, work):
    unit, table, flop = work
    left, right = table.float().flatten(0, 1).unbind(), unit.T.float().contiguous()
    out = torch.empty(TILE, len(unit))

    def run():
        for column in left:
            torch.mm(column, right, out=out)

    measure(PRODUCTS, "the search's products alone", flop, "flop", run)


def test_scores(measure, work):
    unit, table, flop = work
    run = search._tile_maxima
    found = measure(PRODUCTS, "with squares, sums and maxima", flop, "flop", run, unit, table, range(1, K + 1), None)
    exact = torch.einsum("tksb,nb->ktsn", table, unit).square().cumsum(0).amax(2)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)


def test_whole_search(measure):
    blocks = as_blocks(gaussian(256 * 16), 16)
    search.search_path(blocks, BASES, 1, K)  # makes the table of bases, once per process
    label, flop = "the whole search, with its float64 decision", 2 * SEEDS * 16 * K * len(blocks)
    found = measure(PRODUCTS, label, flop, "flop", search.search_path, blocks, BASES, 1, K)
    assert found.seeds.all()


def test_lstsq_seed_by_seed(measure):
    block, matrices = as_blocks(gaussian(16), 16)[0].numpy(), BASES.matrices(np.arange(1, 101), 6).numpy()

    def run():
        return [np.linalg.lstsq(matrix, block, rcond=1e-10)[1] for matrix in matrices]

    assert (
        len(measure(CANDIDATES, "`numpy.linalg.lstsq`, seed after seed", 100, "candidate", run, baseline=True)) == 100
    )


def test_pseudo_inverses(measure):
    n = 64
    blocks, matrices = as_blocks(gaussian(n * 16), 16).numpy(), BASES.matrices(np.arange(1, 1001), 6).numpy()
    projections = matrices @ np.linalg.pinv(matrices)

    def run():
        residual = (projections.reshape(-1, 16) @ blocks.T).reshape(-1, 16, n) - blocks.T
        return (residual**2).sum(1)

    assert measure(CANDIDATES, "kept projections, NumPy", 1000 * n, "candidate", run).shape == (1000, n)


def test_search_path(measure):
    blocks = as_blocks(gaussian(64 * 16), 16)
    search.search_path(blocks, BASES, 1, 6)
    label = "`search.search_path`, all of k = 1 to 6"
    measure(CANDIDATES, label, SEEDS * len(blocks), "candidate", search.search_path, blocks, BASES, 1, 6)


def test_seedlm_full(measure):
    block, every = as_blocks(gaussian(8), 8), np.arange(1, SEEDS + 1)

    def run():
        return seedlm.quantise(block.expand(SEEDS, -1), SEEDLM_4BIT, every)[0].argmin() + 1

    assert (
        measure(SEEDLM, "every seed quantised", 1, "block", run, baseline=True) == encode(block, SEEDLM_4BIT).seeds[0]
    )


def test_seedlm_pruned(measure):
    weight = gaussian(128 * 8)
    encode(weight, SEEDLM_4BIT)
    found = measure(SEEDLM, "`encode`, pruned and exact", 128, "block", encode, weight, SEEDLM_4BIT)
    assert found.payload_bytes() == 4 * 128


@pytest.mark.parametrize(
    ("label", "config"),
    [
        ("S-Quant, B = 16, R = 0.9 (3.8 bits)", PAPER_4BIT),
        ("S-Quant, released defaults, 8-bit seeds", OFFICIAL_DEFAULT),
        ("S-Quant, B = 8, k = 3, 4-bit codes, seeds chosen after rounding", SQuantConfig(8, k_min=3, k_max=3, **AWARE)),
        ("S-Quant, B = 16, k = 8, 4-bit codes, seeds chosen after rounding", SQuantConfig(k_min=8, k_max=8, **AWARE)),
        ("SeedLM, 4 bits", SEEDLM_4BIT),
        ("SeedLM, 3 bits", SEEDLM_3BIT),
    ],
)
def test_encoding(measure, label, config):
    weight = gaussian(1024)
    encode(weight, config)
    found = measure(ENCODING, label, len(weight), "weight", encode, weight, config, baseline=config is PAPER_4BIT)
    assert found.size == len(weight)


def test_encoding_from_one_path(measure):
    weight = gaussian(1024)
    path = encode_path(weight, PAPER_4BIT)
    expected = encode(weight, PAPER_4BIT)

    def run():
        return encode(weight, PAPER_4BIT, path=path)

    found = measure(ENCODING, "S-Quant, R = 0.9 read off a kept search", len(weight), "weight", run)
    assert np.array_equal(found.coefficients, expected.coefficients)


@pytest.mark.parametrize(("label", "config"), [("S-Quant, 3.8 bits", PAPER_4BIT), ("SeedLM, 4 bits", SEEDLM_4BIT)])
def test_decoding(measure, label, config):
    encoded = encode(gaussian(1 << 15), config)
    found = measure(DECODING, label, encoded.size, "weight", decode, encoded, baseline=config is PAPER_4BIT)
    assert found.shape == encoded.shape
