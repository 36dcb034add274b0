"""The logits processor: what it masks, alone and inside `generate`, and that it can be copied and stored."""

import copy
import pickle

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList, TemperatureLogitsWarper

from icml26.errors import InputError
from icml26.models_tiny import VOCABULARY, random_llama
from icml26.top_w import Geometry, TopWConfig, TopWLogitsWarper, select

ACTING = TopWConfig(lam=0.3, beta=1.0, geom_scale=1.0, warm_p=0.3)
IDS = torch.zeros(3, 1, dtype=torch.int64)


@pytest.fixture(scope="module")
def model():
    return random_llama()


@pytest.fixture
def scores():
    return torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(0)) * 3


def test_the_kept_tokens_keep_their_logits_and_the_others_are_excluded(model, scores):
    embedding = model.get_input_embeddings()
    for config in (TopWConfig(), ACTING):
        warper = TopWLogitsWarper(embedding, temperature=1.5, config=config)
        given = scores.clone()
        found = warper(IDS, given)
        kept = select(scores, Geometry(embedding), config, 1.5).kept
        assert torch.equal(found[kept], scores[kept])
        assert (found[~kept] == -torch.inf).all()
        assert torch.equal(given, scores)
        assert found.dtype == scores.dtype


def test_the_temperature_of_selection_decides_what_is_kept(model, scores):
    flat, sharp = (
        TopWLogitsWarper(model.get_input_embeddings(), temperature=t, config=ACTING)(IDS, scores).isfinite().sum()
        for t in (5.0, 0.2)
    )
    assert flat > sharp >= 3


def test_a_geometry_of_ones_own_or_none_replaces_the_embedding(model, scores):
    table = model.get_input_embeddings().weight
    order = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(0))
    permuted = Geometry(table, permutation=order)
    rearranged = TopWLogitsWarper(table[order], temperature=1.5, config=ACTING)
    shared = TopWLogitsWarper(None, temperature=1.5, config=ACTING, geometry=permuted)
    assert torch.equal(shared(IDS, scores), rearranged(IDS, scores))
    free = TopWLogitsWarper(None, temperature=1.5, config=ACTING)(IDS, scores)
    assert torch.equal(free.isfinite(), select(scores, None, ACTING, 1.5).kept)


def test_sampling_in_generate_takes_only_kept_tokens(model):
    warper = TopWLogitsWarper(model.get_input_embeddings(), temperature=2.0, config=ACTING)
    prompt = torch.tensor([[5, 6, 7], [9, 8, 7]])
    torch.manual_seed(0)
    found = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        logits_processor=[warper],
        do_sample=True,
        temperature=2.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=6,
        output_logits=True,
        output_scores=True,
        return_dict_in_generate=True,
    )
    for step, (logits, processed) in enumerate(zip(found.logits, found.scores, strict=True)):
        running = ~(found.sequences[:, 3 : 3 + step] == model.config.eos_token_id).any(1)
        kept = select(logits, Geometry(model.get_input_embeddings()), ACTING, 2.0).kept
        assert torch.equal(processed.isfinite(), kept)
        torch.testing.assert_close(processed[kept], logits[kept] / 2)
        drawn = found.sequences[:, 3 + step]
        assert kept[running, drawn[running]].all()
        assert kept.sum() > len(kept)


def test_it_takes_its_place_in_a_list_of_processors(model, scores):
    warper = TopWLogitsWarper(model.get_input_embeddings(), temperature=1.5)
    assert isinstance(warper, LogitsProcessor)
    found = LogitsProcessorList([warper, TemperatureLogitsWarper(1.5)])(IDS, scores)
    torch.testing.assert_close(found, warper(IDS, scores) / 1.5)
    masked = warper(IDS, scores)
    assert torch.equal(warper(IDS, masked), masked)


@pytest.mark.parametrize("remade", [copy.copy, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])
def test_a_copy_masks_the_same(model, scores, remade):
    warper = TopWLogitsWarper(model.get_input_embeddings(), temperature=1.5, config=ACTING)
    again = remade(warper)
    assert torch.equal(again(IDS, scores), warper(IDS, scores))
    assert again.config == warper.config


def test_it_holds_the_models_own_table_and_two_rows_beside_it(model):
    warper = TopWLogitsWarper(model.get_input_embeddings(), temperature=1.0)
    assert warper.geometry.embedding.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    assert warper.geometry.mean.shape == warper.geometry.scale.shape == (128,)


def test_no_gradient_flows_into_the_table(model, scores):
    warper = TopWLogitsWarper(model.get_input_embeddings(), temperature=1.0, config=ACTING)
    given = scores.clone().requires_grad_()
    warper(IDS, given).exp().sum().backward()
    assert model.get_input_embeddings().weight.grad is None
    assert given.grad.isfinite().all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: TopWLogitsWarper(t, temperature=0), "temperature=0"),
        (lambda t: TopWLogitsWarper(t, temperature=None), "temperature=None"),
        (lambda t: TopWLogitsWarper(t, temperature=1.0, geometry=Geometry(t)), "both given"),
        (lambda t: TopWLogitsWarper(t, temperature=1.0)(IDS, torch.zeros(3, 9)), "9 tokens and the embedding 259 rows"),
        (lambda t: TopWLogitsWarper(t, temperature=1.0)(IDS, torch.full((3, VOCABULARY), -torch.inf)), "but -inf"),
        (lambda t: TopWLogitsWarper(t, temperature=1.0, config={"lam": 1}), "config"),
        (lambda t: TopWLogitsWarper(None, temperature=1.0, geometry=t), "geometry"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(model, call, says):
    with pytest.raises(InputError, match=says) as error:
        call(model.get_input_embeddings().weight)
    assert "\n" not in str(error.value)


def test_the_temperature_must_be_given(model):
    with pytest.raises(TypeError, match="temperature"):
        TopWLogitsWarper(model.get_input_embeddings())
