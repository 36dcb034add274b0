# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A sample chapter
#
# ## In one minute
#
# A register of four bits visits {glue:text}`99_sample-states` states; their mean is {glue:text}`99_sample-mean:.2f`.
# {cite:t}`seedlm2025` build on such registers, after {cite:p}`golomb1982`.
#
# ```{math}
# :label: 99_sample-recurrence
# x_{n+K} = \bigoplus_{t \in T} x_{n+t}
# ```
#
# Equation {eq}`99_sample-recurrence` is the listing below; {numref}`99_sample-walk` shows its states, $s \neq 0$.
#
# ```{literalinclude} /lib/icml26/errors.py
# :pyobject: nearest
# ```

# %% tags=["parameters"]
bits: int = 4  # width of the register [bits; 2..24]

# %%
# ruff: noqa: E402
import matplotlib.pyplot as plt
from myst_nb import glue

state, states = 1, []
for _ in range(2**bits - 1):
    states.append(state)
    state = (state >> 1) ^ (0b1100 if state & 1 else 0)
glue("99_sample-states", len(set(states)), display=False)
glue("99_sample-mean", sum(states) / len(states), display=False)

# %% mystnb={"image": {"alt": "A walk"}, "figure": {"name": "99_sample-walk", "caption": "Every state but zero."}}
plt.figure(figsize=(5, 2))
plt.plot(states, "o")
plt.xlabel("step")
plt.ylabel("state")
plt.show()

# %%
from icml26.claims import VERDICTS
from icml26.claims_view import Summary

rule = {"kind": "difference", "direction": "above", "null": 0.0, "tolerance": 0.1}
paper = {"value": 0.3, "text": "0.3 points", "setting": "a large model"}
claims = [
    {
        **{"id": f"Q{number}", "statement": "It helps, by so much. " * 4, "paper": paper, "test": "the difference"},
        **{"scale": "a small model", "rule": rule, "verdict": verdict, "label": verdict, "note": "", "exact": None},
        **{"value": 0.2, "interval": [0.1, 0.3], "reason": "", "needs": ""},
    }
    for number, verdict in enumerate(VERDICTS)
]
Summary({"chapter": "99_sample", "data": "real", "at_paper_setting": False, "claims": claims})

# %% [markdown]
# ## References
#
# ```{bibliography}
# :filter: docname in docnames
# ```
