"""Keys and values of a model: what is read, replaced, and how the loss changes with it."""

import numpy as np
import pytest
import torch

from icml26 import models
from icml26.errors import InputError
from icml26.gsrq.activations import collect, collect_gradients, gradient_norms, replaced
from icml26.gsrq.calibration import calibrate
from icml26.gsrq.language import Evaluator
from icml26.gsrq.projections import places_of

TOKENS = torch.randint(3, 200, (3, 11), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def llama():
    return models.load_lm("tiny-random-llama")[0]


@pytest.fixture(scope="module")
def gemma():
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        vocab_size=200,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        pad_token_id=0,
    )
    torch.manual_seed(0)
    return Gemma3ForCausalLM(config).eval()


@pytest.fixture(scope="module")
def qwen():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"vocab_size": 200, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    torch.manual_seed(1)
    return Qwen3ForCausalLM(
        Qwen3Config(**sizes, num_attention_heads=4, num_key_value_heads=2, head_dim=8, pad_token_id=0)
    ).eval()


def cached(model, layer, kind):
    """What the model's own cache holds: keys after RoPE, (windows, heads, tokens, size)."""
    with torch.no_grad():
        held = model(TOKENS, use_cache=True).past_key_values.layers[layer]
    return held.keys if kind == "key" else held.values


@pytest.mark.parametrize("name", ["llama", "gemma", "qwen"])
def test_values_are_those_of_the_models_cache_and_keys_have_their_lengths(name, request):
    model = request.getfixturevalue(name)
    if name == "gemma":  # a sliding window keeps too few tokens to compare
        model.config.sliding_window = 64
    states = collect(model, TOKENS, [1])
    for kind in ("key", "value"):
        held = cached(model, 1, kind)
        windows, heads, tokens, size = held.shape
        ours = states[1, kind].reshape(windows, tokens, heads, size).transpose(0, 2, 1, 3)
        if kind == "key":  # RoPE turns pairs of channels: the first token by nothing, others keep the norm
            np.testing.assert_allclose(ours[:, :, 0], held[:, :, 0], atol=1e-6)
            ours, held = np.linalg.norm(ours, axis=-1), np.linalg.norm(held, axis=-1)
        np.testing.assert_allclose(ours, held, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["llama", "gemma", "qwen"])
def test_putting_the_same_states_back_changes_nothing_and_others_change_later_tokens_alone(name, request):
    model = request.getfixturevalue(name)
    with torch.no_grad():
        plain = model(TOKENS).logits
        with replaced(model, dict.fromkeys(places_of(model, [0, 1]), np.copy)):
            assert torch.equal(model(TOKENS).logits, plain)

        def last_doubled(rows):
            rows = rows.copy()
            rows[6:] *= 2
            return rows

        for kind in ("key", "value"):
            with replaced(model, {(1, kind): last_doubled}):
                changed = model(TOKENS).logits
            assert torch.equal(changed[:, :6], plain[:, :6])
            assert (changed[:, 7:] != plain[:, 7:]).any(dim=-1).all()
        assert torch.equal(model(TOKENS).logits, plain)


def test_the_function_gets_each_window_with_the_heads_side_by_side(llama):
    seen = []
    with torch.no_grad(), replaced(llama, {(1, "value"): lambda rows: (seen.append(rows), rows)[1]}):
        llama(TOKENS)
    assert len(seen) == len(TOKENS)
    np.testing.assert_array_equal(np.concatenate(seen), collect(llama, TOKENS, [1])[1, "value"])


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_gradients_agree_with_finite_differences_of_the_loss(name, request):
    model = request.getfixturevalue(name).double()
    window = TOKENS[:1]
    try:
        _, gradients = collect_gradients(model, window, [0, 1])
        rng = np.random.default_rng(0)
        for place in places_of(model, [0, 1]):
            direction = rng.standard_normal(gradients[place].shape).astype(np.float32)

            def loss(step, place=place, direction=direction):
                # Added in the model's precision: the hook's own path is float32.
                layer = model.get_decoder().layers[place[0]].self_attn
                norm = place[1] == "key" and hasattr(layer, "k_norm")
                module = getattr(layer, "k_norm" if norm else f"{place[1][0]}_proj")

                def add(_module, _inputs, output):
                    shift = torch.tensor(step * direction, dtype=output.dtype)
                    if norm:
                        shift = shift.reshape(output.shape[2], output.shape[1], -1).transpose(0, 1)
                    return output + shift[None]

                handle = module.register_forward_hook(add)
                with torch.no_grad():
                    logits = model(window).logits[0, :-1]
                handle.remove()
                return torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="sum").item()

            # Wide, because norms and angles are computed in float32 whatever the model is in.
            measured = (loss(2e-3) - loss(-2e-3)) / 4e-3
            assert measured == pytest.approx(float((gradients[place].astype(float) * direction).sum()), rel=1e-2)
    finally:
        model.float()


def test_gradients_leave_parameters_and_states_as_they_are(llama):
    wanted = [parameter.requires_grad for parameter in llama.parameters()]
    states, gradients = collect_gradients(llama, TOKENS, [0, 1])
    assert [parameter.requires_grad for parameter in llama.parameters()] == wanted
    assert all(parameter.grad is None for parameter in llama.parameters())
    for place, array in collect(llama, TOKENS, [0, 1]).items():
        np.testing.assert_array_equal(states[place], array)
        assert not gradients[place].reshape(3, 11, -1)[:, -1].any()
        assert gradients[place].reshape(3, 11, -1)[:, :-1].any(axis=-1).all()


def test_norms_are_those_of_each_sub_vector():
    gradients = np.random.default_rng(0).standard_normal((5, 6))
    found = gradient_norms(gradients, 3)
    assert found.shape == (5, 2)
    assert found[4, 1] == pytest.approx(np.sqrt((gradients[4, 3:] ** 2).sum()))


def test_calibration_puts_windows_with_gradients_first_spread_over_the_text_and_keeps_every_token_once(llama):
    four = torch.randint(3, 200, (4, 11), generator=torch.Generator().manual_seed(5))
    whole = collect(llama, four, [1])[1, "key"].reshape(4, 11, -1)
    found = calibrate(llama, four, [1], gradient_windows=2)
    np.testing.assert_array_equal(found.states[1, "key"].reshape(4, 11, -1), whole[[0, 2, 1, 3]])
    _, gradients = collect_gradients(llama, four[[0, 2]], [1])
    np.testing.assert_array_equal(found.gradients[1, "value"], gradients[1, "value"])
    one = calibrate(llama, four.flip(0), [1], gradient_windows=0)
    assert one.gradients == {}
    np.testing.assert_array_equal(one.states[1, "key"].reshape(4, 11, -1), whole[::-1])


def tiny(family, **options):
    import transformers

    sizes = {"vocab_size": 200, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "pad_token_id": 0}
    config = getattr(transformers, f"{family}Config")(**sizes, num_attention_heads=4, num_key_value_heads=2, **options)
    torch.manual_seed(2)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


@pytest.mark.parametrize("family", ["Apertus", "Exaone4", "Olmo2"])
def test_heads_lie_side_by_side_wherever_a_family_normalises_its_keys(family):
    model = tiny(family)
    states = collect(model, TOKENS, [1])[1, "key"]
    assert states.shape == (33, 16)
    held = cached(model, 1, "key")
    ours = states.reshape(3, 11, 2, 8).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=-1), np.linalg.norm(held, axis=-1), rtol=1e-4)


def test_families_that_normalise_keys_in_an_unknown_place_are_refused():
    with pytest.raises(InputError, match="nanochat"):
        collect(tiny("NanoChat"), TOKENS, [1])


def test_models_that_scale_their_logits_are_refused_where_losses_are_taken():
    model = tiny("Granite", logits_scaling=8.0)
    assert collect(model, TOKENS, [1])[1, "key"].shape == (33, 16)
    with pytest.raises(InputError, match="logits"):
        collect_gradients(model, TOKENS, [1])
    with pytest.raises(InputError, match="logits"):
        Evaluator(model, TOKENS, 1)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda model: collect(model, TOKENS[0], [1]), "windows, length"),
        (lambda model: collect(model, TOKENS, [2]), "from 0 to 1"),
        (lambda model: collect(model, TOKENS, []), "at least one"),
        (lambda model: collect(torch.nn.Linear(2, 2), TOKENS, [0]), "causal language model"),
        (lambda model: collect(model, TOKENS, 1), r"layers=1 must be a list"),
        (lambda model: collect(model, TOKENS + 10_000, [1]), "ids from 0"),
        (lambda model: gradient_norms([[1.0, 2.0, 3.0]], 2), "does not divide"),
        (lambda model: gradient_norms([["a"]], 1), "real numbers"),
        (lambda model: gradient_norms([[np.nan]], 1), "finite"),
    ],
)
def test_wrong_input_is_named(wrong, told, llama):
    with pytest.raises(InputError, match=told):
        wrong(llama)


def test_a_replacement_of_another_shape_or_at_an_unknown_place_is_refused(llama):
    cut = {(0, "key"): lambda rows: rows[:1]}
    with torch.no_grad(), replaced(llama, cut), pytest.raises(InputError, match="shape"):
        llama(TOKENS)
    with pytest.raises(InputError, match="did you mean 'value'"), replaced(llama, {(0, "values"): np.copy}):
        pass
