"""The samplers that Top-W is compared with, each as the logits processors of one temperature.

Top-W is Gholami Davoodi et al., ICML 2026, arXiv 2602.10346. The rivals are `transformers`' own warpers: top-k, top-p,
min-p, locally typical, epsilon and eta sampling, and Top-H (Baghaei Potraghloo et al., arXiv 2509.02510). Missing there
and written here: top-n-sigma (Tang et al., arXiv 2411.07641), greedy choice, and Top-H as its paper states it.

Order, as `generate` has it: every built-in warper comes after the temperature, so that what depends on probabilities
(top-p, min-p, typical, epsilon, eta, both of Top-H) sees those at the temperature; top-k is indifferent. Top-n-sigma
and Top-W read raw logits and come before it: the former keeps the same set at every temperature, the latter is told the
temperature. Top-W's own rules are in `icml26.top_w.decoder`; drawing tokens is `icml26.generation`'s business.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers import LogitsProcessor
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from icml26.checks import real, whole
from icml26.top_w.decoder import TopWConfig
from icml26.top_w.geometry import Geometry
from icml26.top_w.warper import TopWLogitsWarper

__all__ = [
    "TOP_W_PAIRS",
    "GreedyLogitsWarper",
    "Sampler",
    "TopHEntropyLogitsWarper",
    "TopNSigmaLogitsWarper",
    "ablations",
    "controls",
    "grid",
    "top_w",
    "top_w_tuned",
]

# (lam, beta) from which the tuned Top-W is chosen: the release, more reward of mass, less weight of entropy as well.
TOP_W_PAIRS = ((2.2, 2.8), (2.2, 4.0), (1.0, 2.0))

_Make = Callable[[float], LogitsProcessor]


class TopNSigmaLogitsWarper(LogitsProcessor):
    """Top-n-sigma: keep logits of at least ``max - n * std``, over the entries that are not -inf.

    Being relative to the logits' own spread, the set is the same at every temperature.

    Parameters
    ----------
    n : float
        Standard deviations (divisor: entries less one, torch's default) below the largest logit.

    Raises
    ------
    InputError
        If `n` is not positive.

    Examples
    --------
    >>> TopNSigmaLogitsWarper(1.0)(None, torch.tensor([[0.0, 3.0, 2.5, -torch.inf]]))
    tensor([[  -inf, 3.0000, 2.5000,   -inf]])
    """

    def __init__(self, n: float) -> None:
        self.n = real("n", n, above=0)

    def __call__(
        self, input_ids: Int64[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocabulary"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Set what lies lower to -inf."""
        finite = scores.isfinite()
        count = finite.sum(-1, keepdim=True)
        known = scores.masked_fill(~finite, 0.0)
        mean = known.sum(-1, keepdim=True) / count
        square = ((known - mean).masked_fill(~finite, 0.0) ** 2).sum(-1, keepdim=True)
        spread = (square / (count - 1).clamp(min=1)).sqrt()
        return scores.masked_fill(scores < scores.amax(-1, keepdim=True) - self.n * spread, -torch.inf)


class TopHEntropyLogitsWarper(LogitsProcessor):
    """Top-H as its paper states it: the most mass whose renormalised entropy is at most ``alpha * H(p)``.

    Taken greedily in order of probability. The entropy of a renormalised prefix grows with every token, so the greedy
    set is the longest prefix within the bound. `transformers.TopHLogitsWarper`, like the official code, instead sums
    ``-p log p`` without renormalising, over the 100 most probable tokens.

    Parameters
    ----------
    alpha : float
        Share of the entropy that is kept, in (0, 1]; the paper's is 0.4.

    Raises
    ------
    InputError
        If `alpha` is out of range.

    Examples
    --------
    >>> TopHEntropyLogitsWarper(0.4)(None, torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()).isfinite()
    tensor([[ True, False, False, False]])
    """

    def __init__(self, alpha: float = 0.4) -> None:
        self.alpha = real("alpha", alpha, above=0, high=1)

    def __call__(
        self, input_ids: Int64[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocabulary"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Set the tokens behind the prefix to -inf."""
        ordered, order = scores.sort(dim=-1, descending=True, stable=True)
        p = ordered.double().softmax(-1)
        mass = p.cumsum(-1)
        # H of the first k, renormalised: log(mass) - sum(p log p) / mass.
        entropy = mass.log() - torch.special.xlogy(p, p).cumsum(-1) / mass
        dropped = (entropy > self.alpha * entropy[..., -1:]).cummax(-1).values
        dropped[..., 0] = False
        return scores.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)


class GreedyLogitsWarper(LogitsProcessor):
    """Keep the largest logit alone, the first of equal ones.

    Examples
    --------
    >>> GreedyLogitsWarper()(None, torch.tensor([[1.0, 2.0, 2.0]]))
    tensor([[-inf, 2., -inf]])
    """

    def __call__(
        self, input_ids: Int64[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocabulary"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Set all others to -inf."""
        best = scores.argmax(-1, keepdim=True)
        return torch.full_like(scores, -torch.inf).scatter(-1, best, scores.gather(-1, best))


@dataclasses.dataclass(frozen=True)
class Sampler:
    """A truncation rule with one setting, for any temperature.

    Parameters
    ----------
    name, setting : str
        As tables name it: ``"top-p"``, ``"0.9"``.
    make : callable
        ``make(temperature)`` gives the processors that turn raw logits into those to sample from at temperature 1.
    deterministic : bool
        Whether one token is kept whatever the logits and the temperature.
    by_token : bool
        Whether the rule asks which token has which logit, as a geometry does.

    Examples
    --------
    >>> [type(step).__name__ for step in grid()["top-p"][0].processors(2.0)]
    ['TemperatureLogitsWarper', 'TopPLogitsWarper']
    """

    name: str
    setting: str
    make: Callable[[float], list[LogitsProcessor]] = dataclasses.field(repr=False)
    deterministic: bool = False
    by_token: bool = False

    def processors(self, temperature: float) -> list[LogitsProcessor]:
        """Return the processors for one temperature, in the order to call them.

        Parameters
        ----------
        temperature : float
            Positive; the division by it is among the processors.

        Returns
        -------
        list of transformers.LogitsProcessor

        Raises
        ------
        InputError
            If the temperature is not positive.
        """
        return self.make(real("temperature", temperature, above=0))


def grid() -> dict[str, list[Sampler]]:
    """Return the rivals, each with the three settings that its tuning chooses from.

    Returns
    -------
    dict of str to list of Sampler
        Top-H twice: by partial sums (as released, and in `transformers`) and by the renormalised entropy (its paper).

    Examples
    --------
    >>> {name: [sampler.setting for sampler in settings] for name, settings in grid().items()}["min-p"]
    ['0.05', '0.1', '0.2']
    """
    after = {
        "top-k": (TopKLogitsWarper, (10, 50, 100)),
        "top-p": (TopPLogitsWarper, (0.8, 0.9, 0.95)),
        "min-p": (MinPLogitsWarper, (0.05, 0.1, 0.2)),
        "typical": (TypicalLogitsWarper, (0.2, 0.9, 0.95)),
        "epsilon": (EpsilonLogitsWarper, (3e-4, 9e-4, 3e-3)),
        "eta": (EtaLogitsWarper, (3e-4, 2e-3, 4e-3)),
        "Top-H": (TopHLogitsWarper, (0.3, 0.4, 0.5)),
        "Top-H, entropy": (TopHEntropyLogitsWarper, (0.3, 0.4, 0.5)),
    }
    rivals = {name: [_after(name, kind, value) for value in values] for name, (kind, values) in after.items()}
    rivals["top-n-sigma"] = [_before("top-n-sigma", n) for n in (1.0, 1.5, 2.0)]
    return rivals


def controls(vocabulary: int, top_m: int = 1200) -> list[Sampler]:
    """Return what no tuning applies to: greedy choice, plain sampling, and Top-W's pool by itself.

    Parameters
    ----------
    vocabulary : int
        Number of tokens.
    top_m : int
        Top-W's pool; top-k with this k is left out where it would keep every token.

    Returns
    -------
    list of Sampler
        ``greedy``, ``temperature`` and, with a larger vocabulary than the pool, ``top-k`` at ``top_m``.

    Raises
    ------
    InputError
        If a number is not a positive integer.

    Examples
    --------
    >>> [sampler.name for sampler in controls(49_152)], len(controls(60))
    (['greedy', 'temperature', 'pool only'], 2)
    """
    plain = [
        Sampler("greedy", "", lambda temperature: [GreedyLogitsWarper()], deterministic=True),
        Sampler("temperature", "", lambda temperature: [TemperatureLogitsWarper(float(temperature))]),
    ]
    if whole("vocabulary", vocabulary, 1) > whole("top_m", top_m, 1):
        pool = _after("top-k", TopKLogitsWarper, int(top_m))
        plain.append(Sampler("pool only", pool.setting, pool.make))
    return plain


def top_w(
    geometry: Geometry | None, config: TopWConfig | None = None, *, name: str = "Top-W", setting: str | None = None
) -> Sampler:
    """Return Top-W with one configuration.

    Parameters
    ----------
    geometry : Geometry or None
        Of the model's input embeddings; None is the rule without geometry.
    config : TopWConfig, optional
        The release's by default.
    name, setting : str
        As tables name it; by default the setting is lam and beta.

    Returns
    -------
    Sampler

    Examples
    --------
    >>> top_w(None, name="no geometry")
    Sampler(name='no geometry', setting='2.2, 2.8', deterministic=False, by_token=True)
    """
    config = config or TopWConfig()

    def make(temperature: float) -> list[LogitsProcessor]:
        selection = TopWLogitsWarper(None, temperature=temperature, config=config, geometry=geometry)
        return [selection, TemperatureLogitsWarper(float(temperature))]

    return Sampler(name, f"{config.lam:g}, {config.beta:g}" if setting is None else setting, make, by_token=True)


def top_w_tuned(geometry: Geometry | None, config: TopWConfig | None = None) -> list[Sampler]:
    """Return Top-W with each pair of `TOP_W_PAIRS`, as many settings as every rival has.

    Parameters
    ----------
    geometry : Geometry or None
        As in `top_w`.
    config : TopWConfig, optional
        Gives all but lam and beta.

    Returns
    -------
    list of Sampler

    Examples
    --------
    >>> [sampler.setting for sampler in top_w_tuned(None)]
    ['2.2, 2.8', '2.2, 4', '1, 2']
    """
    config = config or TopWConfig()
    pairs = (dataclasses.replace(config, lam=lam, beta=beta) for lam, beta in TOP_W_PAIRS)
    return [top_w(geometry, pair, name="Top-W, tuned") for pair in pairs]


def ablations(
    embedding: Float[Tensor, "vocabulary width"], config: TopWConfig | None = None, *, seed: int
) -> list[Sampler]:
    """Return Top-W with one part changed at a time.

    Parameters
    ----------
    embedding : Tensor, shape (vocabulary, width)
        The model's input embeddings.
    config : TopWConfig, optional
        What the parts are changed of; the release's by default.
    seed : int
        Of the permutation of the embedding's rows.

    Returns
    -------
    list of Sampler
        Without geometry, with permuted rows, with the opposite sign of the potential, with Euclidean distances, and
        with warm starts of 0.3 and 0.1 of the pool's mass.

    Raises
    ------
    InputError
        If the seed is no integer or negative, or the embedding is wrong.

    Examples
    --------
    >>> [sampler.name for sampler in ablations(torch.randn(20, 4), seed=0)][:3]
    ['no geometry', 'permuted', 'sign +']
    """
    config = config or TopWConfig()
    true = Geometry(embedding, metric=config.metric)
    rows = torch.randperm(len(embedding), generator=torch.Generator().manual_seed(whole("seed", seed, 0)))

    def changed(**parts: Any) -> TopWConfig:
        return dataclasses.replace(config, **parts)

    return [
        top_w(None, config, name="no geometry"),
        top_w(Geometry(embedding, metric=config.metric, permutation=rows), config, name="permuted"),
        top_w(true, changed(sign=-config.sign), name="sign +"),
        top_w(Geometry(embedding, metric="euclidean"), changed(metric="euclidean"), name="euclidean"),
        top_w(true, changed(warm_p=0.3), name="warm start 0.3"),
        top_w(true, changed(warm_p=0.1), name="warm start 0.1"),
    ]


def _after(name: str, kind: type[LogitsProcessor], value: float) -> Sampler:
    """A rule on what the temperature has made of the logits."""
    return Sampler(name, f"{value:g}", lambda temperature: [TemperatureLogitsWarper(float(temperature)), kind(value)])


def _before(name: str, n: float) -> Sampler:
    """Top-n-sigma, on raw logits."""
    return Sampler(
        name, f"{n:g}", lambda temperature: [TopNSigmaLogitsWarper(n), TemperatureLogitsWarper(float(temperature))]
    )
