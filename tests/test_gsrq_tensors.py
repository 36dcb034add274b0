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
    assert counts.loc[2].tolist() == [per_cell * 2 * 2] * 3
    assert counts.loc[4].tolist() == [per_cell * 2, per_cell * 2, 0]  # GSKM, k-means++, the control
    assert counts.loc[8].tolist() == [per_cell * 2] * 3  # one position
    centred = frame[frame["kind"] == "key, centred"]
    assert set(centred["arm"]) == {"k-means++"}
    assert len(centred) == 2 * (2 + 2 + 1)


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


def test_claims_are_one_value_per_tensor(frame):
    units = claim_units(frame, CONFIG)
    assert {claim: len(values) for claim, values in units.items()} == {"C1": 8, "C2": 4, "C2b": 4, "C3": 4, "C9": 4}

    def mean(column, arm, **fields):
        chosen = frame[(frame["arm"] == arm) & (frame["dimension"] == 8)]
        for name, value in fields.items():
            chosen = chosen[chosen[name] == value]
        return chosen[column]

    tensors = [(3, "key"), (3, "value"), (5, "key"), (5, "value")]
    for number, (layer, kind) in enumerate(tensors):
        place = {"layer": layer, "kind": kind}
        assert units["C2"][number] == pytest.approx(
            mean("test_cosine", "GSKM", **place).mean() - mean("test_cosine", "k-means++", **place).mean()
        )
        ratio = mean("test_mse", "GSKM", **place).to_numpy() / mean("test_mse", "k-means++", **place).to_numpy()
        assert units["C2b"][number] == pytest.approx(ratio.mean())
        deep = place | {"source": "residual"}
        assert units["C3"][number] == pytest.approx(
            mean("test_nmse", "GSKM", **deep).mean() - mean("test_nmse", "k-means++", **deep).mean()
        )


def test_the_fall_of_shrinkage_compares_each_position_with_the_vector_it_is_a_part_of(frame):
    fall = shrinkage_fall(frame)
    assert fall.index.names == ["layer", "position", "seed"]
    rho = {
        (dimension, position): cell(
            frame,
            layer=3,
            kind="value",
            source="original",
            arm="k-means++",
            seed=1,
            dimension=dimension,
            position=position,
        )["shrinkage"]
        for dimension, position in ((2, 0), (2, 1), (8, 0))
    }
    assert fall[3, 0, 1] == pytest.approx(rho[2, 0] - rho[8, 0])
    assert fall[3, 1, 1] == pytest.approx(rho[2, 1] - rho[8, 0])
    with pytest.raises(InputError, match="two sizes"):
        shrinkage_fall(pd.DataFrame(frame[frame["dimension"] == 2]))


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
