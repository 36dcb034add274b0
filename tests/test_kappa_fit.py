"""KAPPA for a model and items of one's own, and items asked of a real model's class."""

import numpy as np
import pytest
import torch

from icml26 import multiple_choice
from icml26.errors import InputError
from icml26.kappa import gap
from icml26.kappa.fit import fit
from icml26.kappa.measured import measure, split
from icml26.kappa.settings import SelectionConfig
from icml26.models import load_lm
from icml26.multiple_choice import Item

QUICK = SelectionConfig(alphas=(1.0, 5.0), layer_counts=(1, 3), several_alphas=(1.0,), candidates=1)


def items(number, options=3):
    return [
        Item(f"Which is {n:02}?", tuple(f"{(n + step) % 20:02}" for step in range(options)), 0) for n in range(number)
    ]


@pytest.fixture(scope="module")
def model():
    return load_lm("tiny-random-llama")


@pytest.fixture(scope="module")
def fitted(model):
    return fit(*model, items(14), config=QUICK, seed=1)


def test_parts_of_a_split_are_disjoint_and_repeatable():
    parts = split(20, (9, 5, 4), seed=3)
    assert [len(part) for part in parts] == [9, 5, 4]
    assert len(set(np.concatenate(parts))) == 18
    assert all((one == two).all() for one, two in zip(parts, split(20, (9, 5, 4), seed=3), strict=True))
    with pytest.raises(InputError, match="need 21 items, there are 20"):
        split(20, (9, 12), seed=0)


def test_each_item_is_asked_in_every_rotation(model):
    asked = measure(*model, {5: items(1)[0], 8: items(2)[1]}, contrast=0)
    assert asked.items.tolist() == [5, 5, 5, 8, 8, 8]
    assert sorted(asked.labels[:3]) == [0, 1, 2]
    assert asked.vectors.shape == (2, 128)
    assert asked.answers is None
    tokenizer = model[1]
    for row, order in enumerate(multiple_choice.cyclic_orders(3)):
        inputs = tokenizer(multiple_choice.prompt(items(1)[0], order), return_tensors="pt")
        with torch.no_grad():
            out = model[0](**inputs, output_hidden_states=True)
        ids = multiple_choice.symbol_ids(tokenizer, "ABC")
        np.testing.assert_allclose(asked.logits[row], out.logits[0, -1, ids].numpy(), atol=1e-4)
        np.testing.assert_allclose(asked.hidden[row, 0], out.hidden_states[1][0, -1].numpy(), atol=1e-4)


def test_the_fitted_intervention_is_the_one_that_was_tried(model, fitted):
    held_out = {int(number): items(14)[number] for number in np.unique(fitted.learned.validation.items)}
    asked = measure(*model, held_out, keep_cache=True)
    logits = asked.answers(fitted.kappa) - fitted.mean
    assert gap.accuracy(logits, asked.labels) == fitted.report.kappa
    assert gap.agreement(logits, fitted.learned.reference(asked)) == fitted.report.agreement
    assert max(tried.accuracy for tried in fitted.learned.tried) == fitted.report.kappa
    assert fitted.report.items == (10, 4)


def test_choosing_from_the_whole_vocabulary_corrects_the_letters(model, fitted):
    inputs = model[1](multiple_choice.prompt(items(1)[0]), return_tensors="pt")
    with torch.no_grad(), fitted.applied(model[0]):
        logits = model[0](**inputs).logits[:, -1]
    own = logits[0, list(fitted.symbol_ids)].double().numpy() - fitted.mean
    assert fitted.choose(logits).tolist() == [own.argmax()]
    with pytest.raises(InputError, match="whole vocabulary"):
        fitted.choose(logits[:, :3])


def test_generation_runs_under_the_intervention_and_the_model_is_left_as_it_was(model, fitted):
    inputs = model[1](multiple_choice.prompt(items(1)[0]), return_tensors="pt")
    with torch.no_grad():
        before = model[0](**inputs).logits
        with fitted.applied(model[0]):
            out = model[0].generate(**inputs, max_new_tokens=2, do_sample=False)
        assert out.shape[1] == inputs["input_ids"].shape[1] + 2
        assert torch.equal(model[0](**inputs).logits, before)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (items(3), {}, "items are 3, of which"),
        (items(14), {"validation": 0.9}, "give more, or take fewer"),
        (items(14), {"validation": 0}, "validation=0 must be"),
        ([*items(7), *items(14, options=4)[7:]], {}, "items have"),
        (["a text"] * 14, {}, "items hold a str"),
    ],
)
def test_items_that_do_not_do_are_refused(model, given, options, message):
    with pytest.raises(InputError, match=message):
        fit(*model, given, config=QUICK, **options)


def test_a_model_that_never_picks_some_letter_is_refused(model, monkeypatch):
    from icml26.kappa import fit as module

    def constant(*arguments, **options):
        found = measure(*arguments, **options)
        found.logits[:] = [0.0, 1.0, 2.0]
        return found

    monkeypatch.setattr(module, "measure", constant)
    with pytest.raises(InputError, match="never picks B, C on the 10 training items"):
        fit(*model, items(14), config=QUICK)


def test_the_same_question_may_not_be_on_both_sides(model):
    again = Item(f" {items(3)[2].question}", items(3)[2].options[::-1], 2)
    with pytest.raises(InputError, match="items 2 and 14 are the same question"):
        fit(*model, [*items(14), again], config=QUICK)
    same_words = [Item("Which of these is odd?", one.options, 0) for one in items(14)]
    assert fit(*model, same_words, config=QUICK).report.items == (10, 4)  # other answers, other items
