"""TIE: requests to a language model in the order of what their answers may cost, unlikely long ones included.

The paper is TIE (Zheng et al., ICML 2026, arXiv 2604.00499). `laws` has the laws of output lengths and their fits,
`law` their capped expectations, `log_t` the paper's law as a distribution of `scipy.stats`, `policies` the orders of
the waiting queue. Beside them: `fit_tests` asks which family fits, `theory` has the closed forms; `quadrature`,
`fitting` and `families` do the arithmetic, `checks` the complaints.

The chapter's experiments: `docstrings`, `docstring_lm`, `answers`, `collection`, `lengths` and `smollm2` are where
lengths come from; `heads` and `predictors` learn them; `populations`, `scenarios`, `regimes`, `predicted`, `recorded`
and `serving_study` compare policies on the simulator `icml26.serving`; `official` repeats the official code's
estimates. `vllm_priority` hands scores to vLLM.
"""

from icml26.tie.laws import LogNormalLaw, LogTLaw, fit_laws
from icml26.tie.log_t import log_t
from icml26.tie.policies import FCFS, SEPT, TIE, WSEPT, Decay, FixedBeta, Median, OracleSJF, PointEstimate

__all__ = [
    "FCFS",
    "SEPT",
    "TIE",
    "WSEPT",
    "Decay",
    "FixedBeta",
    "LogNormalLaw",
    "LogTLaw",
    "Median",
    "OracleSJF",
    "PointEstimate",
    "fit_laws",
    "log_t",
]
