"""Plans keep their limits, are as good as brute force, and get no worse when a limit is raised."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml26.errors import InputError
from icml26.nqs import law
from icml26.nqs.planning import frontier, plan

LIMITS = ("compute", "tokens", "steps", "max_parameters", "max_batch")


def bounded(X):
    """A law in which every size has its price: large batches waste tokens, many steps saturate."""
    N, B, K = X.T
    return 1.7 + 400 / N**0.35 + 900 / (128 * B * K) ** 0.35 + 3e-5 * B + 40 / K**0.8


def system(X):
    return law.loss(law.RELEASED, *X.T).total


def tokens_only(X):
    return 1.7 + 400 / X[:, 0] ** 0.35 + 900 / (128 * X[:, 1] * X[:, 2]) ** 0.35


@st.composite
def limits(draw):
    exponents = {"compute": (5, 21), "tokens": (3, 12), "steps": (0, 6), "max_parameters": (1, 10), "max_batch": (0, 5)}
    found = {name: 10 ** draw(st.floats(*ends)) for name, ends in exponents.items() if draw(st.booleans())}
    if not {"compute", "max_parameters"} & found.keys():
        found["max_parameters"] = 10 ** draw(st.floats(1, 10))
    if not {"compute", "tokens"} & found.keys() and not {"steps", "max_batch"} <= found.keys():
        found["tokens"] = 10 ** draw(st.floats(3, 12))
    return found


def brute_force(
    predict, *, compute=math.inf, tokens=math.inf, steps=math.inf, max_parameters=math.inf, max_batch=math.inf
):
    """The least loss over a fine grid of whole numbers, with K as large as may be or at shares of that."""
    best = math.inf
    for N in np.unique(np.floor(np.geomspace(1, math.floor(min(max_parameters, compute / 768)), 60))):
        most = math.floor(min(max_batch, tokens / 128, compute / (768 * N)))
        B = np.unique(np.floor(np.geomspace(1, max(most, 1), 60)))
        K = np.floor(np.minimum(steps, np.minimum(tokens / (128 * B), compute / (768 * N * B))))
        if most < 1 or (K < 1).all():
            continue
        for share in (1, 0.97, 0.9, 0.8, 0.5):
            whole = np.maximum(np.floor(K**share), 1)
            best = min(best, predict(np.stack([np.full_like(B, N), B, whole], 1)[K >= 1]).min())
    return best


@settings(max_examples=40)
@given(limits())
def test_no_plan_exceeds_a_limit_and_what_it_uses_up_is_named(given_limits):
    found = plan(bounded, **given_limits)
    uses = (6 * found.N * 128 * found.B * found.K, 128 * found.B * found.K, found.K, found.N, found.B)
    for name, use in zip(LIMITS, uses, strict=True):
        if name in given_limits:
            assert use <= given_limits[name]
        assert name not in found.binding or name in given_limits
    assert all(isinstance(size, int) and size >= 1 for size in found[:3])
    assert (found.tokens, found.compute) == (uses[1], float(uses[0]))
    assert found.loss == bounded(np.array([found[:3]], dtype=float))[0]


@settings(max_examples=12)
@given(limits(), st.sampled_from([bounded, system]))
def test_no_point_of_a_fine_grid_is_better(given_limits, predict):
    assert plan(predict, **given_limits).loss <= brute_force(predict, **given_limits) * (1 + 2e-4)


@settings(max_examples=25)
@given(limits(), st.data())
def test_raising_a_limit_never_costs_loss(given_limits, choose):
    name = choose.draw(st.sampled_from(sorted(given_limits)))
    raised = {**given_limits, name: given_limits[name] * choose.draw(st.floats(1, 100))}
    lifted = {each: limit for each, limit in raised.items() if each != name}
    before = plan(bounded, **given_limits).loss
    assert plan(bounded, **raised).loss <= before * (1 + 2e-4)
    if "compute" in lifted:
        assert plan(bounded, **lifted).loss <= before * (1 + 2e-4)


def test_the_optimum_of_chinchillas_law_is_hoffmanns_closed_form():
    # Setting the derivative along 6 N D = C to zero: N = (alpha A / (beta B))^(1 / (alpha + beta)) (C / 6)^(...).
    C, A, B, alpha, beta = 1e20, 400, 900, 0.34, 0.28
    found = plan(lambda X: 1.7 + A / X[:, 0] ** alpha + B / (128 * X[:, 1] * X[:, 2]) ** beta, compute=C)
    N = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (C / 6) ** (beta / (alpha + beta))
    assert math.isclose(found.N, N, rel_tol=0.01)
    assert found.compute == pytest.approx(C, rel=1e-5)
    assert found.binding == ("compute",)


def test_a_law_that_ignores_the_batch_takes_the_fewest_steps_and_the_system_does_not():
    free, capped = (plan(tokens_only, compute=1e19, max_batch=most) for most in (None, 512))
    assert free.K < 10
    assert 500 < capped.B <= 512
    assert capped.loss == pytest.approx(free.loss, rel=1e-5)
    noisy = plan(system, compute=1e19)
    assert 50 < noisy.B < 5000
    assert noisy.K > 1000


def test_a_time_limit_makes_the_system_choose_larger_batches():
    found = [plan(system, compute=1e19, steps=steps) for steps in (None, 20_000, 5_000)]
    assert found[0].B < found[1].B < found[2].B
    assert [each.binding for each in found] == [("compute",), ("compute", "steps"), ("compute", "steps")]


def test_a_frontier_is_the_plans_of_its_budgets():
    budgets = np.geomspace(1e15, 1e20, 4)
    path = frontier(system, compute=budgets, steps=20_000)
    for budget, row in zip(budgets, path.itertuples(), strict=True):
        alone = plan(system, compute=budget, steps=20_000)
        assert (row.budget, row.loss) == (budget, pytest.approx(alone.loss, rel=1e-6))
        assert row.compute <= budget
    assert path["loss"].is_monotonic_decreasing
    assert path["N"].is_monotonic_increasing


def test_the_smallest_sizes_are_kept():
    free, found = plan(bounded, compute=1e15), plan(bounded, compute=1e15, smallest=(10**7, 256, 50))
    assert (found.N, found.B, found.K) >= (10**7, 256, 50)
    assert found.loss >= free.loss
    only = plan(bounded, compute=768 * 7 * 11 * 13, smallest=(7, 11, 13))
    assert only[:3] == (7, 11, 13), "a budget for exactly one configuration"
    assert plan(bounded, compute=768 * 7 * 11 * 13, smallest=np.array([7, 11, 13])) == only


def test_the_largest_limit_that_is_allowed_is_planned_for():
    assert plan(system, compute=10**60) == plan(system, compute=1e60)
    assert plan(system, compute=1e60).compute <= 1e60


def test_longer_sequences_are_counted():
    found = plan(bounded, compute=1e18, sequence_length=2048)
    assert found.tokens == 2048 * found.B * found.K
    assert found.compute == 6 * found.N * found.tokens <= 1e18


@pytest.mark.parametrize(
    ("given_limits", "message"),
    [
        ({"compute": 700}, r"compute=700 excludes even smallest=\(1, 1, 1\), which takes 768; raise it"),
        ({"compute": 1e9, "tokens": 100}, "tokens=100 excludes even"),
        ({"compute": 1e9, "steps": 0.5}, "steps=0.5 excludes even"),
        ({"compute": 1e9, "max_parameters": 5, "smallest": (10, 1, 1)}, "max_parameters=5 excludes even"),
        ({"tokens": 1e9}, "leave the model size unbounded; give compute or max_parameters"),
        ({"max_parameters": 1e9, "steps": 10}, "leave the tokens unbounded"),
        ({}, "leave the model size unbounded"),
        ({"compute": -1}, "compute=-1 must be a positive number"),
        ({"compute": math.nan}, "compute=nan must be a positive number"),
        ({"compute": True}, "compute=True must be a positive number"),
        ({"compute": 1e9, "steps": "many"}, "steps='many' must be"),
        ({"compute": 1e9, "steps": [1, 2]}, r"steps=\[1, 2\] must be a positive number"),
        ({"compute": []}, r"compute=\[\] must be a positive number"),
        ({"compute": [1e18, 1e19]}, "compute=.* must be a positive number"),
        ({"compute": 1e300}, "compute=1e.300 must be a positive number of at most 1e"),
        ({"compute": 1e9, "smallest": (1, 0, 1)}, "smallest=0 must be an integer of at least 1"),
        ({"compute": 1e9, "smallest": 3}, "smallest=3 must give"),
        ({"compute": 1e9, "sequence_length": 1.5}, "sequence_length=1.5 must be an integer"),
    ],
)
def test_limits_that_allow_nothing_or_too_much_are_refused_in_one_line(given_limits, message):
    with pytest.raises(InputError, match=message) as error:
        plan(bounded, **given_limits)
    assert "\n" not in str(error.value)


def test_models_and_budgets_that_are_none_are_refused():
    with pytest.raises(InputError, match="predict=None must map"):
        plan(None, compute=1e9)
    for wrong in (lambda X: 1.0, lambda X: np.full(len(X), math.nan)):
        with pytest.raises(InputError, match="predict gave shape"):
            plan(wrong, compute=1e9)
    with pytest.raises(InputError, match=r"predict\(X\)=.* must be one loss for each row"):
        plan(lambda X: ["low"] * len(X), compute=1e9)
    for budgets in ([], [[1e9], [1e9, 2e9]], 1e9, [1e9, -1], ["much"]):
        with pytest.raises(InputError, match=r"compute=.* must be"):
            frontier(bounded, compute=budgets)
