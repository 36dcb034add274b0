"""Top-W's studies: exact accuracies, tuning and claims' statistics, kept sets, gaps to the optimum."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from icml26 import models, tasks
from icml26.arithmetic import task as arithmetic
from icml26.errors import InputError
from icml26.top_w import accuracy, comparison, forced, gaps, kept_sets
from icml26.top_w.decoder import TopWConfig, select
from icml26.top_w.geometry import Geometry
from icml26.top_w.samplers import controls, grid, top_w
from icml26.top_w.tasks import Task, chained_arithmetic, gsm8k, gsm8k_answer, solutions

TEMPERATURES = [0.5, 2.0]


@pytest.fixture(scope="module")
def tiny():
    """A small random model over bytes, and its tokenizer."""
    return models.load_lm("tiny-random-llama")


@pytest.fixture(scope="module")
def likely(tiny):
    """A task whose right solutions a random model finds often: the likeliest first tokens, each twice."""
    model, _ = tiny
    prompts = [torch.tensor([5, 9]), torch.tensor([7]), torch.tensor([3, 3])]
    right = []
    for prompt in prompts:
        best = model(input_ids=prompt[None]).logits[0, -1].topk(4).indices
        right.append(torch.tensor([[int(first), int(second)] for first, second in product(best[:3], best[2:])]))
    found = [{tuple(row.tolist()) for row in rows} for rows in right]

    def check(index, tokens):
        key = tuple(tokens.tolist())
        return key if key in found[index] else None

    return Task(prompts, end=258, max_new_tokens=2, check=check, solutions=right)


def one_by_one(model, task, sampler, temperature, index):
    """Probability of each right solution of a problem, token by token."""
    found = []
    for solution in task.solutions[index]:
        context, p = task.prompts[index], 1.0
        for token in solution:
            scores = model(input_ids=context[None]).logits[:, -1]
            for processor in sampler.processors(temperature):
                scores = processor(context[None], scores)
            p *= scores.double().softmax(-1)[0, token].item()
            context = torch.cat([context, token[None]])
        found.append(p)
    return np.array(found)


def test_exact_cells_are_the_products_of_processed_probabilities(tiny, likely):
    model, _ = tiny
    samplers = [*controls(259), grid()["top-k"][0], top_w(Geometry(model.get_input_embeddings()))]
    cells = accuracy.run_cells(model, likely, samplers, TEMPERATURES, samples=5)
    for sampler, temperature, index in product(samplers, TEMPERATURES, range(3)):
        p = one_by_one(model, likely, sampler, temperature, index)
        row = cells.query("sampler == @sampler.name and temperature == @temperature and problem == @index").iloc[0]
        assert row["accuracy"] == pytest.approx(p.sum(), rel=1e-4)
        assert row["distinct"] == pytest.approx((1 - (1 - p) ** 5).sum(), rel=1e-4)


def test_exact_cells_are_what_drawing_tends_to(tiny, likely):
    model, _ = tiny
    samplers = [grid()["top-k"][0], grid()["min-p"][2]]
    exact, drawn = (
        accuracy.run_cells(model, likely, samplers, [0.5], samples=600, seed=3, exact=exact, batch=700)
        for exact in (True, False)
    )
    deviation = np.sqrt(exact["accuracy"] * (1 - exact["accuracy"]) / 600)
    assert ((exact["accuracy"] - drawn["accuracy"]).abs() <= 4 * deviation + 1e-9).all()
    assert 0 < exact["accuracy"].mean() < 1
    # Steps drawn and beginnings of right solutions are not the same; top-k keeps ten after each of both.
    assert set(exact["kept"][exact["sampler"] == "top-k"]) == set(drawn["kept"][drawn["sampler"] == "top-k"]) == {10.0}


def test_sorting_a_large_vocabulary_changes_nothing(tiny, likely, monkeypatch):
    model, _ = tiny
    samplers = [settings[1] for settings in grid().values()] + [top_w(Geometry(model.get_input_embeddings()))]
    plain = accuracy.run_cells(model, likely, samplers, TEMPERATURES)
    monkeypatch.setattr(accuracy, "_LARGE", 1)
    monkeypatch.setattr(accuracy, "_WORKSPACE", 1)
    pd.testing.assert_frame_equal(plain, accuracy.run_cells(model, likely, samplers, TEMPERATURES), rtol=1e-5)


def test_greedy_choice_is_right_or_wrong_at_every_temperature_and_drawn_once(tiny, likely):
    model, _ = tiny
    for exact in (True, False):
        cells = accuracy.run_cells(model, likely, controls(259)[:1], TEMPERATURES, exact=exact)
        assert set(cells["accuracy"]) <= {0.0, 1.0}
        assert (cells["distinct"] == cells["accuracy"]).all()
        wide = cells.pivot(index="problem", columns="temperature", values="accuracy")
        assert (wide[0.5] == wide[2.0]).all()
        assert (cells["kept"] == 1).all()
        assert (cells["single"] == 1).all()


@pytest.mark.parametrize(("branches", "steps"), [(2, 3), (3, 1), (1, 4)])
def test_listed_solutions_are_all_valid_ones_each_once(branches, steps):
    task = arithmetic.Task(branches, steps)
    drawn = arithmetic.problems(task, 3, seed=1)
    for index, listed in enumerate(solutions(drawn)):
        verdicts = [arithmetic.check(drawn, index, text) for text in listed]
        assert all(verdict.valid for verdict in verdicts)
        assert len({verdict.order for verdict in verdicts}) == len(listed) == arithmetic.orders(task)


def test_chained_arithmetic_tells_solutions_by_their_order_and_refuses_a_wrong_step():
    task = chained_arithmetic(arithmetic.Task(2, 2), 2, seed=0)
    wrong = task.solutions[0][0].clone()
    wrong[5] = (wrong[5] + 1) % 10
    assert task.check(0, task.solutions[0][0]) != task.check(0, task.solutions[0][1])
    assert task.check(0, wrong) is None
    assert task.check(1, task.solutions[0][0]) is None


PROBLEMS = [tasks.Problem(f"I have {k} apples and eat one.", f"{k}-1={k - 1}", str(k - 1)) for k in range(2, 9)]


def test_gsm8k_asks_after_its_examples_and_never_about_them(tiny):
    _, tokenizer = tiny
    task = gsm8k(tokenizer, 2, first=1, shots=2, problems=PROBLEMS)
    text = tokenizer.decode(task.prompts[0])
    assert "Q: I have 2 apples and eat one.\nA: 2-1=1 The answer is 1.\n\n" in text
    assert text.endswith("Q: I have 5 apples and eat one.\nA:")
    assert "4 apples" not in text


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("3-1=2. The answer is 2.", "2", "2"),
        ("The answer is 1,234.\n", "1234", "1234"),
        ("So she has $40 left.", None, "40"),
        ("The answer is -3 then.", "-3", "-3"),
        ("None.", None, None),
    ],
)
def test_answers_are_read_as_lm_eval_reads_them(text, strict, flexible):
    assert (gsm8k_answer(text), gsm8k_answer(text, flexible=True)) == (strict, flexible)


def test_a_continuation_ends_where_the_next_question_begins(tiny):
    _, tokenizer = tiny
    task = gsm8k(tokenizer, 1, shots=0, problems=PROBLEMS)
    right = torch.tensor(tokenizer.encode(" 2-1=1. The answer is 1.\n\nQ: The answer is 7.", add_special_tokens=False))
    assert task.check(0, right) == ("2", "-1", "1", "1")
    stop, prompt = task.processors[0], task.prompts[0]
    for size in range(len(right)):
        forced_end = stop(torch.cat([prompt, right[:size]])[None], torch.zeros(1, 259)).isfinite().sum() == 1
        recent = tokenizer.decode(right[:size][-4:])
        assert forced_end == ("\n\n" in recent.lstrip("\n") or "Q:" in recent)


def test_gsm8k_is_drawn_by_the_same_function(tiny):
    model, tokenizer = tiny
    task = gsm8k(tokenizer, 2, shots=1, max_new_tokens=4, problems=PROBLEMS)
    cells = accuracy.run_cells(model, task, [*controls(259), grid()["top-p"][1]], [1.0], samples=2)
    assert len(cells) == 6
    assert cells["accuracy"].between(0, 1).all()
    assert cells["kept"].ge(1).all()


def table(values, **columns):
    """A table of cells from {(sampler, setting, temperature): [(accuracy, distinct) of each problem]}."""
    rows = [
        {"sampler": s, "setting": v, "temperature": t, "problem": i, "accuracy": a, "distinct": d, **columns}
        for (s, v, t), found in values.items()
        for i, (a, d) in enumerate(found)
    ]
    return pd.DataFrame(rows)


CALIBRATION = table(
    {
        ("Top-W", "", 1.0): [(0.5, 1.0)] * 2,
        ("Top-W", "", 2.0): [(0.5, 1.0)] * 2,
        ("top-p", "0.8", 1.0): [(0.6, 1.0)] * 2,
        ("top-p", "0.9", 1.0): [(0.6, 2.0)] * 2,
        ("top-p", "0.8", 2.0): [(0.1, 1.0)] * 2,
        ("top-p", "0.9", 2.0): [(0.2, 1.0)] * 2,
        ("min-p", "0.1", 1.0): [(0.3, 1.0)] * 2,
        ("min-p", "0.1", 2.0): [(0.4, 1.0)] * 2,
        ("greedy", "", 1.0): [(0.5, 0.5)] * 2,
        ("greedy", "", 2.0): [(0.5, 0.5)] * 2,
    }
)


def test_settings_and_rivals_are_chosen_on_the_calibration_problems_alone():
    best = comparison.best_rivals(CALIBRATION, ["top-p", "min-p"])
    assert best[["sampler", "setting"]].to_numpy().tolist() == [["top-p", "0.8"], ["min-p", "0.1"]]
    cells = CALIBRATION.assign(accuracy=np.linspace(0, 1, len(CALIBRATION)))
    by_cell = cells.groupby(["sampler", "setting", "temperature"])["accuracy"].mean()
    expected = (
        by_cell["Top-W", "", 1.0]
        - by_cell["top-p", "0.8", 1.0]
        + by_cell["Top-W", "", 2.0]
        - by_cell["min-p", "0.1", 2.0]
    ) / 2
    found = comparison.advantage(cells, CALIBRATION, rivals=["top-p", "min-p"])
    assert found.value == pytest.approx(expected)


def test_models_are_averaged_within_a_problem():
    first, second = (CALIBRATION.assign(accuracy=level, model=name) for level, name in ((0.2, "a"), (0.6, "b")))
    found = comparison.difference(
        pd.concat([first, second.assign(accuracy=lambda x: x["accuracy"] + 0.2 * (x["sampler"] == "Top-W"))]),
        ("Top-W", ""),
        ("top-p", "0.9"),
        temperature=2.0,
    )
    assert found == pytest.approx((0.1, 0.1, 0.1))


def plain_score(cells, sampler, setting, admitted, unmatched):
    """Claim C5's number for one sampler, by loops."""
    means = cells.groupby(["sampler", "setting", "temperature"])[["accuracy", "distinct"]].mean()
    rows = means.loc[sampler, setting]
    greedy = means.loc["greedy", ""]["accuracy"].iloc[0]
    enough = rows[rows["accuracy"] >= admitted * greedy]
    if len(enough):
        return enough["distinct"].max()
    return 0.0 if unmatched == "none" else rows["distinct"][rows["accuracy"].idxmax()]


@pytest.mark.parametrize("unmatched", ["none", "most accurate"])
@pytest.mark.parametrize("admitted", [0.5, 0.95, 1.0])
def test_diversity_counts_only_temperatures_that_match_greedy_accuracy(admitted, unmatched):
    draw = np.random.default_rng(4)
    cells = {}
    for sampler, base in (("greedy", 0.7), ("Top-W", 0.7), ("top-p", 0.6), ("min-p", 0.5)):
        for temperature in (0.5, 1.0, 2.0):
            found = np.clip(base - 0.1 * temperature * (sampler != "greedy") + 0.1 * draw.normal(size=30), 0, 1)
            cells[sampler, "", temperature] = list(zip(found, found * temperature * 3, strict=True))
    cells = table(cells)
    best = max(("top-p", "min-p"), key=lambda name: plain_score(cells, name, "", admitted, unmatched))
    found = comparison.diversity_advantage(
        cells, cells, rivals=["top-p", "min-p"], admitted=admitted, unmatched=unmatched
    )
    assert comparison.most_diverse(cells, ["top-p", "min-p"], admitted=admitted, unmatched=unmatched) == (best, "")
    expected = plain_score(cells, "Top-W", "", admitted, unmatched) - plain_score(cells, best, "", admitted, unmatched)
    assert found.value == pytest.approx(expected)
    assert found.low <= found.value <= found.high


def test_tables_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="different problems"):
        comparison.summary(CALIBRATION.iloc[:-1].assign(kept=1.0, single=1.0))
    with pytest.raises(InputError, match="lack 2 of the"):
        comparison.tuned(CALIBRATION.query("sampler != 'min-p'"), comparison.best_settings(CALIBRATION))
    with pytest.raises(InputError, match="not in the table"):
        comparison.advantage(CALIBRATION, CALIBRATION, rivals=["top-q"])


def test_forced_questions_have_one_right_text_that_the_prompt_determines(tiny):
    _, tokenizer = tiny
    task = forced.questions(tokenizer, 6, seed=2)
    for index, prompt in enumerate(task.prompts):
        (answer,) = task.solutions[index]
        right = tokenizer.decode(answer)
        known, again = tokenizer.decode(prompt).split("Again:")
        asked = again.split(".")[-1]
        assert f"{asked}{right}" in known
        assert f"{asked}{right}" not in again
        assert task.check(index, answer) == right
        assert task.check(index, answer.flip(0)) is None


def test_forced_questions_differ_between_seeds_and_repeat_with_one(tiny):
    _, tokenizer = tiny
    first, again, other = (forced.questions(tokenizer, 4, seed=seed).solutions for seed in (0, 0, 1))
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, other))


LOGITS = torch.randn(5, 300, generator=torch.Generator().manual_seed(0)) * 2
EMBEDDING = torch.randn(300, 8, generator=torch.Generator().manual_seed(1))
ACTIVE = TopWConfig(lam=0.3, beta=1.0, geom_scale=1.0, warm_p=0.2, fast_path=False)


def test_compared_sets_are_those_that_the_decoder_selects():
    found = kept_sets.compare(LOGITS, EMBEDDING, {"active": ACTIVE}, [1.0, 2.0], seed=5)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(5))
    for temperature, rows in found.groupby("temperature"):
        true, permuted, none = (
            select(LOGITS, geometry, ACTIVE, temperature)
            for geometry in (Geometry(EMBEDDING), Geometry(EMBEDDING, permutation=order), None)
        )
        assert rows["kept"].tolist() == true.kept.sum(1).tolist()
        assert rows["rounds"].tolist() == true.rounds.tolist()
        assert rows["changed"].tolist() == (true.kept != permuted.kept).any(1).tolist()
        for column, other in (("jaccard_permuted", permuted), ("jaccard_none", none)):
            expected = (true.kept & other.kept).sum(1) / (true.kept | other.kept).sum(1)
            np.testing.assert_allclose(rows[column], expected)
    assert found["changed"].any()
    assert found["pool_mass"].to_numpy() == pytest.approx(1.0)


def test_permuting_rows_changes_nothing_at_the_released_defaults_where_the_warm_start_is_wide_enough():
    found = kept_sets.compare(LOGITS, EMBEDDING, {"released": TopWConfig()}, [0.5, 1.0, 2.0])
    assert not found["changed"].any()
    assert (found["jaccard_none"] == 1).all()
    assert (found["rounds"] <= 2).all()


def test_more_reward_of_mass_keeps_no_less_without_geometry():
    betas = {str(beta): TopWConfig(beta=beta) for beta in (2.2, 2.8, 4, 6)}
    sizes = kept_sets.kept_sizes(LOGITS, None, betas, [1.5]).pivot(index="position", columns="config", values="kept")
    assert (np.diff(sizes[list(betas)].to_numpy(), axis=1) >= 0).all()
    assert sizes["6"].sum() > sizes["2.2"].sum()


def test_positions_are_spread_over_the_sources_and_are_the_models_own_logits(tiny):
    model, tokenizer = tiny
    found = kept_sets.positions(model, tokenizer, 14, tokens=12, per_text=2, batch=3)
    assert found.logits.shape == (14, 259)
    assert set(found.source) >= {"prose", "code"}
    assert np.bincount(found.text).max() == 2
    again = kept_sets.positions(model, tokenizer, 14, tokens=12, per_text=2, batch=8)
    torch.testing.assert_close(found.logits, again.logits)


def test_no_rule_is_better_than_the_best_of_all_sets():
    found = gaps.optimality_gaps(pools=2, tokens=5, seed=1)
    assert (found["excess"] >= -1e-9).all()
    wide = found.pivot(index=["pool", "config", "cost"], columns="rule", values="excess")
    assert (wide["best prefix"] <= wide["greedy"] + 1e-12).all()
    assert (wide["best prefix"] <= wide["top-p 0.9"] + 1e-12).all()
    # From the wide warm start Top-W is the rule without geometry, whatever the distances.
    wide_start = wide.loc[:, ["released", "lam 0.3, beta 0.8, g 1, warm 0.999"], :]
    assert (wide_start["Top-W"] == wide_start["no geometry"]).mean() > 0.7


def test_without_distances_the_rule_without_geometry_is_optimal():
    found = gaps.optimality_gaps({"flat": TopWConfig(lam=0.3, beta=0.8, geom_scale=0)}, pools=3, tokens=5)
    assert found.query("rule == 'no geometry' and cost == 'g W1'")["optimal"].all()


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda model, task: accuracy.run_cells(model, task, [], [1.0]), "samplers="),
        (lambda model, task: accuracy.run_cells(model, task, controls(9), [0.0]), "temperatures=0"),
        (lambda model, task: accuracy.run_cells(model, task, controls(9), [1.0], samples=True), "samples=True"),
        (lambda model, task: accuracy.run_cells(model, task, controls(9) * 2, [1.0]), "different samplers"),
        (lambda model, task: kept_sets.compare(LOGITS, EMBEDDING, {}, [1.0]), "configs="),
        (lambda model, task: kept_sets.compare(LOGITS, EMBEDDING[1:], {"x": ACTIVE}, [1.0]), "embedding of 299"),
        (lambda model, task: gaps.optimality_gaps(pools=0), "pools=0"),
    ],
)
def test_wrong_input_is_refused_by_name(call, names, tiny, likely):
    with pytest.raises(InputError, match=names):
        call(tiny[0], likely)
