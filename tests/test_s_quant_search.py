"""The exhaustive search finds what least squares over every seed finds, whatever the shape of the work."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_codec import all_bases, best, energies

from icml26.errors import InputError
from icml26.s_quant import bases as tables
from icml26.s_quant import codec, search
from icml26.s_quant.baselines import rtn, rtn_clipped
from icml26.s_quant.bases import Bases, as_blocks, as_weight, least_squares, orthonormal, orthonormalise
from icml26.s_quant.lfsr import Register
from icml26.s_quant.search import best_candidates, scores, search_path

FAMILIES = {
    "S-Quant": Bases(Register.s_quant(8), 8),
    "S-Quant row-major": Bases(Register.s_quant(8), 8, "row-major"),
    "S-Quant Fibonacci": Bases(Register(8, "fibonacci"), 8),
    "SeedLM": Bases(Register.seedlm(8), 8, "row-major", "successor"),
    "columns that repeat": Bases(Register(4), 6),
    "several tiles of seeds": Bases(Register.s_quant(10), 5),
}


def gaussian(n, size, seed=0):
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def small_work(monkeypatch):
    """Groups, tiles' batches and pilots small enough that a few blocks pass through all of them."""
    monkeypatch.setattr(search, "_GROUP", 12)
    monkeypatch.setattr(search, "_WIDTH", 5)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_path_is_that_of_the_pseudo_inverse_over_every_seed(name, small_work):
    bases = FAMILIES[name]
    blocks = gaussian(30, bases.block_size)
    blocks[:4] *= torch.tensor([1e-30, 1e30, 1e-200, 1.0], dtype=torch.float64)[:, None]
    blocks[3, 1:] = 0
    found = search_path(blocks, bases, 1, bases.block_size)
    for k in range(1, bases.block_size + 1):
        scaled = blocks / blocks.abs().amax(1, keepdim=True)
        seeds, energy = best(energies(scaled.numpy(), all_bases(bases, k)))
        assert np.array_equal(found.seeds[:, k - 1], seeds), k
        np.testing.assert_allclose(found.energy[:, k - 1], energy, atol=1e-11)


@pytest.mark.slow
def test_at_sixteen_bits_the_path_is_that_of_the_pseudo_inverse():
    bases = Bases(Register.s_quant(16), 16)
    blocks = gaussian(6, 16)
    found = search_path(blocks, bases, 1, 5)
    for k in (1, 5):
        matrices = bases.matrices(np.arange(1, 65536), k).numpy()
        seeds, energy = best(energies(blocks.numpy(), matrices))
        assert np.array_equal(found.seeds[:, k - 1], seeds)
        np.testing.assert_allclose(found.energy[:, k - 1], energy, atol=1e-11)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("threshold", [0.3, 0.8, 0.97])
def test_stopping_at_a_threshold_reads_off_the_whole_path(name, threshold, small_work):
    bases = FAMILIES[name]
    blocks = gaussian(60, bases.block_size, seed=1)
    blocks[7] = 0
    last = bases.block_size - 1
    whole = search_path(blocks, bases, 2, last)
    stopped = search_path(blocks, bases, 2, last, threshold=threshold)
    reached = whole.energy >= threshold
    column = np.where(reached.any(1), reached.argmax(1), last - 2)
    rows = np.arange(60)
    assert np.array_equal(stopped.seeds[rows, column], whole.seeds[rows, column])
    np.testing.assert_allclose(stopped.energy[rows, column], whole.energy[rows, column], atol=1e-14)
    assert (stopped.seeds > 0).sum() == 60
    assert np.array_equal(np.isfinite(stopped.energy), stopped.seeds > 0)


def test_a_threshold_at_the_very_energy_of_a_block_stops_there_and_just_above_does_not():
    bases = FAMILIES["S-Quant"]
    blocks = gaussian(20, 8, seed=2)
    whole = search_path(blocks, bases, 1, 8)
    for i in range(20):
        exact = whole.energy[i, 2]
        for threshold, k in ((exact, 3), (exact + 0.9e-10, 3), (exact + 1.1e-10, 4)):
            stopped = search_path(blocks[i : i + 1], bases, 1, 8, threshold=threshold)
            assert np.flatnonzero(stopped.seeds[0]) == k - 1


@pytest.mark.parametrize("workspace", [1, 10_000, 100_000, 1 << 30])
def test_the_workspace_changes_nothing(workspace):
    bases = Bases(Register.s_quant(11), 8)
    blocks = gaussian(37, 8, seed=3)
    expected = search_path(blocks, bases, 1, 4)
    found = search_path(blocks, bases, 1, 4, workspace=workspace)
    assert np.array_equal(found.seeds, expected.seeds)
    assert np.array_equal(
        best_candidates(blocks, bases, 2, 9, workspace=workspace), best_candidates(blocks, bases, 2, 9)
    )


def test_products_are_full_float32_even_in_a_process_that_allows_coarser_ones(monkeypatch):
    seen, product = [], torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda *a, **named: (seen.append(torch.get_float32_matmul_precision()), product(*a, **named))[1]
    )
    torch.set_float32_matmul_precision("medium")
    try:
        search_path(gaussian(4, 8), FAMILIES["S-Quant"], 3, 6)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert set(seen) == {"highest"}


@given(st.integers(0, 2**32 - 1), st.floats(1e-100, 1e100))
def test_sign_and_scale_of_a_block_change_neither_seed_nor_energy(seed, factor):
    bases = FAMILIES["S-Quant"]
    blocks = gaussian(4, 8, seed=seed)
    found, other = (search_path(x, bases, 1, 7) for x in (blocks, -factor * blocks))
    np.testing.assert_allclose(found.energy, other.energy, atol=1e-12)
    assert np.array_equal(found.seeds, other.seeds)


@given(st.integers(0, 2**32 - 1))
def test_nested_columns_never_lose_energy_and_all_of_them_keep_it_whole(seed):
    found = search_path(gaussian(4, 8, seed=seed), FAMILIES["S-Quant"], 1, 8)
    assert (np.diff(found.energy) >= -1e-12).all()
    np.testing.assert_allclose(found.energy[:, -1], 1)


def test_a_zero_block_is_reconstructed_by_seed_one():
    found = search_path(torch.zeros(3, 8, dtype=torch.float64), FAMILIES["S-Quant"], 2, 5)
    assert (found.seeds == 1).all()
    assert (found.energy == 1).all()


def test_a_block_that_a_basis_contains_finds_the_lowest_such_seed():
    bases = FAMILIES["S-Quant"]
    matrix = bases.matrices([137], 2)[0]
    found = search_path((matrix @ torch.tensor([[3.0, -1.5]], dtype=torch.float64).T).T, bases, 2, 2)
    assert found.energy[0, 0] == pytest.approx(1)
    assert found.seeds[0, 0] == 137


def test_the_candidates_are_the_best_in_float64_and_ascend():
    bases = FAMILIES["S-Quant"]
    blocks = gaussian(10, 8, seed=5)
    exact = energies(blocks.numpy(), all_bases(bases, 3))
    for count in (1, 20, 200, 255):
        found = best_candidates(blocks, bases, 3, count).numpy()
        assert (np.diff(found) > 0).all()
        for block, seeds in enumerate(found):
            kept = exact[block, seeds - 1]
            assert kept.min() >= np.sort(exact[block])[-count] - 1e-5


def test_scores_are_the_energies_to_the_stated_margin():
    bases = FAMILIES["SeedLM"]
    blocks = gaussian(10, 8, seed=6)
    exact = energies(blocks.numpy(), all_bases(bases, 3))
    ((part, score, maxima),) = scores(blocks, bases, 3)
    assert (part.start, part.stop) == (0, 10)
    assert np.abs(score.T.numpy()[:, :255] - exact).max() < search.MARGIN / 2
    np.testing.assert_array_equal(maxima[0], score.amax(0))


@pytest.mark.parametrize(
    ("bases", "expected"),
    [
        (Bases(Register.s_quant(8), 16), [0.548, 0.463, 0.390, 0.326, 0.271, 0.212, 0.167, 0.122]),
        (Bases(Register.s_quant(16), 16), [0.329, 0.234, 0.177, 0.134, 0.097, 0.068]),
        (Bases(Register.s_quant(16), 8), [0.223, 0.0347, 0.0106]),
    ],
)
def test_the_mean_residual_of_gaussian_blocks_is_as_measured_before(bases, expected):
    blocks = gaussian(500, bases.block_size, seed=7)
    found = search_path(blocks, bases, 1, len(expected))
    np.testing.assert_allclose(1 - found.energy.mean(0), expected, rtol=0.06)  # a mean of a few hundred blocks


def test_row_major_bases_leave_less_than_columns_and_are_not_nested():
    blocks = gaussian(300, 8, seed=8)
    columns, rows = (search_path(blocks, Bases(Register.s_quant(12), 8, x), 2, 3) for x in ("columns", "row-major"))
    assert ((1 - rows.energy).mean(0) < (1 - columns.energy).mean(0)).all()


def test_orthonormal_rows_span_the_columns_in_order_whatever_the_rank():
    matrices = gaussian(50 * 6, 5).reshape(50, 6, 5)
    matrices[::2, :, 2] = matrices[::2, :, 0] * 3 - matrices[::2, :, 1]
    q = orthonormalise(matrices)
    assert (q[2, ::2] == 0).all()
    for k in range(1, 6):
        projector = torch.einsum("knb,knc->nbc", q[:k], q[:k])
        np.testing.assert_allclose(projector, matrices[:, :, :k] @ torch.linalg.pinv(matrices[:, :, :k]), atol=1e-10)


def test_least_squares_is_the_pseudo_inverse_whatever_the_rank():
    matrices = gaussian(40 * 6, 3).reshape(40, 6, 3)
    matrices[::2, :, 2] = matrices[::2, :, 0]
    blocks = gaussian(40, 6)
    np.testing.assert_allclose(
        least_squares(matrices, blocks), (torch.linalg.pinv(matrices) @ blocks[:, :, None])[:, :, 0], atol=1e-10
    )


def test_tables_are_kept_within_their_bound(monkeypatch):
    tables._cache.clear()
    kept = [Bases(Register(8), size) for size in (4, 5, 6)]
    one = orthonormal(kept[0], 4)
    assert orthonormal(kept[0], 4) is one
    monkeypatch.setattr(tables, "CACHE_BYTES", 2 * one.nbytes)
    orthonormal(kept[1], 3)
    orthonormal(kept[2], 3)
    assert sum(table.nbytes for table in tables._cache.values()) <= 2 * one.nbytes
    assert orthonormal(kept[0], 4) is not one
    monkeypatch.setattr(tables, "TABLE_BYTES", 1000)
    with pytest.raises(InputError, match="fewer seed bits"):
        orthonormal(Bases(Register(9), 4), 2)
    tables._cache.clear()


@pytest.mark.parametrize("k", [(0, 2), (3, 2), (1, 9)])
def test_an_impossible_range_of_k_is_refused(k):
    with pytest.raises(InputError, match="range"):
        search_path(gaussian(1, 8), FAMILIES["S-Quant"], *k)


def test_blocks_of_the_wrong_length_and_too_many_candidates_are_refused():
    with pytest.raises(InputError, match="do not fit"):
        search_path(gaussian(1, 9), FAMILIES["S-Quant"], 1, 2)
    with pytest.raises(InputError, match="use 1 to 255"):
        best_candidates(gaussian(1, 8), FAMILIES["S-Quant"], 1, 256)


@pytest.mark.parametrize("weight", [np.arange(4), torch.arange(4), np.array([], float), np.array([1, np.nan]), ["a"]])
def test_weights_that_are_no_finite_numbers_are_refused(weight):
    with pytest.raises(InputError):
        as_blocks(weight, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_blocks_are_row_major_whatever_the_type_and_the_strides(dtype):
    weight = torch.arange(15.0).reshape(5, 3).to(dtype)
    expected = [[0, 3, 6, 9], [12, 1, 4, 7], [10, 13, 2, 5], [8, 11, 14, 0]]
    assert as_blocks(weight.T, 4).tolist() == expected
    assert as_blocks(weight.T.float().numpy(), 4).tolist() == expected


@pytest.mark.parametrize(
    "weight",
    [
        [0.5, 1.0],
        0.5,
        None,
        "0.5",
        torch.ones(4).to(torch.float8_e4m3fn),
        torch.eye(2).to_sparse(),
        torch.empty(4, device="meta"),
        torch.ones(4, dtype=torch.complex64),
        np.array(["a"]),
        np.array([None]),
    ],
)
def test_what_is_no_dense_floating_point_tensor_is_refused_in_one_line(weight):
    for encode in (as_weight, lambda w: as_blocks(w, 2), codec.encode, codec.encode_path, rtn, rtn_clipped):
        with pytest.raises(InputError, match=r"^weight [^\n]*$"):
            encode(weight)


def test_weights_of_any_strides_and_byte_order_and_parameters_are_welcome():
    values = np.arange(12.0).reshape(3, 4)
    for same in (values[::-1].copy()[::-1], np.asfortranarray(values), values.astype(">f4"), values.astype(np.float16)):
        assert torch.equal(as_weight(same), torch.from_numpy(values))
    found = as_weight(torch.nn.Parameter(torch.ones(4, 2)).T)
    assert found.is_contiguous()
    assert not found.requires_grad
