"""Observing confidence while transformers generates, from logits that it kept, and from what vLLM returns."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, StoppingCriteria

from icml26.cdg.confidence import self_certainty, token_confidence
from icml26.cdg.observer import ConfidenceObserver, from_generate
from icml26.cdg.vllm_outputs import from_vllm
from icml26.errors import InputError

END, PAD, VOCABULARY = 1, 0, 12
PROMPTS = torch.tensor([[PAD, PAD, 3, 5], [4, 6, 7, 8], [PAD, 9, END, 2]])  # an end token in a prompt ends nothing


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=END, pad_token_id=PAD,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(40)  # far from a flat law
    return model


def generate(model, observer=None, **options):
    torch.manual_seed(1)
    defaults = {"do_sample": True, "max_new_tokens": 14, "return_dict_in_generate": True, "output_logits": True}
    return model.generate(
        PROMPTS.repeat_interleave(4, 0),
        attention_mask=(PROMPTS.repeat_interleave(4, 0) != PAD).long(),
        logits_processor=[] if observer is None else [observer],
        **defaults | options,
    )


def looped(output, k, sampled=False):
    """Confidences of every row up to its first drawn end token, a token at a time."""
    rows, steps = len(output.sequences), len(output.logits)
    found = []
    for row in range(rows):
        values, certainties = [], []
        for step in range(steps):
            token = output.sequences[row, PROMPTS.shape[1] + step]
            logits = output.logits[step][row]
            values.append(float(token_confidence(logits, k, sampled=token if sampled else None)))
            certainties.append(float(self_certainty(logits)))
            if token == END:
                break
        found.append((values, np.mean(certainties)))
    return found


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "top_k": 3}, {"do_sample": False}])
def test_what_is_observed_is_the_raw_confidence_of_every_token_up_to_the_end(model, options, sampled):
    observer = ConfidenceObserver(END, 5, sampled=sampled)
    output = generate(model, observer, **options)
    observed, expected = observer.finalize(output.sequences), looped(output, 5, sampled)
    assert observed.lengths.tolist() == [len(values) for values, _ in expected]
    assert np.allclose(observed.confidences, np.concatenate([values for values, _ in expected]), atol=1e-5)
    assert np.allclose(observed.certainties, [certainty for _, certainty in expected], atol=1e-5)
    kept = from_generate(output, END, 5, sampled=sampled)
    for left, right in zip(observed, kept, strict=True):
        assert np.allclose(left, right, atol=1e-6)


def test_rows_end_at_different_steps_and_those_cut_off_are_told(model):
    observer = ConfidenceObserver(END, 5)
    output = generate(model, observer)
    observed = observer.finalize(output.sequences)
    drawn = output.sequences[:, PROMPTS.shape[1] :]
    assert observed.ended.tolist() == (drawn == END).any(1).tolist()
    assert len(set(observed.lengths.tolist())) > 2
    assert (observed.lengths[~observed.ended] == drawn.shape[1]).all()


def test_observing_changes_nothing(model):
    observed = generate(model, ConfidenceObserver([END, 11], 5))
    assert torch.equal(observed.sequences, generate(model).sequences)


def test_any_of_several_end_tokens_ends_a_row(model):
    observer = ConfidenceObserver([END, 11], 5)
    output = generate(model, observer, eos_token_id=[END, 11])
    drawn = output.sequences[:, PROMPTS.shape[1] :].tolist()
    expected = [next((i + 1 for i, t in enumerate(row) if t in (END, 11)), len(row)) for row in drawn]
    assert observer.finalize(output.sequences).lengths.tolist() == expected


def test_an_observer_is_used_again_after_a_reset(model):
    observer = ConfidenceObserver(END, 5)
    first = observer.finalize(generate(model, observer).sequences)
    with pytest.raises(InputError, match="reset"):
        generate(model, observer)
    observer.reset()
    again = observer.finalize(generate(model, observer).sequences)
    assert np.array_equal(first.confidences, again.confidences)


@pytest.mark.parametrize("options", [{"do_sample": False}, {}])
def test_beam_search_is_refused(model, options):
    with pytest.raises(InputError, match="num_beams=1"):
        generate(model, ConfidenceObserver(END, 5), num_beams=3, **options)
    with pytest.raises(InputError, match="num_beams=1"):
        from_generate(generate(model, num_beams=3, **options), END, 5)


def test_reordered_rows_are_refused():
    observer = ConfidenceObserver(END, 5)
    logits = torch.randn(2, VOCABULARY, generator=torch.Generator().manual_seed(0))
    observer(torch.tensor([[3], [4]]), logits)
    observer(torch.tensor([[3, 5], [4, 6]]), logits)
    with pytest.raises(InputError, match="reordered"):
        observer(torch.tensor([[4, 6, 7], [3, 5, 8]]), logits)


def test_built_in_processors_that_truncate_are_noticed(model):
    with pytest.raises(InputError, match="raw"):
        generate(model, ConfidenceObserver(END, 5), suppress_tokens=[3, 4, 5, 6, 7, 8, 9, 10])


def test_logits_of_ended_rows_may_be_anything():
    observer = ConfidenceObserver(END, 2)
    logits = torch.randn(2, VOCABULARY, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[3], [4]])
    observer(ids, logits)
    ids = torch.cat([ids, torch.tensor([[END], [5]])], 1)
    broken = logits.clone()
    broken[0] = torch.nan
    assert observer(ids, broken) is broken
    observed = observer.finalize(torch.cat([ids, torch.tensor([[PAD], [6]])], 1))
    assert observed.lengths.tolist() == [1, 2]
    assert np.isfinite(observed.confidences).all()


def test_only_the_sequences_of_the_same_call_are_taken(model):
    observer = ConfidenceObserver(END, 5)
    with pytest.raises(InputError, match="nothing was observed"):
        observer.finalize(PROMPTS)
    sequences = generate(model, observer).sequences
    for wrong in (sequences[:, :-1], sequences[:-1], sequences[0], sequences.flip(0)):
        with pytest.raises(InputError):
            observer.finalize(wrong)
    assert observer.finalize(sequences).lengths.sum() > 0


def test_observed_rows_make_a_question(model):
    observer = ConfidenceObserver(END, 5)
    observed = observer.finalize(generate(model, observer).sequences)
    question = observed.question([str(row) for row in range(12)])
    assert question[3].answer == "3"
    assert question[3].certainty == observed.certainties[3]
    assert len(question[3].confidences) == observed.lengths[3]
    with pytest.raises(InputError):
        observed.question(["7"])


class StopAfter(StoppingCriteria):
    """Ends every row of even number at its second token: what ``stop_strings`` does, without a tokenizer."""

    def __call__(self, input_ids, scores, **_):
        even = torch.arange(len(input_ids)) % 2 == 0
        return even & (input_ids.shape[1] >= PROMPTS.shape[1] + 2)


def test_padding_of_rows_that_something_else_ends_is_no_token(model):
    pad, observer = 11, ConfidenceObserver(END, 5)
    options = {"stopping_criteria": [StopAfter()], "pad_token_id": pad, "suppress_tokens": [pad]}
    output = generate(model, observer, **options)
    drawn = output.sequences[:, PROMPTS.shape[1] :]
    expected = [
        next((step + 1 for step, token in enumerate(row) if token == END or (number % 2 == 0 and step == 1)), len(row))
        for number, row in enumerate(drawn.tolist())
    ]
    assert (drawn[::2, 2:] == pad).all()
    for observed in (
        observer.finalize(output, pad=pad),
        observer.finalize(output, lengths=expected),
        from_generate(output, END, 5, pad=pad),
    ):
        assert observed.lengths.tolist() == expected
        assert len(observed.confidences) == sum(expected)
        last = drawn[torch.arange(len(drawn)), torch.tensor(expected) - 1]
        assert observed.ended.tolist() == (last == END).tolist()
    known = np.split(observer.finalize(output, lengths=expected).confidences, np.cumsum(expected)[:-1])
    whole = observer.finalize(output, lengths=np.full(12, drawn.shape[1]))
    assert np.array_equal(known[0], whole.confidences[: expected[0]])


def test_padding_that_looks_like_the_end_token_needs_the_true_lengths(model):
    observer = ConfidenceObserver(END, 5)
    output = generate(model, observer, stopping_criteria=[StopAfter()], pad_token_id=END)
    with pytest.raises(InputError, match="lengths"):
        observer.finalize(output, pad=END)
    drawn = output.sequences[:, PROMPTS.shape[1] :].tolist()
    lengths = [min(2, len(row)) if number % 2 == 0 else len(row) for number, row in enumerate(drawn)]
    observed = observer.finalize(output, lengths=lengths)
    assert observed.lengths[::2].max() == 2
    assert observed.ended[::2].tolist() == [END in row[:2] for row in drawn[::2]]


@pytest.mark.parametrize(
    "options",
    [{"pad": -1}, {"pad": True}, {"lengths": [1]}, {"lengths": [0] * 12}, {"lengths": [99] * 12},
     {"lengths": [1.0] * 12}, {"lengths": [[1], [1, 2]]}, {"pad": 0, "lengths": [1] * 12}],
)  # fmt: skip
def test_wrong_ends_of_rows_are_refused(model, options):
    observer = ConfidenceObserver(END, 5)
    output = generate(model, observer)
    with pytest.raises(InputError) as caught:
        observer.finalize(output, **options)
    assert "\n" not in str(caught.value)


def test_a_dictionary_that_generate_returned_is_taken_as_its_sequences(model):
    observer = ConfidenceObserver(END, 5)
    output = generate(model, observer)
    for left, right in zip(observer.finalize(output), observer.finalize(output.sequences), strict=True):
        assert np.array_equal(left, right)


@pytest.mark.parametrize("wrong", [None, [[1, 2]], "ids", SimpleNamespace(sequences=None), torch.zeros(12, 18)])
def test_what_is_no_output_of_generate_is_refused(model, wrong):
    observer = ConfidenceObserver(END, 5)
    generate(model, observer)
    with pytest.raises(InputError, match="generate returned"):
        observer.finalize(wrong)
    with pytest.raises(InputError):
        from_generate(wrong, END, 5)
    with pytest.raises(InputError):
        from_generate(SimpleNamespace(sequences=wrong, logits=(torch.zeros(12, 8),)), END, 5)
    with pytest.raises(InputError):
        from_generate(SimpleNamespace(sequences=PROMPTS, logits=()), END, 5)


def test_a_forbidden_token_leaves_confidence_and_takes_self_certainty(model):
    observer = ConfidenceObserver(END, 5)
    output = generate(model, observer, min_new_tokens=3, max_new_tokens=6, output_scores=True)
    observed, steps = observer.finalize(output), [logits.clone() for logits in output.logits]
    for logits in steps[:3]:
        logits[:, END] = -torch.inf
    first = np.cumsum(observed.lengths) - observed.lengths
    for step in range(3):
        expected = token_confidence(steps[step], 5)
        assert np.allclose(observed.confidences[first + step], expected, atol=1e-5)
    assert np.isnan(observed.certainties).all()
    assert np.isfinite(from_generate(output, END, 5).certainties).all()
    assert np.isnan(observed.question(["7"] * 12).certainties).all()


def test_the_rows_of_each_prompt_make_a_question_of_their_own(model):
    observer = ConfidenceObserver(END, 5)
    observed = observer.finalize(generate(model, observer))
    answers = [str(row) for row in range(12)]
    every, parts = observed.question(answers), observed.questions(answers, each=4)
    assert [part.answers for part in parts] == [tuple(answers[:4]), tuple(answers[4:8]), tuple(answers[8:])]
    for row, trace in enumerate(trace for part in parts for trace in part):
        assert np.array_equal(trace.confidences, every[row].confidences)
        assert trace.certainty == every[row].certainty
    for wrong in (5, 0, 2.0, 24):
        with pytest.raises(InputError, match="each"):
            observed.questions(answers, each=wrong)
    with pytest.raises(InputError):
        observed.questions(answers[:8], each=4)


@pytest.mark.parametrize(
    "options",
    [{"end": 2**63}, {"end": None}, {"end": -1}, {"end": 1.5}, {"end": 1, "k": 0}, {"end": 1, "sampled": 1},
     {"end": 1, "decimals": 0.5}],
)  # fmt: skip
def test_wrong_options_of_the_observer_are_refused(options):
    with pytest.raises(InputError):
        ConfidenceObserver(**options)


def test_output_without_logits_is_refused(model):
    with pytest.raises(InputError, match="output_logits"):
        from_generate(generate(model, output_logits=False), END, 5)


def position(*values):
    return {token: SimpleNamespace(logprob=value) for token, value in enumerate(values)}


def served(*positions, text="so 7"):
    return SimpleNamespace(outputs=[SimpleNamespace(text=text, logprobs=list(positions))])


def last_word(text):
    return text.split()[-1] if text else None


def test_served_entries_are_averaged_all_and_empty_positions_are_skipped():
    request = served(position(-0.5, -1.5), {}, None, position(-0.1, -2.0, -9.0))
    (question,) = from_vllm([request], last_word)
    assert question[0].answer == "7"
    assert question[0].confidences.tolist() == pytest.approx([1.0, 11.1 / 3])
    (question,) = from_vllm([request], last_word, k=2)
    assert question[0].confidences.tolist() == pytest.approx([1.0, 1.05])
    (question,) = from_vllm([request], last_word, decimals=1)
    assert question[0].confidences.tolist() == [1.0, 3.7]


def test_what_a_server_returns_gives_the_confidence_of_its_logits():
    logits = np.random.default_rng(0).normal(0, 3, (6, 40))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    drawn = [0, 5, 9, 20, 30, 39]
    positions = [
        {int(t): SimpleNamespace(logprob=float(row[t])) for t in {*np.argsort(-row)[:20].tolist(), token}}
        for row, token in zip(log_p, drawn, strict=True)
    ]
    (question,) = from_vllm([served(*positions)], last_word)
    assert np.allclose(question.confidences, token_confidence(logits, sampled=np.array(drawn)))
    (question,) = from_vllm([served(*positions)], last_word, k=20)
    assert np.allclose(question.confidences, token_confidence(logits))


@pytest.mark.parametrize("stand_in", [-np.inf, -9999.0])
def test_entries_that_stand_for_no_value_are_refused_or_dropped(stand_in):
    request = served(position(-0.5, -1.5, stand_in), position(stand_in))
    with pytest.raises(InputError, match="missing='drop'"):
        from_vllm([request], last_word)
    (question,) = from_vllm([request], last_word, missing="drop")
    assert question.confidences.tolist() == [1.0]


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        (SimpleNamespace(outputs=[SimpleNamespace(text="7", logprobs=None)]), {}),
        (served(position(np.nan)), {}),
        (served(position(0.5)), {}),
        (served(position(-0.5)), {"k": 2}),
        (served(position(-0.5, -np.inf, -np.inf)), {"k": 3, "missing": "drop"}),
        (served(position(-0.5, -1.0, -9999.0)), {"k": 3, "missing": "drop"}),
        (served(position(None)), {}),
        (served(position("-1_0")), {}),
        (served(position(True)), {}),
        (served({3: -0.5}), {}),
        (served([-0.5]), {}),
        (served(-0.5), {}),
        (served(position(-0.5), text=None), {}),
        (SimpleNamespace(outputs=[SimpleNamespace(text="7", logprobs=1)]), {}),
        (SimpleNamespace(outputs=[SimpleNamespace(text="7")]), {}),
        (SimpleNamespace(outputs=SimpleNamespace(text="7", logprobs=[])), {}),
        (SimpleNamespace(outputs=None), {}),
        ("7", {}),
        (served(position(-0.5)), {"k": 0}),
        (served(position(-0.5)), {"missing": "keep"}),
        (served(position(-0.5)), {"decimals": -1}),
        (SimpleNamespace(outputs=[]), {}),
    ],
)
def test_wrong_server_outputs_and_options_are_refused(request_, options):
    with pytest.raises(InputError) as caught:
        from_vllm([request_], last_word, **options)
    assert "\n" not in str(caught.value)


def test_a_single_request_and_what_reads_no_answer_are_refused():
    with pytest.raises(InputError, match=r"\[request\]"):
        from_vllm(served(position(-0.5)), last_word)
    with pytest.raises(InputError, match="callable"):
        from_vllm([served(position(-0.5))], "7")


def test_the_k_largest_are_averaged_among_entries_that_have_a_value():
    request = served(position(-0.5, -1.5, -np.inf), position(-np.inf, -np.inf))
    (question,) = from_vllm([request], last_word, k=2, missing="drop")
    assert question.confidences.tolist() == [1.0]


def test_a_text_without_an_answer_is_a_trace_without_one():
    (question,) = from_vllm([served(position(-0.5), text="")], last_word)
    assert question.answers == (None,)
