"""The decoder against a loop over tokens and rounds, its exact shortcut, and what must not change what is kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26.errors import InputError
from icml26.top_w import decoder
from icml26.top_w.core import objective, s_step
from icml26.top_w.decoder import TopWConfig, alternate, select
from icml26.top_w.geometry import Geometry
from icml26.top_w.optimum import brute_force
from icml26.top_w.pool import pool, warm_start

SEEDS = st.integers(0, 2**32 - 1)
LOOP = TopWConfig(fast_path=False)
ACTING = TopWConfig(lam=0.3, beta=1.0, geom_scale=1.0, warm_p=0.3, fast_path=False)


def whitened_by_hand(table):
    mean, variance = table.mean(0), ((table - table.mean(0)) ** 2).mean(0)
    return (table - mean) / np.sqrt(np.maximum(variance, 1e-6))


def distance_by_hand(u, v, metric):
    if metric == "euclidean":
        return np.sqrt(((u - v) ** 2).sum() / (2 * len(u)))
    unit = [x / max(np.sqrt((x * x).sum()), 1e-12) for x in (u, v)]
    cosine = min(max((unit[0] * unit[1]).sum(), -1), 1)
    return 1 - cosine if metric == "cosine" else np.sqrt(2 - 2 * cosine)


def top_w_by_hand(logits, table, config, temperature=1.0, permutation=None):
    """The paper's procedure for one row, token by token: kept ids, rounds, whether a round confirmed its set."""
    if table is not None:
        u = whitened_by_hand(np.asarray(table, float))
        u = u if permutation is None else u[permutation]
        d = [
            [0.0 if i == j else distance_by_hand(a, b, config.metric) for j, b in enumerate(u)] for i, a in enumerate(u)
        ]
    z = np.asarray(logits, float) / temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    ids = [i for i in sorted(range(len(p)), key=lambda i: (-logits[i], i)) if p[i] > 0][: config.top_m]
    mass, kept = 0.0, []
    for i in ids:  # the warm start
        kept.append(i)
        mass += p[i]
        if mass >= config.warm_p * sum(p[j] for j in ids):
            break
    for number in range(1, config.max_rounds + 1):
        f = {}
        for i in ids:
            f[i] = 0.0
            if table is not None and config.geom_scale:
                reach = sorted(d[i][j] for j in kept)
                f[i] = config.geom_scale * config.sign * np.mean(reach[: config.neighbours])
        if config.beta < config.lam:
            new = [max(ids, key=lambda i: f[i] + config.beta * np.log(max(p[i], 1e-12)))]
        else:
            score = {i: f[i] + config.lam * np.log(max(p[i], 1e-12)) for i in ids}
            order = sorted(ids, key=lambda i: -score[i])
            best, new, mass, mean = -np.inf, [], 0.0, 0.0
            for k, i in enumerate(order, start=1):
                mass, mean = mass + p[i], mean + p[i] * score[i]
                value = mean / mass + (config.beta - config.lam) * np.log(mass)
                if value > best:
                    best, new = value, order[:k]
        if set(new) == set(kept):
            return set(kept), number, True
        kept = new
    return set(kept), config.max_rounds, False


def case(seed, tokens=None, width=6):
    """Logits and embeddings of several kinds."""
    rng = np.random.default_rng(seed)
    tokens = tokens or int(rng.choice([2, 5, 20, 40]))
    if rng.random() < 0.5:
        logits = rng.standard_normal(tokens) * rng.choice([0.1, 1, 3])
    else:
        logits = -rng.choice([1.0, 1.5]) * np.log(rng.permutation(tokens) + 1.0) + 0.01 * rng.standard_normal(tokens)
    centres = rng.standard_normal((4, width))
    table = centres[rng.integers(0, 4, tokens)] + rng.choice([0.1, 1.0]) * rng.standard_normal((tokens, width))
    return torch.tensor(logits), torch.tensor(table, dtype=torch.float32)


def ids_of(selection, row=0):
    return set(selection.kept[row].nonzero().flatten().tolist())


CONFIGS = {
    "release": LOOP,
    "acting": ACTING,
    "one neighbour more": replace(ACTING, neighbours=2),
    "five neighbours": replace(ACTING, neighbours=5, warm_p=0.9),
    "plus": replace(ACTING, sign=1),
    "plus, release": replace(LOOP, sign=1),
    "chord": replace(ACTING, metric="chord", warm_p=0.1),
    "euclidean": replace(ACTING, metric="euclidean", geom_scale=0.4),
    "singletons": replace(ACTING, lam=2.0, beta=0.5),
    "no entropy": replace(ACTING, lam=0.0, beta=0.3),
    "small pool": replace(ACTING, top_m=4, warm_p=0.6),
    "two rounds": replace(ACTING, max_rounds=2),
    "one round": replace(ACTING, max_rounds=1),
    "no geometry": replace(LOOP, geom_scale=0.0),
    "no geometry, acting": replace(ACTING, geom_scale=0.0, max_rounds=1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_decoder_keeps_what_the_procedure_keeps_token_by_token(name):
    config = CONFIGS[name]
    for seed in range(15):
        logits, table = case(seed)
        temperature = (0.5, 1.0, 2.0)[seed % 3]
        found = select(logits[None], Geometry(table, config.metric), config, temperature)
        expected = top_w_by_hand(logits.numpy(), table.numpy(), config, temperature)
        assert (ids_of(found), int(found.rounds), bool(found.converged)) == expected, seed


def test_without_embeddings_the_rule_is_entropy_and_mass_alone():
    for seed in range(20):
        logits, table = case(seed)
        for config in (LOOP, ACTING):
            found = select(logits[None], None, config)
            assert (ids_of(found), int(found.rounds), bool(found.converged)) == top_w_by_hand(logits, None, config)
            no_weight = select(logits[None], Geometry(table), replace(config, geom_scale=0))
            assert all(torch.equal(a, b) for a, b in zip(found, no_weight, strict=True))


@pytest.mark.parametrize(
    "config",
    [
        LOOP,
        ACTING,
        replace(ACTING, warm_p=0.9),
        replace(LOOP, lam=2, beta=0.5),
        replace(LOOP, max_rounds=1, warm_p=0.5),
    ],
    ids=["release", "small warm start", "warm start of .9", "singletons", "one round"],
)
def test_the_exact_shortcut_changes_nothing_that_select_returns(config):
    for tokens in (3, 30, 300):
        logits, tables = zip(*(case(seed, tokens) for seed in range(40)), strict=True)
        geometry, temperature = Geometry(tables[0]), 1.5
        slow = select(torch.stack(logits), geometry, config, temperature)
        fast = select(torch.stack(logits), geometry, replace(config, fast_path=True), temperature)
        assert all(torch.equal(a, b) for a, b in zip(slow, fast, strict=True))


def test_the_shortcut_computes_distances_only_for_rows_whose_warm_start_lacks_a_token(monkeypatch):
    flat, peaked = torch.zeros(40).double(), case(1, 40)[0] * 3
    geometry = Geometry(case(1, 40)[1])
    asked = []
    plain = geometry.distances
    monkeypatch.setattr(geometry, "distances", lambda ids: asked.append(len(ids)) or plain(ids))
    config = replace(LOOP, warm_p=0.5, fast_path=True)
    found = select(torch.stack([peaked, flat, peaked]), geometry, config)
    assert sum(asked) == 1
    expected = [ids_of(select(row[None], geometry, replace(config, fast_path=False))) for row in (peaked, flat, peaked)]
    assert [ids_of(found, i) for i in range(3)] == expected


def test_the_released_result_does_not_depend_on_embeddings_if_the_warm_start_holds_it():
    for seed in range(60):
        logits, table = case(seed, 40)
        ids, p = pool(logits[None], 1.3, 1200)
        free = select(logits[None], None, LOOP, 1.3)
        found = select(logits[None], Geometry(table), LOOP, 1.3)
        if not (free.kept.gather(1, ids) & ~warm_start(p, 0.999)).any():
            assert torch.equal(found.kept, free.kept)
            assert found.rounds <= 2


def test_the_geometry_acts_when_the_start_is_small():
    changed = 0
    for seed in range(12):
        logits, table = case(seed, 40)
        order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
        true, permuted = (select(logits[None], Geometry(table, permutation=o), ACTING).kept for o in (None, order))
        expected = top_w_by_hand(logits.numpy(), table.numpy(), ACTING, permutation=order.numpy())[0]
        assert set(permuted[0].nonzero().flatten().tolist()) == expected
        changed += not torch.equal(true, permuted)
    assert changed >= 3


def test_at_the_defaults_a_peaked_row_keeps_one_token_and_a_flat_row_all():
    logits = torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05], [0.2] * 5]).log()
    assert select(logits, None).kept.sum(1).tolist() == [1, 5]
    zipf = -1.5 * torch.arange(1, 2001).log()
    zipf[0] += 1
    for temperature in (0.5, 0.7, 1.0, 1.5, 2.0):
        assert select(zipf[None], None, LOOP, temperature).kept.sum() == 1


def test_a_uniform_metric_keeps_the_most_probable_tokens():
    for seed in range(20):
        logits, _ = case(seed, 30)
        kept = select(logits[None], Geometry(torch.eye(30)), ACTING).kept[0]
        size = int(kept.sum())
        assert kept[logits.argsort(descending=True)[:size]].all()


def test_a_second_call_keeps_the_set_when_its_warm_start_holds_it():
    for seed in range(20):
        logits, table = case(seed, 30)
        for config in (LOOP, replace(LOOP, lam=0.3, beta=1.0, warm_p=1.0)):
            once = select(logits[None], Geometry(table), config)
            if not torch.equal(once.kept, select(logits[None], None, config).kept):
                continue
            masked = logits[None].masked_fill(~once.kept, -torch.inf)
            ids, p = pool(masked, 1.0, config.top_m)
            if (once.kept.gather(1, ids) & ~warm_start(p, config.warm_p)).any():
                continue
            assert torch.equal(select(masked, Geometry(table), config).kept, once.kept)


def test_a_second_call_may_keep_fewer_where_the_geometry_acts():
    changed = 0
    for seed in range(40):
        logits, table = case(seed, 30)
        once = select(logits[None], Geometry(table), ACTING).kept
        masked = logits[None].masked_fill(~once, -torch.inf)
        changed += not torch.equal(select(masked, Geometry(table), ACTING).kept, once)
    assert changed


def test_alternation_is_no_better_than_the_true_optimum():
    for seed in range(4):
        logits, table = case(seed, 6)
        ids, p = pool(logits[None], 1.0, 6)
        distances = Geometry(table).distances(ids)
        kept = alternate(p, distances, ACTING).kept[0].numpy()
        cost = distances[0].double().numpy()
        best = brute_force(p[0].numpy(), cost, 0.3, 1.0)[1]
        assert objective(p[0].numpy(), kept, cost, 0.3, 1.0) >= best - 1e-9


@given(SEEDS, st.sampled_from(sorted(CONFIGS)), st.floats(-50, 50), st.sampled_from([0.5, 1.0, 2.0]))
@settings(max_examples=30)
def test_something_is_kept_and_neither_constants_nor_the_order_of_tokens_matter(seed, name, constant, temperature):
    config = CONFIGS[name]
    logits, table = case(seed, 20)
    found = select(logits[None], Geometry(table, config.metric), config, temperature)
    assert found.kept.any()
    shifted = select(logits[None] + constant, Geometry(table, config.metric), config, temperature)
    assert torch.equal(shifted.kept, found.kept)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(seed % 1000))
    moved = select(logits[order][None], Geometry(table[order], config.metric), config, temperature)
    assert torch.equal(moved.kept, found.kept[:, order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["release", "acting", "plus", "singletons"])
def test_a_batch_of_any_dtype_gives_what_its_rows_give_alone(dtype, name, monkeypatch):
    monkeypatch.setattr(decoder, "_LOGITS", 40 * 3)  # several passes over the batch, and over its distances
    monkeypatch.setattr(decoder, "_DISTANCES", 40 * 40 * 2)
    config = CONFIGS[name]
    logits = torch.stack([case(seed, 40)[0] for seed in range(8)]).to(dtype)
    geometry = Geometry(case(0, 40)[1].to(dtype), config.metric)
    whole = select(logits, geometry, config, 1.5)
    assert whole.kept.shape == (8, 40)
    assert whole.rounds.shape == whole.converged.shape == (8,)
    for i, row in enumerate(logits):
        alone = select(row[None], geometry, config, 1.5)
        assert all(torch.equal(a[0], b[i]) for a, b in zip(alone, whole, strict=True))
        assert ids_of(alone) == top_w_by_hand(row.double().numpy(), geometry.embedding.double().numpy(), config, 1.5)[0]


def test_an_empty_batch_gives_an_empty_selection():
    found = select(torch.zeros(0, 7), Geometry(torch.eye(7)), LOOP)
    assert [tuple(part.shape) for part in found] == [(0, 7), (0,), (0,)]


def test_excluded_tokens_are_outside_the_pool_and_never_kept():
    logits, table = case(3, 40)
    excluded = torch.arange(40) % 3 == 0
    masked = logits.masked_fill(excluded, -torch.inf)[None]
    for config in CONFIGS.values():
        found = select(masked, Geometry(table, config.metric), config).kept[0]
        assert not found[excluded].any()
        assert set(found.nonzero().flatten().tolist()) == top_w_by_hand(masked[0], table.numpy(), config)[0]
    one = torch.full((2, 40), -torch.inf)
    one[0, 5], one[1, 6:8] = 0.0, torch.tensor([0.0, -0.1])
    assert select(one, Geometry(table), LOOP).kept.nonzero()[0].tolist() == [0, 5]
    p = pool(masked, 1.0, 1200).p
    assert (p > 0).sum() == (~excluded).sum()
    assert p.sum() == pytest.approx(1, abs=1e-6)


def test_equal_logits_enter_the_pool_in_the_order_of_their_ids():
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.integers(0, 6, (50, 300)), dtype=torch.float32)
    logits[0] = 0
    logits[1, :200] = -torch.inf
    for size in (1, 7, 120, 300):
        ids = pool(logits, 1.0, size).ids
        expected = (-logits).sort(dim=-1, stable=True).indices[:, :size]
        finite = logits.gather(1, expected).isfinite()
        assert torch.equal(ids[finite], expected[finite])
    assert select(logits[:1], None, replace(LOOP, top_m=3)).kept[0].nonzero().flatten().tolist() == [0, 1, 2]


def test_probabilities_of_the_pool_are_those_of_the_whole_vocabulary():
    logits = torch.stack([case(seed, 300)[0] for seed in range(3)])
    for dtype, error in ((torch.float64, 1e-6), (torch.float32, 1e-6)):
        ids, p = pool(logits.to(dtype), 0.7, 50)
        torch.testing.assert_close(p, (logits / 0.7).softmax(-1).gather(1, ids), rtol=error * 5, atol=0)
        assert (p.diff(dim=1) <= 0).all()


@pytest.mark.parametrize("share", [0.001, 0.3, 0.5, 0.875, 0.999, 1.0])
def test_the_warm_start_is_the_smallest_prefix_with_its_share(share):
    p = torch.tensor([[0.5, 0.25, 0.125, 0.0625], [0.4, 0.4, 0.0, 0.0]], dtype=torch.float64)
    for row, kept in zip(p, warm_start(p, share), strict=True):
        size = int(np.searchsorted(row.cumsum(0).numpy(), share * float(row.sum()))) + 1
        assert kept.tolist() == [i < size for i in range(4)]


def test_statistics_are_those_of_the_whole_table_with_the_population_variance():
    table = torch.randn(50, 5, generator=torch.Generator().manual_seed(0)) * 3 + 1
    table[:, 4] = 2.0  # a column without variance is left at the floor
    geometry = Geometry(table)
    torch.testing.assert_close(geometry.mean, table.mean(0))
    torch.testing.assert_close(geometry.scale[:4], 1 / table[:, :4].std(0, correction=0))
    assert geometry.scale[4] == pytest.approx(1e3)
    np.testing.assert_allclose(geometry.rows(torch.tensor([3, 1])), whitened_by_hand(table.numpy())[[3, 1]], atol=1e-4)


@pytest.mark.parametrize("metric", ["cosine", "chord", "euclidean"])
def test_distances_are_those_of_whitened_rows(metric):
    table = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    ids = torch.tensor([[3, 8, 9], [0, 3, 1]])
    found = Geometry(table, metric).distances(ids)
    rows = whitened_by_hand(table.double().numpy())
    expected = [[[distance_by_hand(rows[i], rows[j], metric) for j in row] for i in row] for row in ids.tolist()]
    np.testing.assert_allclose(found, expected, atol=2e-3 if metric == "chord" else 1e-5)
    assert found.diagonal(dim1=1, dim2=2).eq(0).all()
    assert (found >= 0).all()


def test_the_table_stays_a_view_and_only_the_rows_asked_for_are_whitened():
    layer = torch.nn.Embedding(20, 4, dtype=torch.bfloat16)
    geometry = Geometry(layer)
    assert geometry.embedding.data_ptr() == layer.weight.data_ptr()
    assert geometry.embedding.dtype == torch.bfloat16
    assert not geometry.embedding.requires_grad
    assert geometry.rows(torch.tensor([1, 2, 3])).dtype == torch.float32
    assert (len(geometry), repr(geometry)) == (20, "Geometry(20 x 4, metric='cosine')")


def test_rows_of_zeros_and_a_table_of_equal_rows_give_finite_distances():
    table = torch.randn(9, 4)
    table[:3] = 0
    for metric in ("cosine", "chord", "euclidean"):
        assert Geometry(table, metric).distances(torch.arange(9)).isfinite().all()
        assert Geometry(torch.ones(9, 4), metric).distances(torch.arange(9)).isfinite().all()


Z, G = torch.zeros(2, 3), Geometry(torch.eye(3))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: select(Z[0], None), "logits"),
        (lambda: select(Z.long(), None), "logits"),
        (lambda: select(Z.numpy(), None), "ndarray"),
        (lambda: select(torch.zeros(1, 4), G), "4 tokens and the embedding 3 rows"),
        (lambda: select(torch.zeros(1, 2), G), "2 tokens and the embedding 3 rows"),
        (lambda: select(Z, G, TopWConfig(metric="chord")), "metric='chord'"),
        (lambda: select(torch.tensor([[0.0, 1], [0, torch.nan]]), None), "NaN in row 1"),
        (lambda: select(torch.tensor([[0.0, torch.inf]]), None), r"\+inf in row 0"),
        (lambda: select(torch.tensor([[0.0, 1], [-torch.inf, -torch.inf]]), None), "nothing but -inf in row 1"),
        (lambda: select(Z, None, None, 0.0), "temperature=0"),
        (lambda: select(Z, None, None, None), "temperature=None"),
        (lambda: TopWConfig(lam=-1), "lam=-1"),
        (lambda: TopWConfig(beta=float("nan")), "beta=nan"),
        (lambda: TopWConfig(geom_scale="1"), "geom_scale='1'"),
        (lambda: TopWConfig(top_m=0), "top_m=0"),
        (lambda: TopWConfig(max_rounds=True), "max_rounds=True"),
        (lambda: TopWConfig(warm_p=0), "warm_p=0"),
        (lambda: TopWConfig(warm_p=1.1), "warm_p=1.1"),
        (lambda: TopWConfig(metric="cosin"), "did you mean 'cosine'"),
        (lambda: TopWConfig(sign=0), "sign=0"),
        (lambda: TopWConfig(neighbours=0), "neighbours=0"),
        (lambda: TopWConfig(fast_path=1), "fast_path=1"),
        (lambda: Geometry(torch.zeros(3)), "embedding"),
        (lambda: Geometry([[1.0]]), "list"),
        (lambda: Geometry(torch.zeros(3, 2).long()), "embedding"),
        (lambda: Geometry(torch.full((3, 2), torch.nan)), "NaN"),
        (lambda: Geometry(torch.eye(3), permutation=torch.tensor([0, 1, 1])), "permutation"),
        (lambda: Geometry(torch.eye(3), permutation=torch.arange(4)), "permutation"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(call, says):
    with pytest.raises(InputError, match=says) as error:
        call()
    assert "\n" not in str(error.value)


def test_the_s_step_of_the_decoder_is_that_of_the_theory():
    p = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
    distances = torch.tensor([[[0, 0.1, 2.0], [0.1, 0, 2.0], [2.0, 2.0, 0]]])
    once = alternate(p, distances, replace(ACTING, max_rounds=1))
    f = -distances[0, 0].double()  # the warm start is the first token
    assert torch.equal(once.kept[0], s_step(p[0], f, 0.3, 1.0))
    assert once.kept[0].tolist() == [True, True, False]


def test_a_temperature_beyond_float32_keeps_excluded_tokens_out():
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 0.5]])
    assert select(logits, None, temperature=1e39).kept.tolist() == [[True, True, False, True]]
