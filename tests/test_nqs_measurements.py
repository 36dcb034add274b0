"""The released measurements are read with their traps, and the sets of rows are those that the claims name."""

import io

import numpy as np
import pandas as pd
import pytest

from icml26 import data
from icml26.errors import InputError
from icml26.nqs import measurements, rows

HEAD = "N,B,K,C,loss,split,type,filtered"
LINES = [
    "1000000,64,100,59000000,4.5,train,isoflop,False",
    "2000000,32,100,59000000,4.4,train,isoflop,False",
    "1000000,96,50,9200000,4.6,train,isotoken,False",
    "1000000,24,200,9200000,4.7,train,isotoken,True",
    "1000000,64,400,236000000,4.1,test,isoflop,",
    "2000000,64,200,944000000,4.0,test,isoflop,",
    "4000000,64,800,3780000000,3.5,test,isoflop,",
    "1000000,192,1000,940000000,3.9,test,isotoken,",
    "1000000,384,500,950000000,4.0,test,isotoken,",
]
released = pytest.mark.skipif(not data.available("nqs"), reason="the NQS measurements are not on this machine")


def read(*lines, head=HEAD, end="\r\n"):
    return measurements.read(io.BytesIO((end.join([head, *lines]) + end).encode()))


def test_line_ends_do_not_matter():
    found = read(*LINES)
    pd.testing.assert_frame_equal(found, read(*LINES, end="\n"))
    assert list(found.columns) == ["N", "B", "K", "C", "loss", "split", "plane", "filtered"]


def test_an_empty_filtered_is_false_and_the_column_is_boolean():
    found = read(*LINES)
    assert found["filtered"].dtype == bool
    assert found.index[found["filtered"]].tolist() == [3]
    assert not read(*LINES[4:])["filtered"].any(), "a column without any word"


def test_a_file_on_disk_is_read_alike_and_both_labels_of_one_released_budget_become_one(tmp_path, monkeypatch):
    file = tmp_path / "runs.csv"
    file.write_text("\n".join([HEAD, *LINES]))
    own = measurements.read(file)
    pd.testing.assert_frame_equal(own, read(*LINES))
    monkeypatch.setattr(data, "path", lambda name: file)
    for frame, budgets in ((own, {9.2, 940.0, 950.0}), (measurements.load(), {9.2, 940.0})):
        assert set(frame[frame["plane"] == "isotoken"]["C"]) == budgets


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1000000,64,100,59000000,nan,train,isoflop,False", "row 2: loss is nan; it must be a positive number"),
        ("1000000,64,100,59000000,-4,train,isoflop,False", "row 2: loss is -4"),
        ("0,64,100,59000000,4,train,isoflop,False", "row 2: N is 0"),
        ("1000000,64.5,100,59000000,4,train,isoflop,False", "row 2: B is 64.5; it must be a whole number"),
        ("1e19,64,100,59000000,4,train,isoflop,False", r"N is 1e\+19; it must be a whole number of at most 2\^53"),
        ("1000000,1e300,100,59000000,4,train,isoflop,False", "row 2: B is 1e"),
        ("1000000,64,9007199254740994,59000000,4,train,isoflop,False", "row 2: K is 9007199254740994"),
        ("1000000,64,many,59000000,4,train,isoflop,False", "row 2: K is many"),
        ("1000000,64,100,59000000,4,valid,isoflop,False", "row 2: split is valid; it must be train or test"),
        ("1000000,64,100,59000000,4,train,other,False", "row 2: type is other; it must be isoflop or isotoken"),
        (
            "1000000,64,100,59000000,4,train,isoflop,maybe",
            "row 2: filtered is maybe; it must be True, False or empty",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_row_and_column(line, message):
    with pytest.raises(InputError, match=message):
        read(LINES[0], line)


def test_a_file_that_is_no_such_table_is_refused():
    with pytest.raises(InputError, match="lacks the columns C, filtered"):
        read("1,2,3,4.5,train,isoflop", head="N,B,K,loss,split,type")
    with pytest.raises(InputError, match="the file is not a table"):
        measurements.read(io.BytesIO(b""))
    with pytest.raises(InputError, match="the file has no rows"):
        read()
    with pytest.raises(InputError, match="the file has the columns N twice"):
        read(LINES[0] + ",7", head=HEAD + ",N")


@pytest.mark.parametrize("name", ["missing.csv", ".", "a\0b", None])
def test_a_path_that_leads_to_no_file_is_refused_in_one_line(name, tmp_path):
    with pytest.raises(InputError, match="give a CSV with the columns N, B") as error:
        measurements.read(name and str(tmp_path / name))
    assert "\n" not in str(error.value)


def test_compute_is_six_times_parameters_times_tokens_and_broadcasts():
    N, B, K = np.array([[1e3], [1e4]]), np.array([8, 16, 32]), 50
    assert np.array_equal(measurements.compute(N, B, K, 10), 6 * N * measurements.tokens(B, K, 10))
    assert measurements.tokens(3, 5, 7) == 105
    assert measurements.compute(2048_000_000, 1_000_000, 1_000_000) == pytest.approx(6 * 2.048e9 * 1.28e14)


def test_the_design_has_the_columns_in_order_whatever_the_frames_order():
    frame = read(*LINES)
    assert np.array_equal(measurements.design(frame[["loss", "K", "B", "N"]]), frame[["N", "B", "K"]].to_numpy())
    with pytest.raises(InputError, match="lacks the columns B, K"):
        measurements.design(frame[["N"]])
    with pytest.raises(InputError, match="frame is a ndarray"):
        measurements.design(np.ones((2, 3)))


def test_sets_of_rows_are_disjoint_and_together_all():
    frame = read(*LINES)
    parts = [rows.train_rows(frame), rows.train_rows(frame, filtered=True), rows.holdout_rows(frame)]
    assert sorted(index for part in parts for index in part.index) == list(frame.index)
    for plane in measurements.PLANES:
        assert set(rows.train_rows(frame, plane)["plane"]) == {plane}
        assert set(rows.holdout_rows(frame, plane)["plane"]) == {plane}
    with pytest.raises(InputError, match="plane='isoflops' is unknown"):
        rows.train_rows(frame, "isoflops")


def test_splitting_anew_moves_cheap_test_rows_to_training_and_leaves_isotoken_test_rows_out():
    train, test = rows.split_at(read(*LINES), 944)
    assert train.index.tolist() == [0, 1, 2, 4, 5]
    assert test.index.tolist() == [6]
    for budget in (0.1, 3780):
        with pytest.raises(InputError, match="leaves no isoflop rows on one side"):
            rows.split_at(read(*LINES), budget)


def test_small_batches_are_those_filtered_and_the_isotoken_test_rows_up_to_a_batch():
    found = rows.small_batch(read(*LINES))
    assert {name: part.index.tolist() for name, part in found.items()} == {
        "both": [3, 7],
        "filtered": [3],
        "isotoken": [7],
    }


def test_the_gap_is_nominal_compute_over_that_of_training():
    frame = read(*LINES)
    assert rows.compute_gap(rows.holdout_rows(frame, "isoflop")).tolist() == pytest.approx([4, 16, 64.07], abs=0.01)
    assert rows.compute_gap(frame, 118).tolist() == (rows.compute_gap(frame) / 2).tolist()
    with pytest.raises(InputError, match="reference=0 must be"):
        rows.compute_gap(frame, 0)


@released
def test_the_released_rows_are_those_the_paper_counts():
    frame = measurements.load()
    counts = frame.groupby(["split", "plane", "filtered"]).size().to_dict()
    assert counts == {
        ("test", "isoflop", False): 30,
        ("test", "isotoken", False): 34,
        ("train", "isoflop", False): 29,
        ("train", "isotoken", False): 35,
        ("train", "isotoken", True): 9,
    }
    assert rows.train_rows(frame)["C"].max() == rows.LARGEST_TRAINING_BUDGET
    assert {name: len(part) for name, part in rows.small_batch(frame).items()} == {
        "both": 13,
        "filtered": 9,
        "isotoken": 4,
    }
    assert [len(part) for part in rows.split_at(frame)] == [77, 17]


@released
def test_nominal_compute_is_within_15_percent_of_the_product():
    frame = measurements.load()
    ratio = measurements.compute(frame["N"], frame["B"], frame["K"]) / 1e15 / frame["C"]
    assert 0.9 < ratio.min() < ratio.max() < 1.15
