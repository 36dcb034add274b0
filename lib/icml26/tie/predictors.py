"""Predictors of output lengths from features of the prompt: TIE's and those that it is compared with.

TIE (Zheng et al., arXiv 2604.00499, Section 3) predicts the two parameters of a log-t law; SSJF (Qiu et al., arXiv
2404.08509) one length; LTR (Fu et al., arXiv 2408.15792) an order, by ListMLE (Xia et
al., ICML 2008). `fit_mean` is the fair point predictor: the mean of all the generations that TIE's laws are fitted to.

All of them here get the same features, prompts, network for each output (TIE's branch, smaller), optimiser, epochs,
grid and selection, so that they differ in label and loss only. Left out of TIE's training: the encoder (features are
given) and the oversampling of lengths above 245 tokens. Laws are fitted by `icml26.tie.laws`; features come from
`icml26.tie.docstring_lm` or elsewhere.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import stats
from torch import Tensor, nn

from icml26.errors import InputError
from icml26.tie.checks import checked_lengths, checked_reals
from icml26.tie.heads import DEFAULTS, Fitted, PredictorConfig, fit, standard
from icml26.tie.laws import LogNormalLaw, LogTLaw, fit_laws

__all__ = ["Fitted", "PredictorConfig", "fit_ltr", "fit_mean", "fit_ssjf", "fit_tie", "kendall_tau", "list_mle"]

LEAST_SIGMA = 1e-6  # of a decoded law, as in the official code
SIGMA_WEIGHT = (3.0, 4.0)  # of the second head's loss, rising linearly over the epochs, as in the official code


def fit_tie(
    features: Float[ArrayLike, "prompts width"],
    lengths: Int[ArrayLike, "prompts samples"],
    cap: int,
    config: PredictorConfig = DEFAULTS,
    *,
    seed: int,
    nu: float = 3.5,
    family: str = "log-t",
) -> Fitted:
    """Fit TIE's two heads: squared error of z-scored mu, and 3 to 4 times that of z-scored log(1 + sigma).

    Parameters
    ----------
    features : array, shape (prompts, width)
        Of the prompts; z-scored here.
    lengths : int array, shape (prompts, samples)
        Tokens of each prompt's generations; those at the cap are censored.
    cap : int
        Most tokens of a generation.
    config : PredictorConfig
        Network and training.
    seed : int
        Of weights, batches, dropout and validation prompts.
    nu : float
        Degrees of freedom of log-t laws.
    family : {"log-t", "log-normal"}
        Of the laws; the second is the paper's ablation.

    Returns
    -------
    Fitted
        It predicts a `LogTLaw`, or a `LogNormalLaw`.

    Raises
    ------
    InputError
        If features and lengths do not fit together, or are no such numbers.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> seen = generator.normal(size=(40, 2))
    >>> lengths = LogTLaw(3 + seen[:, 0], np.full(40, 0.2)).sample(generator, 256, 20)
    >>> law = fit_tie(seen, lengths, 256, PredictorConfig(learning_rates=(0.01,)), seed=0).predict([[-2, 0], [1, 0]])
    >>> bool(law.median()[0] < law.median()[1])
    True
    """
    features, lengths = _checked(features, lengths, cap, least=2)
    law = fit_laws(lengths, cap, family=family, nu=nu)
    labels = np.stack([law.mu, np.log1p(law.sigma)], 1)
    centre, scale = standard(labels)
    targets = torch.tensor((labels - centre) / scale, dtype=torch.float32)

    def loss(outputs: Tensor, rows: Tensor, done: float) -> Tensor:
        low, high = SIGMA_WEIGHT
        errors = (outputs - targets[rows]).square().mean(0)
        return errors[0] + (low + (high - low) * done) * errors[1]

    def decode(outputs: np.ndarray) -> LogTLaw | LogNormalLaw:
        mu, log_sigma = (outputs * scale + centre).T
        sigma = np.maximum(np.expm1(log_sigma), LEAST_SIGMA)
        return LogTLaw(mu, sigma, nu) if family == "log-t" else LogNormalLaw(mu, sigma)

    return fit(features, 2, loss, decode, config, seed)


def fit_ssjf(
    features: Float[ArrayLike, "prompts width"],
    lengths: Int[ArrayLike, "prompts samples"],
    config: PredictorConfig = DEFAULTS,
    *,
    seed: int,
    loss: str = "l1",
    answers: str = "all",
) -> Fitted:
    """Fit SSJF: regression of a length on its prompt.

    SSJF's own labels are one generation a prompt; with all of them it has as many as TIE's laws are fitted to.

    Parameters
    ----------
    features, config, seed
        As in `fit_tie`.
    lengths : int array, shape (prompts, samples)
        Tokens.
    answers : {"all", "first"}
        Generations that are labels.
    loss : {"l1", "mse"}
        Absolute or squared error, both in SSJF's code.

    Returns
    -------
    Fitted
        It predicts lengths, in tokens.

    Raises
    ------
    InputError
        As in `fit_tie`, or if the loss or the labels are unknown.

    Examples
    --------
    >>> seen = np.random.default_rng(0).normal(size=(40, 2))
    >>> fitted = fit_ssjf(seen, np.exp(4 + seen[:, :1]).astype(int), PredictorConfig(learning_rates=(0.01,)), seed=0)
    >>> shorter, longer = fitted.predict([[-1, 0], [1, 0]])
    >>> bool(shorter < longer)
    True
    """
    if loss not in ("l1", "mse"):
        raise InputError(f"loss={loss!r} must be 'l1' or 'mse'")
    if answers not in ("all", "first"):
        raise InputError(f"answers={answers!r} must be 'all' or 'first'")
    features, lengths = _checked(features, lengths, None, least=1)
    labels = lengths if answers == "all" else lengths[:, :1]
    return _point(features, labels, nn.L1Loss() if loss == "l1" else nn.MSELoss(), config, seed)


def fit_mean(
    features: Float[ArrayLike, "prompts width"],
    lengths: Int[ArrayLike, "prompts samples"],
    config: PredictorConfig = DEFAULTS,
    *,
    seed: int,
    log: bool = False,
) -> Fitted:
    """Fit the fair point predictor: squared error of the mean length of all generations of a prompt.

    What minimises it is the expected capped length, so that it orders requests as SEPT does.

    Parameters
    ----------
    features, lengths, config, seed
        As in `fit_tie`; a capped length counts as the cap.
    log : bool
        Regress the logarithm of the mean instead: TIE's heads work on such a scale, which has an effect of its own.

    Returns
    -------
    Fitted
        It predicts lengths, in tokens.

    Raises
    ------
    InputError
        As in `fit_tie`.

    Examples
    --------
    >>> seen = np.random.default_rng(0).normal(size=(40, 2))
    >>> fitted = fit_mean(seen, np.exp(4 + seen[:, :1]).astype(int), PredictorConfig(learning_rates=(0.01,)), seed=0)
    >>> shorter, longer = fitted.predict([[-1, 0], [1, 0]])
    >>> bool(shorter < longer)
    True
    """
    features, lengths = _checked(features, lengths, None, least=1)
    mean = lengths.mean(1)
    if not log:
        return _point(features, mean, nn.MSELoss(), config, seed)
    found = _point(features, np.log(mean), nn.MSELoss(), config, seed)
    return found._replace(predict=lambda new: np.exp(found.predict(new)))


def fit_ltr(
    features: Float[ArrayLike, "prompts width"],
    lengths: Int[ArrayLike, "prompts samples"],
    config: PredictorConfig = DEFAULTS,
    *,
    seed: int,
) -> Fitted:
    """Fit LTR: ListMLE of the order of lengths in lists of prompts, averaged over the generations.

    LTR orders classes of ten tokens; here lengths themselves, which are shorter.

    Parameters
    ----------
    features, lengths, config, seed
        As in `fit_tie`.

    Returns
    -------
    Fitted
        It predicts scores without unit, larger for longer.

    Raises
    ------
    InputError
        As in `fit_tie`.

    Examples
    --------
    >>> seen = np.random.default_rng(0).normal(size=(40, 2))
    >>> fitted = fit_ltr(seen, np.exp(4 + seen[:, :1]).astype(int), PredictorConfig(learning_rates=(0.01,)), seed=0)
    >>> shorter, longer = fitted.predict([[-1, 0], [1, 0]])
    >>> bool(shorter < longer)
    True
    """
    features, lengths = _checked(features, lengths, None, least=1)
    targets = torch.tensor(lengths)
    return fit(
        features, 1, lambda outputs, rows, _: list_mle(outputs[:, 0], targets[rows]), lambda o: o[:, 0], config, seed
    )


def list_mle(scores: Float[Tensor, " items"], lengths: Int[Tensor, "items lists"]) -> Float[Tensor, ""]:
    """ListMLE: minus the log-likelihood per item of the order, shortest first, under the Plackett-Luce law.

    Parameters
    ----------
    scores : tensor, shape (items,)
        Larger for longer: an item comes first with probability proportional to exp(-score).
    lengths : int tensor, shape (items, lists)
        Each column is an order of the items; of equal lengths the earlier item is the shorter.

    Returns
    -------
    tensor
        Mean over items and lists, in nats.

    Examples
    --------
    >>> list_mle(torch.zeros(2), torch.tensor([[5], [9]]))
    tensor(0.3466)
    """
    ordered = -scores[lengths.argsort(dim=0, stable=True)]
    left = ordered.flip(0).logcumsumexp(0).flip(0)  # over the items that have not come yet
    return (left - ordered).mean()


def kendall_tau(scores: Float[ArrayLike, " prompts"], lengths: Int[ArrayLike, "prompts samples"]) -> float:
    """Kendall's tau-b of scores and one generation of each prompt, averaged over the generations.

    Parameters
    ----------
    scores : array, shape (prompts,)
        Larger for longer.
    lengths : int array, shape (prompts, samples)
        Tokens.

    Returns
    -------
    float
        From -1 to 1; a generation counts 0 where all scores, or all lengths, are equal.

    Raises
    ------
    InputError
        If there are fewer than two prompts, or scores and lengths do not fit together.

    Examples
    --------
    >>> kendall_tau([1, 2, 3], [[10, 10], [20, 20], [30, 15]])
    0.6666666666666667
    """
    scores, lengths = checked_reals("scores", scores), checked_lengths(lengths, None)
    if scores.shape != lengths.shape[:1] or len(scores) < 2:
        raise InputError(f"scores have shape {scores.shape}; give one for each of {len(lengths)} prompts, two at least")
    # The coefficient is not defined where all are equal, and scipy then says NaN.
    return float(np.nan_to_num([stats.kendalltau(scores, column).statistic for column in lengths.T]).mean())


def _point(features, labels, error, config, seed) -> Fitted:
    """Regression of labels, shape (prompts,) or (prompts, labels of each)."""
    labels = labels.reshape(len(labels), -1)
    centre, scale = standard(labels.ravel())
    targets = torch.tensor((labels - centre) / scale, dtype=torch.float32)
    return fit(
        features,
        1,
        lambda outputs, rows, _: error(outputs.expand(-1, targets.shape[1]), targets[rows]),
        lambda outputs: outputs[:, 0] * scale + centre,
        config,
        seed,
    )


def _checked(features, lengths, cap, least):
    features, lengths = checked_reals("features", features), checked_lengths(lengths, cap, least)
    if features.ndim != 2 or len(features) != len(lengths) or not features.shape[1]:
        raise InputError(f"features have shape {features.shape}; give one row for each of {len(lengths)} prompts")
    return features, lengths
