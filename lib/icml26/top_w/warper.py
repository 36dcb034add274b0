"""Top-W as a logits processor of `transformers`.

The paper is Top-W (Gholami Davoodi et al., ICML 2026, arXiv 2602.10346). What is kept is decided in `decoder`; here the
rest becomes -inf. In `generate` a processor of your own runs before the built-in temperature and truncations: it sees
raw logits, so it has to be told the temperature, and the truncations have to be switched off, since `top_k` is 50
unless something else is said and model cards bring their own `top_p`.

Examples
--------
>>> from icml26.models import load_lm
>>> model, tokenizer = load_lm("tiny-random-llama")
>>> warper = TopWLogitsWarper(model.get_input_embeddings(), temperature=1.5)
>>> ids = tokenizer(["ab", "cd"], return_tensors="pt")
>>> off = {"top_k": 0, "top_p": 1.0}
>>> found = model.generate(**ids, logits_processor=[warper], do_sample=True, temperature=1.5, max_new_tokens=3, **off)
>>> found.shape
torch.Size([2, 5])
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers import LogitsProcessor

from icml26.checks import real
from icml26.errors import InputError
from icml26.top_w.decoder import TopWConfig, select
from icml26.top_w.geometry import Geometry

__all__ = ["TopWLogitsWarper"]


class TopWLogitsWarper(LogitsProcessor):
    """Masks the tokens that Top-W does not keep; the others keep their raw logits.

    Parameters
    ----------
    embedding : Tensor or nn.Embedding of shape (vocabulary, width), or None
        Input embeddings, as `Geometry` takes them; None with a `geometry`, or for the rule without one.
    temperature : float
        At which the kept tokens will be sampled. It is not applied here.
    config : TopWConfig, optional
        The release's by default.
    geometry : Geometry, optional
        Instead of `embedding`: one that is shared, or permuted.

    Raises
    ------
    InputError
        If an argument is out of range, or both `embedding` and `geometry` are given.

    Examples
    --------
    >>> warper = TopWLogitsWarper(torch.eye(3), temperature=1.0, config=TopWConfig(lam=0.3, beta=1.0))
    >>> warper(torch.zeros(1, 1, dtype=torch.int64), torch.tensor([[2.0, 1.5, -9.0]]))
    tensor([[2.0000, 1.5000,   -inf]])
    """

    def __init__(
        self,
        embedding: Float[Tensor, "vocabulary width"] | torch.nn.Embedding | None,
        *,
        temperature: float,
        config: TopWConfig | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        if embedding is not None and geometry is not None:
            raise InputError("embedding and geometry are both given; give embedding=None with a geometry of your own")
        if not isinstance(geometry, Geometry | None):
            raise InputError(f"geometry of type {type(geometry).__name__} must be a Geometry; a matrix is an embedding")
        if not isinstance(config, TopWConfig | None):
            raise InputError(f"config={config!r} must be a TopWConfig")
        self.temperature = real("temperature", temperature, above=0)
        self.config = TopWConfig() if config is None else config
        self.geometry = geometry if embedding is None else Geometry(embedding, self.config.metric)

    def __call__(
        self, input_ids: Int64[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocabulary"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Return the logits with -inf for all tokens but the kept.

        Parameters
        ----------
        input_ids : Tensor, shape (rows, tokens)
            Not used.
        scores : Tensor, shape (rows, vocabulary)
            Raw logits.

        Returns
        -------
        Tensor, shape (rows, vocabulary)

        Raises
        ------
        InputError
            If they hold NaN or +inf or a row of -inf only, or their number is not that of the embedding's rows.
        """
        kept = select(scores, self.geometry, self.config, self.temperature).kept
        return scores.masked_fill(~kept, -torch.inf)
