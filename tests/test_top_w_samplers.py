"""The samplers that Top-W is compared with: each keeps the set that its definition says, at each temperature."""

import numpy as np
import pytest
import torch

from icml26.errors import InputError
from icml26.top_w.decoder import TopWConfig, select
from icml26.top_w.geometry import Geometry
from icml26.top_w.samplers import (
    TOP_W_PAIRS,
    GreedyLogitsWarper,
    TopHEntropyLogitsWarper,
    TopNSigmaLogitsWarper,
    ablations,
    controls,
    grid,
    top_w,
    top_w_tuned,
)

ROWS, VOCABULARY = 6, 150
LOGITS = 2.5 * torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(1))
EMBEDDING = torch.randn(VOCABULARY, 6, generator=torch.Generator().manual_seed(2))
RIVALS = [sampler for settings in grid().values() for sampler in settings]


def processed(sampler, temperature, logits=LOGITS):
    """Logits after a sampler's processors."""
    for processor in sampler.processors(temperature):
        logits = processor(torch.zeros(len(logits), 1, dtype=torch.int64), logits)
    return logits


def kept(sampler, temperature, logits=LOGITS):
    """Which tokens a sampler keeps."""
    return processed(sampler, temperature, logits).isfinite().numpy()


def growing_set(p, order, enough):
    """The shortest beginning of an order that is enough."""
    chosen = []
    for token in order:
        chosen.append(token)
        if enough(chosen):
            break
    return set(chosen)


def entropy(p):
    """In nats."""
    return -sum(x * np.log(x) for x in p if x > 0)


def top_h_sums(p, order, alpha):
    """Top-H as released: partial sums over the 100 most probable, renormalised among themselves."""
    best = p[order[:100]] / p[order[:100]].sum()
    bound, total, size = alpha * entropy(best), 0.0, 0
    for x in best:
        total -= x * np.log(x)
        if total > bound:
            break
        size += 1
    return set(order[: max(size, 1)])


def top_h_entropy(p, order, alpha):
    """Top-H as its paper has it: the entropy of what is kept, renormalised."""
    size = 1
    while size < len(p):
        more = p[order[: size + 1]]
        if entropy(more / more.sum()) > alpha * entropy(p):
            break
        size += 1
    return set(order[:size])


def definition(name, value, z, temperature):
    """The set by the text of the definition, one row at a time, in float64."""
    p = np.exp(z / temperature - np.max(z / temperature))
    p /= p.sum()
    order = np.argsort(-p)
    if name == "top-k":
        return set(order[: int(value)])
    if name == "top-p":
        return growing_set(p, order, lambda chosen: p[chosen].sum() >= value)
    if name == "min-p":
        return set(np.flatnonzero(p >= value * p.max()))
    if name == "typical":
        by_surprise = np.argsort(np.abs(-np.log(p) - entropy(p)))
        return growing_set(p, by_surprise, lambda chosen: p[chosen].sum() >= value)
    if name == "epsilon":
        return set(np.flatnonzero(p >= value)) or {order[0]}
    if name == "eta":
        return set(np.flatnonzero(p >= min(value, np.sqrt(value) * np.exp(-entropy(p))))) or {order[0]}
    if name == "top-n-sigma":
        return set(np.flatnonzero(z >= z.max() - value * z.std(ddof=1)))
    return {"Top-H": top_h_sums, "Top-H, entropy": top_h_entropy}[name](p, order, value)


@pytest.mark.parametrize("sampler", RIVALS, ids=lambda sampler: f"{sampler.name}-{sampler.setting}")
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_every_rival_keeps_the_set_of_its_definition(sampler, temperature):
    found = kept(sampler, temperature)
    for mask, z in zip(found, LOGITS.double().numpy(), strict=True):
        assert set(np.flatnonzero(mask)) == definition(sampler.name, float(sampler.setting), z, temperature)


@pytest.mark.parametrize("sampler", [*RIVALS, *controls(VOCABULARY)[1:], top_w(Geometry(EMBEDDING))])
def test_what_is_kept_is_divided_by_the_temperature_once(sampler):
    found = processed(sampler, 2.0)
    torch.testing.assert_close(found[found.isfinite()], (LOGITS / 2)[found.isfinite()])


def test_every_rival_has_as_many_settings_as_the_tuned_top_w():
    assert {len(settings) for settings in grid().values()} == {len(TOP_W_PAIRS)} == {len(top_w_tuned(None))}
    assert TOP_W_PAIRS[0] == (TopWConfig().lam, TopWConfig().beta)


def test_names_and_settings_tell_all_samplers_apart():
    everything = [*RIVALS, *controls(5000), *top_w_tuned(None), top_w(None), *ablations(EMBEDDING, seed=0)]
    assert len({(sampler.name, sampler.setting) for sampler in everything}) == len(everything)


def test_top_n_sigma_keeps_the_same_set_at_every_temperature():
    sampler = grid()["top-n-sigma"][0]
    assert np.array_equal(kept(sampler, 0.3), kept(sampler, 3.0))


def test_top_n_sigma_leaves_excluded_entries_out_of_the_standard_deviation():
    shut = torch.cat([LOGITS, torch.full((ROWS, 40), -torch.inf)], 1)
    warper = TopNSigmaLogitsWarper(1.5)
    torch.testing.assert_close(warper(None, shut)[:, :VOCABULARY], warper(None, LOGITS))


def test_the_two_readings_of_top_h_differ():
    by_sums, by_entropy = (kept(grid()[name][1], 1.0) for name in ("Top-H", "Top-H, entropy"))
    assert not np.array_equal(by_sums, by_entropy)


def test_top_h_by_entropy_keeps_everything_at_one_and_one_token_of_a_sure_row():
    assert TopHEntropyLogitsWarper(1.0)(None, LOGITS).isfinite().all()
    sure = torch.tensor([[300.0, 0.0, -5.0]])
    assert TopHEntropyLogitsWarper(0.4)(None, sure).isfinite().tolist() == [[True, False, False]]


def test_greedy_keeps_the_first_of_equal_logits():
    assert GreedyLogitsWarper()(None, torch.tensor([[1.0, 3.0, 3.0, -torch.inf]])).isfinite().tolist() == [
        [False, True, False, False]
    ]


def test_the_pool_by_itself_is_a_control_only_where_it_cuts():
    assert [sampler.name for sampler in controls(1200)] == ["greedy", "temperature"]
    pool = controls(1201)[-1]
    logits = torch.randn(2, 1201, generator=torch.Generator().manual_seed(3))
    assert kept(pool, 2.0, logits).sum(1).tolist() == [1200, 1200]
    assert (pool.name, pool.setting) == ("pool only", "1200")


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_top_w_is_told_the_temperature(temperature):
    geometry, config = Geometry(EMBEDDING), TopWConfig(lam=0.3, beta=1.0, warm_p=0.3)
    sampler = top_w(geometry, config)
    expected = select(LOGITS, geometry, config, temperature).kept.numpy()
    assert np.array_equal(kept(sampler, temperature), expected)
    assert not np.array_equal(kept(sampler, 0.5), kept(sampler, 2.0))


def test_each_ablation_changes_the_set_in_a_regime_where_geometry_acts():
    config = TopWConfig(lam=0.3, beta=1.0, geom_scale=1.0, warm_p=0.2)
    logits = 2.5 * torch.randn(24, VOCABULARY, generator=torch.Generator().manual_seed(1))
    true = kept(top_w(Geometry(EMBEDDING), config), 1.0, logits)
    changed = {sampler.name: kept(sampler, 1.0, logits) for sampler in ablations(EMBEDDING, config, seed=0)}
    assert all(not np.array_equal(true, other) for other in changed.values())
    without = kept(top_w(None, config), 1.0, logits)
    assert np.array_equal(changed["no geometry"], without)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: TopNSigmaLogitsWarper(0), "n=0"),
        (lambda: TopHEntropyLogitsWarper(1.5), "alpha=1.5"),
        (lambda: grid()["top-p"][0].processors(0), "temperature=0"),
        (lambda: top_w(None).processors(float("nan")), "temperature=nan"),
        (lambda: controls(True), "vocabulary=True"),
        (lambda: ablations(EMBEDDING, seed=-1), "seed=-1"),
    ],
)
def test_wrong_input_is_refused_by_name(call, names):
    with pytest.raises(InputError, match=names):
        call()
