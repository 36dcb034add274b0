"""Clustering of keys and values: cells, held-out tokens, residuals, and the units of the claims."""

import numpy as np
import pandas as pd
import pytest

from icml26.errors import InputError
from icml26.gsrq.arms import fit_arm, paired
from icml26.gsrq.distortion import measure
from icml26.gsrq.followups import crowding, polished
from icml26.gsrq.tensors import TensorConfig, claim_units, shrinkage_fall, study

CONFIG = TensorConfig(dimensions=(2, 4, 8), compared=(2, 8), claimed=(8,), codewords=6, positions=2, seeds=2, train=90)


@pytest.fixture(scope="module")
def states():
    rng = np.random.default_rng(0)
    found = {}
    for layer in (3, 5):
        found[layer, "key"] = (rng.standard_normal((150, 8)) + 5).astype(np.float32)
        found[layer, "value"] = (rng.standard_normal((150, 8)) * rng.lognormal(size=(150, 1))).astype(np.float32)
    return found


@pytest.fixture(scope="module")
def frame(states):
    return study(states, CONFIG)


def cell(frame, **fields):
    chosen = frame
    for name, value in fields.items():
        chosen = chosen[chosen[name] == value]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_compared_sizes_have_every_arm_and_seed_and_others_two_arms_once(frame):
    counts = frame[frame["kind"] != "key, centred"].groupby(["dimension", "arm"]).size().unstack(fill_value=0)
    per_cell = 2 * 2 * 2  # layers, kinds, sources
    further = per_cell * 2  # positions 2 and 3 of D = 2 are parts of the one of D = 8
    assert counts.loc[2].tolist() == [per_cell * 2 * 2, per_cell * 2 * 2 + further, per_cell * 2 * 2]
    assert counts.loc[4].tolist() == [per_cell * 2, per_cell * 2, 0]  # GSKM, k-means++, the control
    assert counts.loc[8].tolist() == [per_cell * 2] * 3  # one position
    centred = frame[frame["kind"] == "key, centred"]
    assert set(centred["arm"]) == {"k-means++"}
    assert len(centred) == 2 * (4 + 2 + 1)


def test_a_row_is_the_sub_vectors_clustering_measured_on_held_out_tokens(states, frame):
    part = states[5, "value"][:, 2:4]
    book = fit_arm(part[:90].copy(), 6, "GSKM", seed=1)
    distances = ((part[90:, None] - book.codewords[None]) ** 2).sum(-1)
    expected = measure(part[90:], book.codewords[distances.argmin(1)])
    row = cell(frame, layer=5, kind="value", dimension=2, position=1, seed=1, source="original", arm="GSKM")
    assert row["test_cosine"] == pytest.approx(expected.cosine, rel=1e-6)
    assert row["test_mse"] == pytest.approx(expected.mse, rel=1e-6)


def test_residuals_are_what_k_means_leaves_for_every_arm(states, frame):
    part = states[3, "key"]
    book = fit_arm(part[:90].copy(), 6, "k-means++", seed=0)
    distances = ((part[:, None] - book.codewords[None]) ** 2).sum(-1)
    left = part - book.codewords[distances.argmin(1)]
    for arm in ("k-means++", "GSKM"):
        again = fit_arm(left[:90].copy(), 6, arm, seed=0)
        row = cell(frame, layer=3, kind="key", dimension=8, seed=0, source="residual", arm=arm)
        decoded = again.codewords[again.labels]
        assert row["train_nmse"] == pytest.approx(measure(left[:90], decoded).nmse, rel=1e-4)


def test_shrinkage_is_one_less_the_error_and_an_offset_hides_it(frame):
    settled = frame[frame["converged"]]
    np.testing.assert_allclose(settled["shrinkage"] + settled["train_nmse"], 1, atol=1e-6)
    plain = frame.query("kind == 'key' and source == 'original' and arm == 'k-means++'")["shrinkage"].min()
    centred = frame.query("kind == 'key, centred'")["shrinkage"].max()
    assert plain > 0.95 > centred


def test_claims_are_one_value_per_layer_in_which_sizes_kinds_and_sources_count_equally(states):
    config = TensorConfig(**{**CONFIG.__dict__, "claimed": (2, 8)})
    frame = study(states, config)
    units = claim_units(frame, config)
    assert {claim: len(values) for claim, values in units.items()} == dict.fromkeys(("C1", "C2", "C2b", "C3", "C9"), 2)

    def expected(column, first, second, how, dimensions=(2, 8), sources=("original", "residual")):
        found = []
        for layer in (3, 5):
            parts = []
            for kind in ("key", "value"):
                for dimension in dimensions:
                    for source in sources:
                        cells = []
                        for position in range(2 if dimension == 2 else 1):
                            for seed in range(2):
                                place = {"layer": layer, "kind": kind, "dimension": dimension, "source": source}
                                place |= {"position": position, "seed": seed}
                                a, b = (cell(frame, **place, arm=arm)[column] for arm in (first, second))
                                cells.append(how(a, b))
                        parts.append(np.mean(cells))
            found.append(np.mean(parts))
        return found

    def less(a, b):
        return a - b

    control = "k-means, spherical start"
    np.testing.assert_allclose(units["C2"], expected("test_cosine", "GSKM", "k-means++", less))
    np.testing.assert_allclose(units["C2b"], expected("test_mse", "GSKM", "k-means++", lambda a, b: a / b))
    np.testing.assert_allclose(units["C3"], expected("test_nmse", "GSKM", "k-means++", less, (8,), ("residual",)))
    np.testing.assert_allclose(units["C9"], expected("test_cosine", "GSKM", control, less))


def test_the_fall_of_shrinkage_compares_each_vector_with_the_parts_that_it_is_made_of():
    rng = np.random.default_rng(0)
    states = {(layer, "value"): rng.standard_normal((100, 16)).astype(np.float32) for layer in (1, 2)}
    config = TensorConfig(
        dimensions=(4, 8), compared=(8,), claimed=(8,), codewords=6, positions=2, seeds=2, train=90, iterations=20
    )
    frame = study(states, config)

    def rho(layer, dimension, position):
        rows = frame.query("layer == @layer and dimension == @dimension and position == @position")
        return rows[(rows["source"] == "original") & (rows["arm"] == "k-means++")]["shrinkage"].mean()

    fall = shrinkage_fall(frame)
    assert fall.index.tolist() == [1, 2]
    for layer in (1, 2):
        differences = [
            np.mean([rho(layer, 4, part) for part in parts]) - rho(layer, 8, position)
            for position, parts in enumerate(((0, 1), (2, 3)))
        ]
        assert fall[layer] == pytest.approx(np.mean(differences))
    with pytest.raises(InputError, match="two sizes"):
        shrinkage_fall(pd.DataFrame(frame[frame["dimension"] == 4]))


def test_the_mean_that_centres_keys_is_that_of_the_training_tokens(states, frame):
    part = states[3, "key"]
    moved = part - part[:90].mean(axis=0)
    book = fit_arm(moved[:90].copy(), 6, "k-means++", seed=0)
    decoded = book.codewords[((moved[90:, None] - book.codewords[None]) ** 2).sum(-1).argmin(1)]
    row = cell(frame, layer=3, kind="key, centred", dimension=8, seed=0)
    assert row["test_nmse"] == pytest.approx(measure(moved[90:], decoded).nmse, rel=1e-4)


def test_the_polish_is_measured_on_held_out_tokens(states):
    found = polished(states, CONFIG)
    part = states[5, "value"]
    book = fit_arm(part[:90].copy(), 6, "GSKM")
    decoded = book.codewords[((part[90:, None] - book.codewords[None]) ** 2).sum(-1).argmin(1)]
    row = cell(found, layer=5, kind="value", arm="GSKM")
    assert row["test_nmse"] == pytest.approx(measure(part[90:], decoded).nmse, rel=1e-6)
    with pytest.raises(InputError, match="does not divide"):
        polished(states, TensorConfig(**{**CONFIG.__dict__, "claimed": (3,)}))


@pytest.mark.parametrize(
    ("change", "told"),
    [({"train": 150}, "hold out"), ({"dimensions": (3,)}, "does not divide"), ({"codewords": 91}, "too few|at least")],
)
def test_sizes_that_do_not_fit_are_named(change, told, states):
    with pytest.raises(InputError, match=told):
        study(states, TensorConfig(**{**CONFIG.__dict__, **change}))


def test_missing_states_are_named():
    with pytest.raises(InputError, match="states are missing"):
        study({}, CONFIG)


def test_k_means_from_a_gain_shape_codebook_lowers_the_training_error_where_norms_vary(states):
    found = polished(states, CONFIG)
    gain = paired(found, "train_mse", "GSKM, then k-means", "GSKM", unit=["layer", "kind"])
    assert (gain <= 1e-9).all()
    assert (gain.xs("value", level="kind") < 0).all()
    assert (found.loc[found["arm"] == "GSKM", "moved"] == 0).all()


def test_fewer_training_tokens_are_held_against_the_same_test_tokens(states, frame):
    found = crowding(states, CONFIG, [30, 90])
    columns = ["layer", "kind", "dimension", "position", "seed", "source", "arm", "test_nmse"]
    whole = found[found["tokens"] == 90][columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        whole, frame.query("dimension == 8 and kind != 'key, centred'")[columns].reset_index(drop=True)
    )
    change = paired(found, "test_nmse", "GSKM", "k-means++", unit=["tokens"])
    assert change.index.tolist() == [30, 90]
    cell_of = {"layer": 3, "kind": "value", "dimension": 8, "seed": 0, "source": "original", "arm": "GSKM"}
    few = cell(found[found["tokens"] == 30], **cell_of)
    book = fit_arm(states[3, "value"][:30].copy(), 6, "GSKM")
    fresh = states[3, "value"][90:]
    decoded = book.codewords[((fresh[:, None] - book.codewords[None]) ** 2).sum(-1).argmin(1)]
    assert few["test_nmse"] == pytest.approx(measure(fresh, decoded).nmse, rel=1e-6)
    with pytest.raises(InputError, match="tokens=91"):
        crowding(states, CONFIG, [91])
