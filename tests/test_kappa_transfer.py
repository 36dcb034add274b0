"""KAPPA with fewer items, and with the probes of another task."""

import kappa_prompts as made
import numpy as np
import pytest

from icml26.errors import InputError
from icml26.kappa.intervention import Kappa
from icml26.kappa.probes import LinearProbe
from icml26.kappa.selection import learn
from icml26.kappa.settings import SelectionConfig, Setting
from icml26.kappa.transfer import transferred, with_fewer_items

QUICK = SelectionConfig(alphas=(1.0, 5.0), layer_counts=(1, 2), several_alphas=(1.0,), candidates=2)
SETTING = Setting("KAPPA", (2, 3), 2.0)


@pytest.fixture(scope="module")
def learned():
    return learn("made", made.prompts(20), made.prompts(8, first=20), QUICK)


def test_all_items_give_the_probes_of_all_items(learned):
    asked = made.prompts(6, first=50)
    found = with_fewer_items(learned, asked, SETTING, 1.0, subsets=1, seed=0)
    expected = asked.answers(Kappa(learned.pairs(SETTING.layers), alpha=2.0)) - learned.mean
    assert found.items == 20
    np.testing.assert_allclose(found.logits[0], expected, atol=1e-3)


def test_subsets_are_whole_items_and_probes_are_theirs_alone(learned):
    kappas = []
    asked = made.prompts(6, first=50)
    answers = asked.answers
    asked = type(asked)(asked.hidden, asked.logits, asked.labels, asked.items, lambda k: kappas.append(k) or answers(k))
    found = with_fewer_items(learned, asked, SETTING, 0.3, subsets=3, least=2, seed=4)
    assert found.items == 6
    assert found.logits.shape == (3, 18, 3)
    draw = np.random.default_rng(4)
    for kappa in kappas:
        rows = np.isin(learned.training.items, draw.choice(20, 6, replace=False))
        hidden, labels = learned.training.hidden[rows, 3], learned.training.labels[rows]
        probe = LinearProbe(C=learned.C, n_classes=3).fit(hidden, labels).probe_
        np.testing.assert_allclose(kappa.pairs[3][0].logits(hidden), probe.logits(hidden), atol=2e-3)
    assert found.redrawn == 0


def test_there_are_never_fewer_items_than_the_least(learned):
    assert with_fewer_items(learned, made.prompts(2, first=50), SETTING, 0.01, subsets=1, least=7, seed=0).items == 7


def test_a_share_that_never_holds_all_answers_is_refused(learned):
    one_item = (learned.training.items == 0).nonzero()[0]
    predicted = np.zeros(60, dtype=int)
    predicted[one_item] = [0, 1, 2]
    skewed = type(learned)(**{**vars(learned), "predicted": predicted})
    with pytest.raises(InputError, match="too few for the model to pick each option"):
        with_fewer_items(skewed, made.prompts(2, first=50), SETTING, 0.05, subsets=99, least=1, seed=0)


def test_transfer_leaves_out_the_target_itself_and_tasks_that_do_not_fit(learned):
    other = learn("other", made.prompts(20, first=200), made.prompts(8, first=300), QUICK)
    mute = type(other)(**{**vars(other), "name": "mute", "pred": None})
    asked = made.prompts(6, first=50)
    found = transferred(learned, asked, [learned, other, mute])
    assert list(found) == ["other"]
    setting = other.best("KAPPA")
    expected = asked.answers(Kappa(other.pairs(setting.layers), alpha=setting.strength)) - learned.mean
    np.testing.assert_array_equal(found["other"], expected)


def test_a_source_that_knows_the_same_helps_as_its_own_probes_do(learned):
    # The directions of all made-up tasks are the same, so transfer is complete here.
    other = learn("other", made.prompts(20, first=200), made.prompts(8, first=300), QUICK)
    asked = made.prompts(20, first=50)
    logits = transferred(learned, asked, [other])["other"]
    assert (logits.argmax(1) == asked.labels).mean() > 0.95
