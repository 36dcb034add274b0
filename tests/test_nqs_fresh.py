"""The chapter's own small models and the split of their grid: an independent transformer, one pass, exact cases."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional

from icml26 import stats, tasks
from icml26.errors import InputError
from icml26.nqs import fresh, fresh_corner, fresh_lm
from icml26.nqs.comparison import log_huber

TEXT = tasks.english_text("train")[:20000]
HELD = tasks.english_text("held-out")[:5000]
TINY = fresh.GridConfig(
    widths=(8, 16), batches=(2, 4), steps=(4, 8), max_sequences=16, seeds=(0, 1), sequence_length=12, held_out=16
)


@pytest.fixture(scope="module")
def tiny():
    return fresh.run_grid(TINY, TEXT, HELD)


# --- the model -------------------------------------------------------------------------------------------------------


def one_position(weights, tokens):
    """Logits after the last token of one sequence of one seed, in plain sums over heads and positions."""
    embedding = weights["embedding"]
    width = embedding.shape[1]

    def norm(x):
        return (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()

    states = [embedding[token] for token in tokens]
    heads = width // fresh_lm.HEAD_WIDTH
    for layer in range(fresh_lm.LAYERS):
        projected = [(norm(x) @ weights[f"attend{layer}"]).view(3, heads, -1) for x in states]
        for t, x in enumerate(states):
            reads = []
            for head in range(heads):
                scores = [
                    projected[t][0, head] @ projected[s][1, head] / math.sqrt(fresh_lm.HEAD_WIDTH)
                    - 2 ** (-3 * head / heads) * (t - s)
                    for s in range(t + 1)
                ]
                shares = torch.stack(scores).softmax(0)
                reads.append(sum(share * projected[s][2, head] for s, share in enumerate(shares)))
            states[t] = x + torch.cat(reads) @ weights[f"mix{layer}"]
        states = [x + (norm(x) @ weights[f"rise{layer}"]).relu() @ weights[f"fall{layer}"] for x in states]
    return norm(states[-1]) @ embedding.T


def test_logits_are_those_of_a_plain_transformer_that_sees_no_future():
    weights = fresh_lm.initial_weights(16, 10, [3, 4])
    tokens = torch.randint(10, (2, 2, 6), generator=torch.Generator().manual_seed(0))
    found = fresh_lm.logits(weights, tokens)
    for seed in range(2):
        own = {name: weight[seed] for name, weight in weights.items()}
        for position in (0, 3, 5):
            expected = one_position(own, tokens[seed, 1, : position + 1].tolist())
            torch.testing.assert_close(found[seed, 1, position], expected, rtol=1e-4, atol=1e-5)


def test_parameters_are_counted_as_they_are_drawn():
    for width in (8, 24):
        drawn = fresh_lm.initial_weights(width, 50, [0])
        assert fresh_lm.parameters(width, 50) == sum(weight.numel() for weight in drawn.values())


def test_held_out_loss_is_the_mean_surprise_whatever_the_parts(monkeypatch):
    weights = fresh_lm.initial_weights(8, 10, [0, 1])
    text = torch.randint(10, (7, 6), generator=torch.Generator().manual_seed(1))
    found = fresh_lm.held_out_losses(weights, text)
    for seed in range(2):
        own = {name: weight[seed : seed + 1] for name, weight in weights.items()}
        likely = fresh_lm.logits(own, text[None, :, :-1]).softmax(-1)[0]
        surprise = -likely.gather(-1, text[:, 1:, None]).log().mean()
        assert found[seed] == pytest.approx(surprise.item(), rel=1e-5)
    monkeypatch.setattr(fresh_lm, "_EVALUATED", 30)
    np.testing.assert_allclose(fresh_lm.held_out_losses(weights, text), found, rtol=1e-6)


# --- training --------------------------------------------------------------------------------------------------------


def test_training_is_adam_at_a_constant_rate_after_warm_up_on_consecutive_segments():
    stream = torch.randint(10, (12, 7), generator=torch.Generator().manual_seed(2))
    weights = fresh_lm.initial_weights(8, 10, [5])
    run = fresh_lm.trajectory(weights, [stream], stream, batch=3, checkpoints=[1, 4], learning_rate=0.01, warmup=2)
    assert [steps for steps, _ in run] == [1, 4]
    plain = fresh_lm.initial_weights(8, 10, [5])
    first, second = ({name: torch.zeros_like(w) for name, w in plain.items()} for _ in range(2))
    for step, rate in enumerate((0.005, 0.01, 0.01, 0.01)):
        seen = stream[3 * step : 3 * step + 3]
        predicted = fresh_lm.logits(plain, seen[None, :, :-1])
        loss = functional.cross_entropy(predicted.reshape(-1, 10), seen[:, 1:].reshape(-1))
        gradients = torch.autograd.grad(loss, list(plain.values()))
        with torch.no_grad():
            for (name, weight), gradient in zip(plain.items(), gradients, strict=True):
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.999 * second[name] + 0.001 * gradient**2
                scale = (second[name] / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
                weight -= rate * first[name] / (1 - 0.9 ** (step + 1)) / scale
    for name, weight in plain.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=2e-5)


def test_a_seed_trains_alike_whatever_is_stacked_beside_it(tiny):
    alone = fresh.run_grid(replace(TINY, seeds=(1,)), TEXT, HELD)
    together = tiny[tiny["seed"] == 1].reset_index(drop=True)
    np.testing.assert_allclose(alone["loss"], together["loss"], rtol=1e-4)
    assert not np.allclose(alone["loss"], tiny.loc[tiny["seed"] == 0, "loss"], rtol=1e-3)


def test_a_grid_repeats_bit_for_bit_and_a_checkpoint_is_the_end_of_a_shorter_run(tiny):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        again = fresh.run_grid(TINY, TEXT, HELD)
        short = fresh.run_grid(replace(TINY, steps=(4,)), TEXT, HELD)
    finally:
        torch.use_deterministic_algorithms(before)
    pd.testing.assert_frame_equal(again, tiny, check_exact=True)
    pd.testing.assert_frame_equal(short, tiny[tiny["K"] == 4].reset_index(drop=True), check_exact=True)


def test_no_part_of_the_text_is_seen_twice_in_a_run(monkeypatch):
    seen = []
    train = fresh_lm.trajectory

    def listen(weights, streams, held_out, **options):
        seen.append((streams, options))
        return train(weights, streams, held_out, **options)

    monkeypatch.setattr(fresh_lm, "trajectory", listen)
    text = "".join(chr(32 + i // 60) + chr(32 + i % 60) for i in range(3600))  # no two segments alike
    fresh.run_grid(replace(TINY, widths=(8,)), text, HELD)
    for streams, options in seen:
        used = options["batch"] * options["checkpoints"][-1]
        for stream in streams:
            assert len({tuple(segment.tolist()) for segment in stream[:used]}) == used
    orders = [[stream.tolist() for stream in streams] for streams, _ in seen]
    assert orders[0] == orders[1]  # the batch sizes share each seed's order
    assert orders[0][0] != orders[0][1]  # the seeds do not


# --- the grid --------------------------------------------------------------------------------------------------------


def test_the_default_grid_spans_what_the_laws_are_about():
    config = fresh.GridConfig()
    runs = config.runs()
    assert all(batch * steps[-1] <= config.max_sequences for _, batch, steps in runs)
    assert len({width for width, _, _ in runs}) >= 4
    assert len({batch for _, batch, _ in runs}) >= 4
    work = [width**2 * batch * k for width, batch, steps in runs for k in steps]
    assert max(work) >= 64 * min(work)
    symbols = len(tasks.byte_tokens(tasks.english_text("train")))
    assert symbols // (config.sequence_length + 1) >= config.max_sequences


def test_columns_say_what_each_run_saw(tiny):
    assert tiny.columns.tolist() == ["N", "B", "K", "seed", "loss", "tokens", "compute"]
    assert len(tiny) == 2 * 2 * (2 + 1)
    assert (tiny["tokens"] == tiny["B"] * tiny["K"] * 12).all()
    assert (tiny["compute"] == 6.0 * tiny["N"] * tiny["tokens"]).all()
    assert sorted(set(tiny["N"])) == [64 * 8 + 24 * 64, 64 * 16 + 24 * 256]


def test_training_and_size_both_help_even_a_little():
    config = replace(TINY, batches=(8,), steps=(8, 64), max_sequences=512, warmup=4)
    found = fresh.run_grid(config, TEXT, HELD).groupby(["N", "K"])["loss"].mean().unstack()
    assert (found[64] < found[8] - 0.2).all()
    assert found[64].is_monotonic_decreasing


def test_rare_bytes_share_one_symbol():
    symbols = fresh._alphabet(tasks.byte_tokens("aaabbc"), 3)
    assert [symbols[ord(c)].item() for c in "abcz"] == [0, 1, 2, 2]


def test_progress_rises_to_one():
    told = []
    fresh.run_grid(replace(TINY, widths=(8,)), TEXT, HELD, progress=lambda name, share: told.append((name, share)))
    assert [name for name, _ in told] == ["N=2,048 B=2 K=4", "N=2,048 B=2 K=8", "N=2,048 B=4 K=4"]
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widths": (8, 8)}, "widths=.* rising"),
        ({"widths": 8}, "widths=8 must be a tuple of integers"),
        ({"widths": (8, "16")}, "widths='16' must be an integer"),
        ({"widths": (7,)}, "widths=7 must be a multiple of 8"),
        ({"widths": (8, 12)}, "widths=12 must be a multiple of 8"),
        ({"seeds": 3}, "seeds=3 must be a tuple of integers"),
        ({"seeds": ()}, "seeds=.* one or more"),
        ({"learning_rate": "x"}, "learning_rate='x' must be a positive number"),
        ({"learning_rate": True}, "learning_rate=True"),
        ({"batches": (0, 2)}, "batches=0 .* at least 1"),
        ({"steps": ()}, "steps=.* one or more"),
        ({"steps": (True,)}, "steps=True"),
        ({"seeds": (1, 1)}, "seeds=.* different"),
        ({"seeds": (-1,)}, "seeds=-1"),
        ({"vocabulary": 1}, "vocabulary=1"),
        ({"learning_rate": math.nan}, "learning_rate=nan"),
        ({"max_sequences": 7}, "max_sequences=7 .* raise it"),
    ],
)
def test_a_wrong_grid_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(TINY, **change)


def test_what_cannot_be_trained_is_named():
    with pytest.raises(InputError, match="one pass needs 16: use a longer text"):
        fresh.run_grid(TINY, TEXT[:150], HELD)
    with pytest.raises(InputError, match="width=12 must be a multiple of 8"):
        fresh_lm.initial_weights(12, 64, [0])
    for rate in (1e6, 1e38):
        with pytest.raises(InputError, match=r"diverged to a loss of .* after 4 steps: lower learning_rate"):
            fresh.run_grid(replace(TINY, learning_rate=rate), TEXT, HELD)
    for texts, told in (((None, HELD), "train_text=None"), ((TEXT, "to be"), "held_out_text='to be'")):
        with pytest.raises(InputError, match=f"{told} must be text of 13 bytes or more"):
            fresh.run_grid(TINY, *texts)
    with pytest.raises(InputError, match="config=None must be a GridConfig"):
        fresh.run_grid(None, TEXT, HELD)


# --- corners and scores ----------------------------------------------------------------------------------------------


def synthetic(seeds=3):
    """Losses of a plain power law, with noise that differs by seed."""
    rows = [
        (n, b, k, s, 1 + n**-0.2 + (b * k) ** -0.3 + 0.01 * np.sin(7 * s + n + b + k))
        for n in (100, 1000, 10000) for b in (2, 8) for k in (4, 16, 64) for s in range(seeds)
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["N", "B", "K", "seed", "loss"])
    return frame.assign(tokens=frame["B"] * frame["K"], compute=6.0 * frame["N"] * frame["B"] * frame["K"])


def test_corners_are_apart_by_the_gap():
    frame = synthetic()
    cheap, expensive = fresh_corner.corner(frame, share=1 / 64, gap=8)
    assert cheap["compute"].max() <= frame["compute"].max() / 64
    assert expensive["compute"].min() > 8 * cheap["compute"].max()
    between = frame[(frame["compute"] > cheap["compute"].max()) & (frame["compute"] <= 8 * cheap["compute"].max())]
    assert len(cheap) + len(expensive) + len(between) == len(frame)
    for options in ({"share": 0.9, "gap": 4}, {"share": 1.5}, {"gap": 0.5}, {"share": 1e-9}):
        with pytest.raises(InputError, match="share="):
            fresh_corner.corner(frame, **options)


def test_seed_means_and_best_batches():
    frame = synthetic()
    mean = fresh.seed_mean(frame)
    row = mean.iloc[5]
    own = frame[(frame[["N", "B", "K"]] == row[["N", "B", "K"]]).all(axis=1)]["loss"]
    assert row["loss"] == pytest.approx(own.mean())
    assert row["spread"] == pytest.approx(np.std(own, ddof=1))
    best = fresh_corner.best_batches(frame)
    assert len(best) == len(frame.groupby(["N", "tokens", "seed"]))
    for row in best.itertuples():
        rivals = frame[(frame["N"] == row.N) & (frame["tokens"] == row.tokens) & (frame["seed"] == row.seed)]
        assert row.loss == rivals["loss"].min()


def test_each_seed_is_fitted_on_its_own_cheap_rows_and_scored_on_its_own_expensive_ones():
    corners = fresh_corner.corner(synthetic())
    seen = []

    def constant(rows):
        seen.append(rows)
        return lambda X: np.full(len(X), rows["loss"].min())

    scored = fresh_corner.held_out(corners, {"low": constant, "two": lambda rows: lambda X: np.full(len(X), 2.0)})
    assert [set(rows["seed"]) for rows in seen] == [{0}, {1}, {2}]
    assert all(rows["compute"].max() <= corners.cheap["compute"].max() for rows in seen)
    assert len(scored) == 2 * len(corners.expensive)
    for row in scored.sample(8, random_state=0).itertuples():
        expected = 2.0 if row.model == "two" else seen[row.seed]["loss"].min()
        assert row.prediction == expected
        assert row.huber == pytest.approx(log_huber(row.loss, expected).item())


def test_the_difference_averages_runs_and_resamples_seeds_or_the_other_way_round():
    scored = pd.DataFrame(
        [(1, 1, k, s, model, k + 10 * s * (model == "a"))
         for k in (1, 2, 3, 4) for s in (0, 1, 2) for model in "ab"],
        columns=["N", "B", "K", "seed", "model", "huber"],
    )  # fmt: skip
    found = fresh_corner.held_out_difference(scored, "a", "b", seed=0)
    assert found == stats.Interval(10.0, 0.0, 20.0)
    assert fresh_corner.held_out_difference(scored, "a", "b", seed=0, over="runs") == stats.Interval(10.0, 10.0, 10.0)
    for options, message in (({"over": "rows"}, "over='rows'"), ({"second": "c"}, "no model 'c', only a, b")):
        with pytest.raises(InputError, match=message):
            fresh_corner.held_out_difference(scored, "a", **({"second": "b", "seed": 0} | options))


def test_corners_of_different_seeds_or_no_laws_are_refused():
    cheap, expensive = fresh_corner.corner(synthetic())
    with pytest.raises(InputError, match="different seeds"):
        fresh_corner.held_out(fresh_corner.Corners(cheap, expensive[expensive["seed"] < 2]), {})
    with pytest.raises(InputError, match="fits is empty"):
        fresh_corner.held_out(fresh_corner.Corners(cheap, expensive), {})
