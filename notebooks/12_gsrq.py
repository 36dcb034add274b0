# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # GSRQ: directions for a small cache
#
# *GSRQ: Gain-Shape Residual Quantization for Sub-1-bit KV Cache*, Soosung Kim, Minjae Park, Eui-Young Chung and Jaeyong
# Chung, ICML 2026 {cite}`gsrq2026`.
#
# ## In one minute
#
# **The question.** A language model keeps a key and a value of every token it has read. Can they be stored in less than one
# bit per number, and what does it cost?
#
# **What the paper says.** GSRQ splits a codeword into length and direction, averages directions only, and chains such codebooks.
# The paper reports {glue:text}`12_gsrq_paper_c4:.1f` points more than VQLLM {cite}`vqllm2024` on long-context tasks at one bit, and a lower perplexity than all baselines.
#
# **What we found.** *Directions.* On held-out keys, values and what one stage leaves of them, GSKM, the paper's
# clustering, has a mean cosine between vector and codeword {glue:text}`12_gsrq_c2:.4f` {glue:text}`12_gsrq_c2_range` above that of
# k-means. K-means from the same start on the unit sphere is {glue:text}`12_gsrq_start_cosine:.4f` above it; the update adds
# {glue:text}`12_gsrq_c9:.4f` {glue:text}`12_gsrq_c9_range`.
#
# *Loss.* With {glue:text}`12_gsrq_coded_layers:.0f` of {glue:text}`12_gsrq_all_layers:.0f` layers coded, GSKM can be told from a chain of
# k-means at {glue:text}`12_gsrq_kmeans_told:.0f` of {glue:text}`12_gsrq_rates:.0f` rates. Against the best baseline, that chain among
# them, the worst difference is {glue:text}`12_gsrq_c5:.4f` {glue:text}`12_gsrq_c5_range` nats per token.
#
# *Codebooks weigh.* For Llama-3-8B at one bit, {glue:text}`12_gsrq_llama_books:,.0f` MiB that no table counts: one sequence of
# {glue:text}`12_gsrq_context:,.0f` tokens becomes {glue:text}`12_gsrq_llama_saving:.1f` times smaller, not 16; eight that share them,
# {glue:text}`12_gsrq_llama_saving_eight:.1f` times.
#
# **What we did not find out.** No model of the paper's size, long-context task or kernel was run (C4, C7), nor VQLLM or AnTKV.
# The loss is that of {glue:text}`12_gsrq_test_tokens:,.0f` tokens.
#
# {glue:text}`12_gsrq_verdicts`

# %% [markdown]
# Every knob of this chapter is in the next cell. Run the chapter from a terminal with other values, for example
# `icml26 run 12 -p codewords=32`.

# %% tags=["parameters"]
seed: int = 0  # seed of every random choice [integer; 0..4294967295]
language_model: str = "smollm2-135m"  # whose keys and values are coded [name]
calibration_text: str = (
    "python"  # text to fit and test on: python, gsm8k, or a data set [name]
)
other_text_name: str = "gsm8k"  # a second text: gsm8k, code, or a data set [name]
layers: list[int] = [15, 25]  # coded layers, counted from 0 [layer; 0..1000]
dimension: int = 48  # D, numbers in a sub-vector [numbers; 1..4096]
codewords: int = 64  # K, of each codebook [codewords; 2..256]
stages: list[int] = [16, 8, 6, 3]  # R, a rate for each [stages; 1..64]
coupled_channels: list[int] = [2, 4, 8, 16]  # of each CQ [numbers; 1..64]
coupled_bits: list[int] = [4, 4, 6, 6]  # of each CQ's codes [bits; 1..8]
control_stages: list[int] = [3]  # R of k-means from the sphere [stages; 1..64]
codebook_tokens: int = 4096  # to fit chains and CQ to [tokens; 8..10000000]
codebook_seeds: int = 3  # of codebooks with weights, and without [seeds; 2..100]
tau: float = 1.0  # of the log weights [number; 0.0001..10000]
window: int = 512  # tokens that the model sees at once [tokens; 16..1048576]
calibration_windows: int = 12  # to fit codebooks to [windows; 2..100000]
gradient_windows: int = 4  # of these, with gradients [windows; 1..100000]
other_windows: int = 8  # of the second text, to fit to [windows; 1..100000]
test_windows: int = 2  # and as many to choose baselines [windows; 1..100000]
other_test_windows: int = 1  # of the second text [windows; 1..100000]
tensor_layers: list[int] = [
    15,
    17,
    19,
    21,
    23,
    25,
]  # clustered as vectors [layer; 0..1000]
tensor_dimensions: list[int] = [8, 48, 96, 192]  # D of these [numbers; 1..65536]
claimed_dimensions: list[int] = [48, 192]  # those that claims use [numbers; 1..65536]
tensor_codewords: int = 64  # K of these [codewords; 2..65536]
tensor_tokens: int = 4096  # to cluster; the rest is held out [tokens; 8..10000000]
tensor_seeds: int = 1  # starts of each [seeds; 1..100]
synthetic_vectors: int = (
    4000  # random vectors, and as many fresh [vectors; 16..1000000]
)
synthetic_dimensions: list[int] = [4, 16, 64, 256]  # D of these [numbers; 1..65536]
synthetic_codewords: list[int] = [64, 256]  # K of these [codewords; 2..65536]
synthetic_seeds: int = 2  # draws of each [seeds; 1..100]
large_dimension: int = 256  # D with more codewords, one of those [numbers; 1..65536]
large_codewords: int = 1024  # K of it [codewords; 2..65536]
large_seeds: int = 2  # draws of it [seeds; 1..100]
chain_dimensions: list[int] = [64]  # D of random chains [numbers; 1..65536]
chain_codewords: list[int] = [64]  # K of each [codewords; 2..65536]
chain_stages: list[int] = [8]  # R of each [stages; 1..64]
chain_seeds: list[int] = [5]  # draws of each [seeds; 2..100]
iterations: int = 100  # cap on passes of every fit [passes; 1..100000]
resamples: int = 2000  # bootstrap resamples an interval [resamples; 100..100000]

# %%
import contextlib
import inspect
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from IPython.display import display
from myst_nb import glue
from tqdm.auto import tqdm

from icml26 import data, evaluation, models, plotting, stats
from icml26.claims import Ledger
from icml26.gsrq import (
    activations,
    arms,
    bits,
    calibration,
    clustering,
    codebooks,
    distortion,
    followups,
    language,
    planning,
    rates,
    synthetic,
    tensors,
    weights,
)
from icml26.gsrq.clustering import fit_codebook

on_gpu = torch.cuda.is_available()
torch.use_deterministic_algorithms(True, warn_only=on_gpu)
plotting.use_style()
# pandas would rather have small tables sorted before they are looked up in.
warnings.simplefilter("ignore", pd.errors.PerformanceWarning)
# Names in the code for the arms, in the order in which they are drawn.
SHORT = dict(zip(arms.ARMS, ("kmeans", "control", "gskm", "sum"), strict=True))


def note(name, value):
    """Give the text a measured value."""
    value = value if isinstance(value, str) else float(value)
    glue(f"12_gsrq_{name}", value, display=False)


def show(interval, digits=4):
    """A value with its interval."""
    value, low, high = interval
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def note_range(name, interval, digits=3):
    """Give the text a value with its interval."""
    note(name, interval.value)
    note(f"{name}_range", f"[{interval.low:.{digits}f}, {interval.high:.{digits}f}]")


def interval_of(units):
    """Interval of a mean: Student's t for a dozen units or fewer, else a bootstrap."""
    if len(units) <= 12:
        return stats.t_interval(units)
    return stats.bootstrap_interval(np.mean, units, seed=seed, resamples=resamples)


def less(frame, column, first, second, *, unit):
    """One arm less another, cell by cell, averaged within units."""
    return arms.paired(frame, column, first, second, unit=unit).to_numpy()


def excludes(interval):
    """Whether a difference can be told from zero."""
    return interval.low > 0 or interval.high < 0


def told(name, interval):
    """Give the text a verb: an interval includes zero or excludes it."""
    note(f"{name}_told", "excludes" if excludes(interval) else "includes")


@contextlib.contextmanager
def watched(name):
    """A line that tells what a long step is at."""
    with tqdm(desc=name, bar_format="{desc} [{elapsed}]", leave=False) as bar:
        yield lambda line: bar.set_description_str(f"{name}: {line}")


def read(name, fitted, tested):
    """Windows of a text, cut by position."""
    sizes = {"calibration": fitted, "validation": tested, "test": tested}
    sizes["length"] = window
    if name in ("python", "gsm8k"):
        return language.corpus(tokenizer, name, **sizes)
    if name == "code":
        modules = (inspect, contextlib, tempfile)
        whole = "".join(inspect.getsource(module) for module in modules)
    else:
        whole = evaluation.dataset_text(name)
    cut = int(0.8 * len(whole))
    return language.corpus(tokenizer, name, texts=(whole[:cut], whole[cut:]), **sizes)


lm, tokenizer = models.load_lm(language_model)
lm = lm.to("cuda" if on_gpu and models.is_real(language_model) else "cpu").eval()
missing = not data.available("gsm8k-test")
names = [
    {"gsm8k": "code"}.get(name, name) if missing else name
    for name in (calibration_text, other_text_name)
]
text = read(names[0], calibration_windows, test_windows)
other_text = read(names[1], other_windows, other_test_windows)
called = {"python": "Python's help", "gsm8k": "GSM8K", "code": "Python's source code"}
real = models.is_real(language_model) and names == [calibration_text, other_text_name]
ledger = Ledger("12_gsrq", data="real" if real else "stand-in")
note("text", called.get(text.name, text.name))
note("other_text", called.get(other_text.name, other_text.name))
note("sha256", text.sha256[:12])
note("paper_c4", ledger.paper("C4").value)
note("codebook_tokens", codebook_tokens)
note("coded_layers", len(layers))
note("all_layers", lm.config.num_hidden_layers)

# %% [markdown]
# ## The idea
#
# A decoder keeps a key and a value of every token it has read. For long contexts, or many at once, they can outgrow the model's
# weights, and every new token reads them all. So they are stored in few bits. Integers, one per number, end at about two bits
# {cite}`kivi2024`. Below one bit, several numbers have to share a code: cut a token's keys into sub-vectors of $D$
# numbers, keep a *codebook* of $K$ vectors, and store only which of them is nearest. What is left over goes through
# another codebook, and another: *residual quantisation* {cite}`juang1982`. With $R$ of them a number takes
#
# ```{math}
# :label: 12_gsrq-eq-bits
# \text{bits per number}=\frac{R\log_2K}{D}.
# ```
#
# Codebooks are usually made by k-means {cite}`lloyd1982`: each codeword is the mean of the vectors that chose it. The paper's
# worry is that a mean of vectors which point in different directions is *short*, the shorter the more dimensions there
# are. Since
#
# ```{math}
# :label: 12_gsrq-eq-distance
# \|x-\mu\|^2=\|x\|^2+\|\mu\|^2-2\,\|x\|\,\|\mu\|\cos\theta ,
# ```
#
# a short $\mu$ gives the angle $\theta$ little weight, and all codewords look alike. Gain-shape quantisation
# {cite}`sabin1984` writes a codeword as a length and a direction, $\mu=g\,s$ with $\|s\|=1$. GSKM, the paper's clustering,
# averages *unit* vectors for the direction and finds the length afterwards. {numref}`12_gsrq-fig-idea` shows what that does
# to one cluster.

# %% mystnb={"image": {"alt": "Two panels with nine arrows from the origin, a cluster of vectors. Left: all have the same length, and the mean and the gain-shape codeword coincide, both shorter than the members. Right: one member is twice as long; the mean is pulled towards it, the gain-shape codeword keeps the direction of the many."}, "figure": {"caption": "One cluster in two dimensions: its members (thin), their mean, and the gain-shape codeword of the paper. Left: members of equal length. Right: one member is longer. Not a figure of the paper.", "name": "12_gsrq-fig-idea"}} tags=["hide-input"]
angles = np.linspace(-0.75, 0.75, 9)
fan = np.stack([np.cos(angles), np.sin(angles)], 1)
long = fan.copy()
long[-1] *= 2
idea = {}
fig, axes = plotting.figure(1, 2, width="text", height=4.2, sharex=True, sharey=True)
for ax, members, title in zip(
    axes, (fan, long), ("equal lengths", "one member is longer"), strict=True
):
    for member in members:
        ax.plot([0, member[0]], [0, member[1]], color="0.75", linewidth=1)
        ax.plot(*member, "o", color="0.6", markersize=3)
    for rule, label, color, style in (
        ("mean", "mean (k-means)", plotting.PALETTE[1], "-"),
        ("unit", "gain x shape (GSKM)", plotting.PALETTE[0], "--"),
    ):
        word = fit_codebook(members, 1, rule=rule, seed=seed).codewords[0]
        idea[title, rule] = word
        ax.plot(
            [0, word[0]],
            [0, word[1]],
            color=color,
            linestyle=style,
            linewidth=2.5,
            label=label,
        )
        ax.plot(*word, "D", color=color, markersize=6)
    ax.set(title=title, xlabel="first coordinate", aspect="equal")
axes[0].set_ylabel("second coordinate")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()

# %%
equal = [np.linalg.norm(idea["equal lengths", rule]) for rule in ("mean", "unit")]
turned = {
    rule: np.degrees(np.arctan2(*idea["one member is longer", rule][::-1]))
    for rule in ("mean", "unit")
}
note("idea_mean", equal[0])
note("idea_unit", equal[1])
note("idea_turned_mean", turned["mean"])
note("idea_turned_unit", turned["unit"])

# %% [markdown]
# Look at the left panel first, because it is the surprise: with members of equal length the mean has length
# {glue:text}`12_gsrq_idea_mean:.2f` and the gain-shape codeword {glue:text}`12_gsrq_idea_unit:.2f`. They are the same point. A
# codeword in the middle of a fan *has* to be shorter than the members, or its error would be larger; separating gain
# and shape does not change that. What changes is on the right: the mean turns towards the long member, to
# {glue:text}`12_gsrq_idea_turned_mean:.0f` degrees, the codeword of GSKM stays at {glue:text}`12_gsrq_idea_turned_unit:.0f`. So the method can only
# differ from k-means where lengths differ within a cluster, and it differs in *whom it listens to*.
#
# ## From equation to code
#
# ### Shrinkage is distortion
#
# The paper measures shrinkage by the ratio of mean squared lengths, here with $c(i)$ the codeword that vector $i$ chose:
#
# ```{math}
# :label: 12_gsrq-eq-shrinkage
# \rho=\frac{\mathbb E\,\|\mu_{c(i)}\|^2}{\mathbb E\,\|x_i\|^2},\qquad
# \text{NMSE}=\frac{\sum_i\|x_i-\mu_{c(i)}\|^2}{\sum_i\|x_i\|^2} .
# ```
#
# ```{literalinclude} /lib/icml26/gsrq/distortion.py
# :pyobject: shrinkage
# ```
#
# There is less in it than meets the eye. If each codeword is the orthogonal projection of its cluster on its own
# direction, $g_k=\operatorname{mean}_{C_k}(x^\top s_k)$, then Pythagoras holds in every cluster and
#
# ```{math}
# :label: 12_gsrq-eq-pythagoras
# \rho+\text{NMSE}=1 .
# ```
#
# Means have this property, and so has every gain-shape codebook whose gain is a mean projection. A shrinkage ratio is
# therefore one minus the distortion, on the vectors and the assignment from which the codebook was made: there shrinkage is
# distortion under another name. It says that vectors in many dimensions are hard to cluster, and nothing beyond. You can see
# it to rounding:

# %% tags=["nbval-check-output"]
random = np.random.default_rng(0)
gains = np.exp(random.normal(size=(1500, 1)))
uneven = random.normal(size=(1500, 12)) * gains
for rule in clustering.RULES:
    book = fit_codebook(uneven, 24, rule=rule, iterations=2000, seed=0)
    decoded = book.codewords[book.labels]
    total = distortion.shrinkage(uneven, decoded)
    total += distortion.measure(uneven, decoded).nmse
    print(f"rule {rule}: rho + NMSE = 1 to 1e-9:", bool(abs(total - 1) < 1e-9))

# %% [markdown]
# ### GSKM
#
# The objective is $\sum_i\|x_i-g_{c_i}s_{c_i}\|^2$. The first step assigns each vector to its nearest codeword, which is
#
# ```{math}
# :label: 12_gsrq-eq-assign
# c_i=\arg\max_k\;2\,g_k\,x_i^\top s_k-g_k^2 .
# ```
#
# ```{literalinclude} /lib/icml26/gsrq/clustering.py
# :pyobject: assign
# ```
#
# The next two update a codeword from its members $C_k$: the shape from unit vectors, all with the same say, and then the
# gain, which is the best for that shape:
#
# ```{math}
# :label: 12_gsrq-eq-update
# s_k\propto\sum_{i\in C_k}w_i\frac{x_i}{\|x_i\|},\qquad
# g_k=\max\Bigl(0,\;\frac{\sum_{C_k}w_i\,x_i^\top s_k}{\sum_{C_k}w_i}\Bigr) .
# ```
#
# (Weights $w_i$ are one for now.)
#
# ```{literalinclude} /lib/icml26/gsrq/clustering.py
# :pyobject: _gain_shape
# ```
#
# The shape is the update of spherical k-means {cite}`dhillon2001`; it is not the minimiser of the squared error, and the
# paper says so. The loop starts from directions found on the unit sphere:
#
# ```{literalinclude} /lib/icml26/gsrq/starts.py
# :pyobject: spherical_start
# ```
#
# ### Two GSKMs, and the control arm
#
# The released code does something else in the update. It sums the vectors themselves, so that long ones count more:
# $s_k\propto\sum_{C_k}x_i$. Put the mean projection on that shape into $g_k s_k$:
#
# ```{math}
# :label: 12_gsrq-eq-sum
# g_k s_k=\Bigl(\frac{1}{|C_k|}\sum_{C_k}x_i^\top\frac{\bar x_k}{\|\bar x_k\|}\Bigr)\frac{\bar x_k}{\|\bar x_k\|}
# =\bar x_k .
# ```
#
# That is the plain mean. **The fixed points of this rule are exactly those of k-means.** Run to its end, what it gains over
# k-means is a matter of which of them it reaches. (The released code stops after ten passes, rounds gains and projects on the
# previous shape; `released_codebook` has it. Our arm runs the rule to its end.) The paper's own *unit* rule is different, but
# only where lengths differ within a cluster. So vectors are clustered by four arms, all with one start and the same cap on
# passes:
#
# | arm | codeword | start |
# |---|---|---|
# | k-means | mean | k-means++ {cite}`kmeanspp2007`: single vectors, drawn far from one another |
# | k-means, spherical start | mean | clusters on the unit sphere |
# | GSKM (the paper) | gain x mean of unit vectors | clusters on the unit sphere |
# | GSKM, sum rule (as in the released code) | gain x sum of vectors | clusters on the unit sphere |
#
# A start on the sphere is itself made by at most twenty passes there, which the cap does not count. The second arm is not in
# the paper nor in its released results. It is the one that tells start and update apart. Chains leave out the sum rule, whose
# ends are those of k-means, and the losses have the second arm at the rates in `control_stages` alone.

# %% tags=["nbval-check-output"]
for rule in ("sum", "unit"):
    book = fit_codebook(uneven, 24, rule=rule, iterations=2000, seed=0)
    after = fit_codebook(uneven, 24, rule="mean", start=book.codewords, iterations=2000)
    before, polished = (
        clustering.inertia(uneven, found.codewords, found.labels)
        for found in (book, after)
    )
    print(
        f"rule {rule}: k-means goes on from its end:",
        bool(np.abs(after.codewords - book.codewords).max() > 1e-6),
        "and lowers the error:",
        bool(polished < before * (1 - 1e-6)),
    )

# %% [markdown]
# ### Weights
#
# An error in one key costs more than in another. The paper weights training vectors by the gradient of the loss with
# respect to them, squeezed by a logarithm because a few gradients are hundreds of times the median:
#
# ```{math}
# :label: 12_gsrq-eq-weights
# w_i=\log\bigl(1+\lambda\,\|\nabla_{x_i}\mathcal L\|\bigr),\qquad
# \lambda=\frac{\tau}{\operatorname{median}_j\|\nabla_{x_j}\mathcal L\|},\quad\tau=1 .
# ```
#
# ```{literalinclude} /lib/icml26/gsrq/weights.py
# :pyobject: log_weights
# ```
#
# The assignment stays unweighted. How weights enter the updates {eq}`12_gsrq-eq-update` is our reading; the paper gives no
# formula for it.
#
# ### Residual stages, and what they cost
#
# Each layer, keys and values apart, and each position of a sub-vector has a chain of codebooks of its own. Stage $j$ is fitted
# to what stage $j-1$ left over; a vector is encoded greedily and decoded by adding up $R$ looked-up codewords. Because
# the chain is greedy it is *nested*: its first stages are a whole quantiser of a lower rate, so that one fit gives all
# rates.
#
# ```{literalinclude} /lib/icml26/gsrq/residual.py
# :pyobject: ResidualQuantizer._chain
# ```
#
# ```{literalinclude} /lib/icml26/gsrq/residual.py
# :pyobject: ResidualQuantizer.encode
# ```
#
# Now count. {eq}`12_gsrq-eq-bits` leaves out the codebooks, which are shared by all tokens of a batch and still have to be
# somewhere. For $L$ layers with $M$ sub-vectors they take $2\cdot L\cdot M\cdot R\cdot K\cdot D$ numbers of two bytes:
#
# ```{literalinclude} /lib/icml26/gsrq/bits.py
# :pyobject: residual
# ```
#
# Integers have side information of their own. Groups of 32 with a scale and a minimum in FP16 add one bit per number, where
# the paper's tables count a quarter, which is what groups of 128 would add. {numref}`12_gsrq-fig-bits` counts everything
# for the paper's main model (32 layers, 1,024 channels), from arithmetic alone.

# %%
LLAMA = {"channels": 1024, "layers": 32}
accounts = {
    f"GSRQ {r * 8 / d:g} bits": bits.residual(
        dimension=d, stages=r, codewords=256, **LLAMA
    )
    for d, r in ((128, 32), (128, 16), (128, 12), (256, 12))
}
accounts["CQ 8c8b, 1 bit"] = bits.coupled(coupled_channels=8, bits=8, **LLAMA)
accounts["KIVI-2, window of 128"] = bits.integers(bits=2, window=128, **LLAMA)
half = bits.full_precision(**LLAMA)
context = 8192
rows = {}
for name, account in accounts.items():
    stored = int(account.cache_bytes(context))
    rows[name] = {
        "paper's bits": account.paper_bits,
        "bits, side information included": account.bits_per_value,
        "codebooks (MiB)": account.codebook_bytes / 2**20,
        "effective bits at 8K tokens": float(account.effective_bits(context)),
        "codes at 8K (MiB)": stored / 2**20,
        "times smaller than FP16 at 8K": int(half.cache_bytes(context))
        / (stored + account.codebook_bytes),
    }
rows["FP16"] = {
    "paper's bits": 16.0,
    "bits, side information included": 16.0,
    "codebooks (MiB)": 0.0,
    "effective bits at 8K tokens": 16.0,
    "codes at 8K (MiB)": int(half.cache_bytes(context)) / 2**20,
    "times smaller than FP16 at 8K": 1.0,
}
one = accounts["GSRQ 1 bits"]
note("context", context)
note("llama_books", one.codebook_bytes / 2**20)
note("llama_books_tokens", one.codebook_bytes / int(one.cache_bytes(1)))
note("llama_books_half", one.codebook_bytes / int(half.cache_bytes(1)))
note("llama_effective", float(one.effective_bits(context)))
note("llama_saving", rows["GSRQ 1 bits"]["times smaller than FP16 at 8K"])
eight = int(half.cache_bytes(context, 8)) / (
    int(one.cache_bytes(context, 8)) + one.codebook_bytes
)
note("llama_saving_eight", eight)
note("llama_two_bits", rows["GSRQ 2 bits"]["times smaller than FP16 at 8K"])
note("llama_stages", 16)
note("llama_saving_cq", rows["CQ 8c8b, 1 bit"]["times smaller than FP16 at 8K"])
note("llama_read", rows["GSRQ 1 bits"]["codes at 8K (MiB)"])
note("llama_read_half", rows["FP16"]["codes at 8K (MiB)"])
note("kivi_paper", accounts["KIVI-2, window of 128"].paper_bits)
note("kivi_ours", accounts["KIVI-2, window of 128"].bits_per_value)
pd.DataFrame(rows).T.round(3)

# %% mystnb={"image": {"alt": "Lines of effective bits per number against tokens in the batch from 256 to about four million, both axes logarithmic. Each line falls and levels off: those of residual codes start far above sixteen bits because of their codebooks, coupled quantisation starts lower, integers fall a little, because a window stays in full precision. A dotted line marks sixteen bits."}, "figure": {"caption": "Effective bits per number of the cache against all tokens that share the codebooks: codes, side information and FP16 codebooks, for Llama-3-8B's shapes. Exact arithmetic. The lines of 0.75 and 0.375 bits start together, since their codebooks are equally large. Far to the right lie the paper's counts, for KIVI with groups of 128 instead of 32. Not a figure of the paper.", "name": "12_gsrq-fig-bits"}} tags=["hide-input"]
batch = 2 ** np.arange(8, 23)
fig, ax = plotting.figure(width="wide", height=3.8)
for number, (name, account) in enumerate(accounts.items()):
    ax.plot(
        batch,
        account.effective_bits(batch),
        marker=plotting.MARKERS[number % 7],
        markevery=2,
        color=plotting.PALETTE[number % 7],
        linestyle="-" if "GSRQ" in name else "--",
        label=name,
    )
ax.axhline(16, color="0.4", linestyle=":", linewidth=1.2)
ax.text(batch[-1], 17, "FP16", ha="right", fontsize="small")
ax.set(xscale="log", yscale="log", xlabel="tokens in the batch")
ax.set_ylabel("effective bits per number")
ax.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# The paper's one-bit setting has codebooks of {glue:text}`12_gsrq_llama_books:,.0f` MiB. They weigh as much as
# {glue:text}`12_gsrq_llama_books_tokens:,.0f` tokens of the compressed cache, or {glue:text}`12_gsrq_llama_books_half:,.0f`
# tokens in FP16. With one sequence of {glue:text}`12_gsrq_context:,.0f` tokens the cache is not 16 times smaller but
# {glue:text}`12_gsrq_llama_saving:.1f` times ({glue:text}`12_gsrq_llama_effective:.0f` effective bits); eight such sequences that share
# the codebooks, {glue:text}`12_gsrq_llama_saving_eight:.1f` times. At two bits, one sequence with its codebooks is
# {glue:text}`12_gsrq_llama_two_bits:.2f` times smaller. Coupled quantisation {cite}`cq2024` at one nominal bit has
# {glue:text}`12_gsrq_llama_saving_cq:.1f`. Many sequences, or very long ones, earn the codebooks back. KIVI-2 {cite}`kivi2024` is at
# {glue:text}`12_gsrq_kivi_paper:.2f` bits in the paper's tables and at {glue:text}`12_gsrq_kivi_ours:.0f` by our count.
#
# A decoding step reads {glue:text}`12_gsrq_llama_read:.0f` MiB of codes at one bit where FP16 has
# {glue:text}`12_gsrq_llama_read_half:,.0f` MiB of numbers. But it looks up {glue:text}`12_gsrq_llama_stages:.0f` codewords for each
# sub-vector, every one as long as that sub-vector: more numbers than the FP16 cache has, from codebooks of
# {glue:text}`12_gsrq_llama_books:,.0f` MiB, and cheap only if they lie in a fast memory. What that costs in time (C7) is not counted here.

# %% [markdown]
# ## Experiment
#
# Three experiments follow: random vectors, keys and values of a real model as vectors, and the model's loss with coded keys
# and values. Every codebook is also measured on vectors that it was not made from, "held out" or "fresh" below. Losses are in nats
# per token (the logarithm of perplexity), and a cosine is the mean of that between a vector and its codeword. "A less B" is the
# difference of the two, A minus B.
#
# **What was fixed when.** Claims, rules, coded layers, arms and the two texts were fixed before anything ran. Sizes were then cut
# to the time that single fits took: the control chain at some rates only, {glue:text}`12_gsrq_codebook_tokens:,.0f` tokens to fit
# to. What was changed after a first complete run is listed under *What did not hold*, with that run's numbers. The plan:

# %%
channels = lm.config.num_key_value_heads * (
    getattr(lm.config, "head_dim", None)
    or lm.config.hidden_size // lm.config.num_attention_heads
)
synthetic_config = synthetic.ClusteringConfig(
    vectors=synthetic_vectors,
    dimensions=tuple(synthetic_dimensions),
    codewords=tuple(synthetic_codewords),
    seeds=synthetic_seeds,
    large=((large_dimension, large_codewords),),
    large_seeds=large_seeds,
    best_of_dimension=sorted(synthetic_dimensions)[-2:][0],
    iterations=iterations,
)
chain_config = synthetic.ChainConfig(
    vectors=synthetic_vectors,
    settings=tuple(
        zip(chain_dimensions, chain_codewords, chain_stages, chain_seeds, strict=True)
    ),
    iterations=iterations,
)
tensor_config = tensors.TensorConfig(
    dimensions=tuple(tensor_dimensions),
    compared=tuple(sorted({min(tensor_dimensions), *claimed_dimensions})),
    claimed=tuple(claimed_dimensions),
    codewords=tensor_codewords,
    seeds=tensor_seeds,
    train=tensor_tokens,
    iterations=iterations,
)
rate_config = codebooks.RateConfig(
    layers=tuple(layers),
    dimension=dimension,
    codewords=codewords,
    stages=tuple(sorted(stages, reverse=True)),
    control_stages=tuple(sorted(control_stages, reverse=True)),
    seeds=codebook_seeds,
    tokens=codebook_tokens,
    coupled=tuple(zip(coupled_channels, coupled_bits, strict=True)),
    gradient_windows=gradient_windows,
    tau=tau,
    iterations=iterations,
)
fewer = [max(tensor_tokens // 16, tensor_codewords)]  # training tokens of a follow-up
print(
    f"loss: layers {layers if len(layers) < 9 else len(layers)} of {lm.config.num_hidden_layers}, {channels} channels"
    f" in {channels // dimension} sub-vectors of {dimension}, {codebook_tokens / codewords:.0f} tokens per codeword"
)
planned = planning.plan(
    lm,
    synthetic_config,
    chain_config,
    tensor_config,
    rate_config,
    length=window,
    calibration=calibration_windows,
    validation=test_windows,
    test=test_windows,
    transfer=other_windows,
    tensor_layers=len(tensor_layers),
    crowding=fewer,
)
planned = planned.set_index("step")
settings = planned.loc["Losses: test settings"]
again_runs = len(codebooks.WEIGHTS) * codebook_seeds
planned.loc["Follow-ups: losses"] = [
    again_runs,
    again_runs * settings.seconds / settings.runs,
]
planned.loc["total"] = planned.sum()
planned.round(0)

# %% [markdown]
# ### Random vectors
#
# The paper's figure 4 clusters standard normal vectors and measures the codebooks on the very vectors they were made from.
# {numref}`12_gsrq-fig-synthetic` does this with the four arms, and on as many fresh vectors; {glue:text}`12_gsrq_converged:.0f` % of
# the fits settled before the cap on passes.

# %%
with watched("random vectors") as say:
    random_table = synthetic.clustering(synthetic_config, progress=say)
shape = ["dimension", "codewords"]
means = random_table.groupby([*shape, "arm"], sort=False).mean(numeric_only=True)
columns = ["train_nmse", "test_nmse", "train_cosine", "test_cosine", "smallest"]
note("converged", 100 * random_table.converged.mean())
wide_cell = (sorted(synthetic_dimensions)[-2:][0], max(synthetic_codewords))
large_cell = (large_dimension, large_codewords)
for place, cell in (("wide", wide_cell), ("large", large_cell)):
    note(f"{place}_dimension", cell[0])
    note(f"{place}_codewords", cell[1])
    note(f"{place}_bound", synthetic.rate_bound(np.log2(cell[1]) / cell[0]))
    for arm, short in SHORT.items():
        row = means.loc[(*cell, arm)]
        for column in columns:
            note(f"{place}_{short}_{column}", row[column])
best_of = next(name for name in means.index.get_level_values("arm") if "best" in name)
note("best_of_train", means.loc[(*wide_cell, best_of)].train_nmse)
means[["bits", "bound", *columns, "single"]].round(4)

# %% mystnb={"image": {"alt": "Three panels against the dimension: squared error per element, error of the length and one minus the mean cosine, for four arms, solid for training vectors and dashed for fresh ones. The three arms with a spherical start lie on one another; dashed lines lie above solid ones."}, "figure": {"caption": "Standard normal vectors: squared error per element, mean error of the length, and one minus the mean cosine, against D at the same K. Solid: the vectors that were clustered; dashed: fresh ones; bands are the range over seeds. The lines of the three arms with a spherical start lie on one another (re-makes the upper half of the paper's figure 4, with a smaller K; the paper has the solid lines of k-means++ and GSKM).", "name": "12_gsrq-fig-synthetic"}} tags=["hide-input"]
quantities = {
    "mse": "squared error per element",
    "gain_error": "error of the length",
    "cosine": "1 - mean cosine",
}
part = random_table[random_table.codewords == max(synthetic_codewords)]
fig, axes = plotting.figure(1, 3, width="wide", height=3.4)
for ax, (quantity, name) in zip(axes, quantities.items(), strict=True):
    for number, arm in enumerate(SHORT):
        for split, style in (("train", "-"), ("test", "--")):
            grouped = part[part.arm == arm].groupby("dimension")[f"{split}_{quantity}"]
            value, low, high = grouped.mean(), grouped.min(), grouped.max()
            if quantity == "cosine":
                value, low, high = 1 - value, 1 - high, 1 - low
            plotting.band(
                ax,
                value.index,
                low,
                high,
                value=value,
                color=plotting.PALETTE[number],
                marker=plotting.MARKERS[number],
                linestyle=style,
                label=arm if split == "train" else None,
            )
    ax.set(xscale="log", xlabel="dimension D", ylabel=name)
    ticks = sorted(part.dimension.unique())
    ax.set_xticks(ticks, ticks)
    ax.minorticks_off()
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

# %% [markdown]
# Take the cell with $D$ = {glue:text}`12_gsrq_wide_dimension:.0f` and $K$ = {glue:text}`12_gsrq_wide_codewords:.0f`. On the training
# vectors k-means from k-means++ has a normalised error of {glue:text}`12_gsrq_wide_kmeans_train_nmse:.3f` and a mean cosine of
# {glue:text}`12_gsrq_wide_kmeans_train_cosine:.3f`, GSKM {glue:text}`12_gsrq_wide_gskm_train_nmse:.3f` and
# {glue:text}`12_gsrq_wide_gskm_train_cosine:.3f`. This is the paper's comparison. Plain k-means from the *spherical start* has
# {glue:text}`12_gsrq_wide_control_train_nmse:.3f` and {glue:text}`12_gsrq_wide_control_train_cosine:.3f`. The best of five
# starts of k-means++ has {glue:text}`12_gsrq_best_of_train:.3f`.
#
# In the paper's figure 4, GSKM looks best where there are few vectors per codeword. {numref}`12_gsrq-fig-heldout` follows
# $D$ = {glue:text}`12_gsrq_large_dimension:.0f` from few codewords to many.

# %% mystnb={"image": {"alt": "Two panels against the number of codewords, for four arms, solid for training and dashed for fresh vectors. Left: normalised squared error; solid lines fall steeply with more codewords, dashed lines rise, three of them past the dotted line at one. Right: mean cosine, solid lines rise steeply, dashed ones hardly."}, "figure": {"caption": "Normalised squared error and mean cosine of standard normal vectors at the largest D. Solid: training vectors; dashed: fresh ones; dotted: sending zeros; grey: the least error that any code of this rate can have on fresh vectors. Bands are the range over seeds; the three arms with a spherical start lie on one another (re-makes the lower half of the paper's figure 4, with fewer codewords; dashed lines are not in it).", "name": "12_gsrq-fig-heldout"}} tags=["hide-input"]
part = random_table[random_table.dimension == large_dimension]
fig, axes = plotting.figure(1, 2, width="wide", height=3.6)
for ax, quantity in zip(axes, ("nmse", "cosine"), strict=True):
    for number, arm in enumerate(SHORT):
        for split, style in (("train", "-"), ("test", "--")):
            grouped = part[part.arm == arm].groupby("codewords")[f"{split}_{quantity}"]
            plotting.band(
                ax,
                grouped.mean().index,
                grouped.min(),
                grouped.max(),
                value=grouped.mean(),
                color=plotting.PALETTE[number],
                marker=plotting.MARKERS[number],
                linestyle=style,
                label=arm if split == "train" else None,
            )
    ticks = sorted(part.codewords.unique())
    ax.set(xscale="log", xlabel="codewords K")
    ax.set_xticks(ticks, ticks)
    ax.minorticks_off()
bound = part.groupby("codewords").bound.first()
axes[0].plot(bound.index, bound, color="0.6", linewidth=1)
axes[0].axhline(1, color="0.3", linestyle=":", linewidth=1.2)
axes[0].set_ylabel("normalised squared error")
axes[1].set_ylabel("mean cosine")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

# %% [markdown]
# With {glue:text}`12_gsrq_large_codewords:,.0f` codewords GSKM has {glue:text}`12_gsrq_large_gskm_train_nmse:.3f` on the vectors it
# was made from, and {glue:text}`12_gsrq_large_gskm_test_nmse:.3f` on fresh ones, where 1 is *sending zeros*; k-means from
# k-means++ {glue:text}`12_gsrq_large_kmeans_train_nmse:.3f` and {glue:text}`12_gsrq_large_kmeans_test_nmse:.3f`, from the spherical
# start {glue:text}`12_gsrq_large_control_train_nmse:.3f` and {glue:text}`12_gsrq_large_control_test_nmse:.3f`. No code of this
# rate sends fresh vectors with less than {glue:text}`12_gsrq_large_bound:.3f` {cite}`cover2006`; a training error far below
# that is memory. The cosine is still better on fresh vectors ({glue:text}`12_gsrq_large_gskm_test_cosine:.3f` against
# {glue:text}`12_gsrq_large_kmeans_test_cosine:.3f`, and {glue:text}`12_gsrq_large_control_test_cosine:.3f` for the control).
# Independent Gaussian numbers have no directions to find, so this says how the arms overfit, not how they compress. The best figures
# on random vectors are memory. From here on all claims are judged on what was held out, except C1, which is about the codebook
# itself.
#
# ### Residual chains, and lengths that differ
#
# Now chains, on two kinds of vectors. The first is Gaussian again. The second lies in a subspace of {glue:text}`12_gsrq_chain_rank:.0f`
# of the {glue:text}`12_gsrq_chain_dimension:.0f` dimensions, and each vector is multiplied by a lognormal gain (the standard deviation of
# its logarithm is {glue:text}`12_gsrq_chain_log_sd:g`): data that is *made for* gain-shape codes. {numref}`12_gsrq-fig-chains` shows the
# error of every prefix of the chain.

# %%
with watched("chains") as say:
    chain_table = synthetic.chains(chain_config, progress=say)
last = chain_table[
    chain_table.stage == chain_table.groupby("dimension").stage.transform("max")
]
cell = ["data", "dimension", "codewords"]
chain_rows = []
for name, part in last.groupby(cell, sort=False):
    for other in ("k-means++", "k-means, spherical start"):
        row = dict(zip(cell, name, strict=True)) | {"GSKM less": other}
        for column in ("train_nmse", "test_nmse", "test_cosine"):
            compared = less(part, column, "GSKM", other, unit=["seed"])
            interval = stats.t_interval(compared)
            row[column] = (
                f"{interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]"
            )
            if name[1] == chain_dimensions[0]:
                kind = "random" if name[0] == "gaussian" else "made"
                note_range(f"chain_{kind}_{SHORT[other]}_{column}", interval, 4)
                told(f"chain_{kind}_{SHORT[other]}_{column}", interval)
        chain_rows.append(row)
note("chain_dimension", chain_dimensions[0])
note("chain_rank", max(1, chain_dimensions[0] // 4))
note("chain_log_sd", chain_config.log_sd)
note("chain_codewords", chain_codewords[0])
note("chain_stages", chain_stages[0])
note("chain_seeds", chain_seeds[0])
note("chain_smallest", last[last.arm == "k-means++"].single.max())
chain_means = last.groupby([*cell, "arm"], sort=False)
display(
    chain_means[["train_nmse", "test_nmse", "test_cosine", "smallest", "single"]]
    .mean()
    .round(4)
)
pd.DataFrame(chain_rows).set_index([*cell, "GSKM less"])

# %% mystnb={"image": {"alt": "Four panels against the number of stages: normalised squared error above and mean cosine below, Gaussian vectors left, low-rank vectors with lognormal gains right; three arms, solid for training and dashed for fresh vectors."}, "figure": {"caption": "Residual chains: normalised squared error and mean cosine after each stage, on Gaussian vectors and on vectors in a quarter of the dimensions with lognormal gains. Solid: training vectors; dashed: fresh ones; bands are the range over seeds. Not a figure of the paper.", "name": "12_gsrq-fig-chains"}} tags=["hide-input"]
part = chain_table[chain_table.dimension == chain_dimensions[0]]
fig, axes = plotting.figure(2, 2, width="text", height=4.6, sharex=True, sharey="row")
for column, kind in enumerate(chain_config.data):
    for row, (quantity, name) in enumerate(
        {"nmse": "normalised squared error", "cosine": "mean cosine"}.items()
    ):
        ax = axes[row, column]
        for number, arm in enumerate(part.arm.unique()):
            chosen = part[(part.data == kind) & (part.arm == arm)]
            for split, style in (("train", "-"), ("test", "--")):
                grouped = chosen.groupby("stage")[f"{split}_{quantity}"]
                plotting.band(
                    ax,
                    grouped.mean().index,
                    grouped.min(),
                    grouped.max(),
                    value=grouped.mean(),
                    color=plotting.PALETTE[number],
                    marker=plotting.MARKERS[number],
                    linestyle=style,
                    label=arm if split == "train" else None,
                )
        if column == 0:
            ax.set_ylabel(name)
    axes[0, column].set_title(
        "Gaussian" if kind == "gaussian" else "low rank, lognormal gain"
    )
    axes[1, column].set_xlabel("stages")
    axes[1, column].set_xticks(sorted(part.stage.unique()))
fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

# %% [markdown]
# The table has the differences after {glue:text}`12_gsrq_chain_stages:.0f` stages at $D$ = {glue:text}`12_gsrq_chain_dimension:.0f` and
# $K$ = {glue:text}`12_gsrq_chain_codewords:.0f`, with Student's intervals over {glue:text}`12_gsrq_chain_seeds:.0f` seeds. Two of them carry
# the argument. On fresh vectors made for it, GSKM's error differs from that of k-means from k-means++, the paper's comparison, by
# {glue:text}`12_gsrq_chain_made_kmeans_test_nmse:.4f` {glue:text}`12_gsrq_chain_made_kmeans_test_nmse_range`, and from the control's by
# {glue:text}`12_gsrq_chain_made_control_test_nmse:.4f` {glue:text}`12_gsrq_chain_made_control_test_nmse_range`: the first interval
# {glue:text}`12_gsrq_chain_made_kmeans_test_nmse_told` zero, the second {glue:text}`12_gsrq_chain_made_control_test_nmse_told` it.
#
# The *training* error of the second comparison differs by {glue:text}`12_gsrq_chain_made_control_train_nmse:.4f`
# {glue:text}`12_gsrq_chain_made_control_train_nmse_range`. The unit rule does not minimise squared error on the vectors that it sees. Where
# its error on fresh vectors is the lower one all the same, one reading is that it does not chase the few long vectors; we did not
# test it. Where many codewords stand for one vector (column `single`), a chain memorises; chains from k-means++ are prone to it,
# and differ most between draws. A setting with longer vectors was tried once and cut (see *What did not hold*). Whether keys and values are of this kind is
# not for random vectors to say.

# %% [markdown]
# ### Keys and values as vectors
#
# The real vectors are keys before the rotary embedding {cite}`rope2021` and values of SmolLM2-135M-Instruct {cite}`smollm2` (or
# the model of `language_model`), with the heads side by side, read while it sees {glue:text}`12_gsrq_text`, a text that differs between
# versions of Python; the SHA-256 of this one begins with {glue:text}`12_gsrq_sha256`. With them go the *first residuals*, what one stage
# of k-means leaves of them. (The keys behind the paper's released figure 5 are those *after* the rotation.) First the paper's
# figure 2: does the mean shrink with $D$?

# %%
with watched("keys and values") as say:
    held = calibration.calibrate(
        lm,
        text.calibration,
        tensor_layers,
        gradient_windows=gradient_windows,
        progress=say,
    )
with watched("tensors") as say:
    tensor_table = tensors.study(held.states, tensor_config, progress=say)
units = tensors.claim_units(tensor_table, tensor_config)
found = {name: interval_of(values) for name, values in units.items()}
for name, digits in {"C1": 3, "C2": 4, "C2b": 4, "C3": 4, "C9": 4}.items():
    ledger.judge(name, value=found[name].value, interval=found[name].interval)
    note_range(name.lower(), found[name], digits)
ended = tensor_table[(tensor_table.arm == "k-means++") & tensor_table.converged]
note("identity", (ended.shrinkage + ended.train_nmse - 1).abs().max())
note("identity_rows", len(ended))
for kind in ("key", "key, centred"):
    fall = interval_of(tensors.shrinkage_fall(tensor_table, kind).to_numpy())
    note_range(f"c1_{kind.replace(', ', '_')}", fall, 3)
for kind in ("key", "value"):
    deep = tensors.shrinkage_fall(tensor_table, kind, "residual").to_numpy()
    note_range(f"c1_{kind}_residual", interval_of(deep), 3)
plain = tensor_table[tensor_table.arm == "k-means++"]
by_size = plain.groupby(["kind", "source", "dimension"], sort=False).shrinkage.mean()
ends = [min(tensor_dimensions), max(tensor_dimensions)]
note("least_dimension", ends[0])
note("most_dimension", ends[1])
for kind in ("key", "value"):
    for size, at in zip(ends, ("least", "most"), strict=True):
        note(f"rho_{kind}_{at}", by_size[kind, "original", size])
note("tensor_units", len(units["C2"]))
by_size.unstack("dimension").round(3)

# %% mystnb={"image": {"alt": "Two panels of the shrinkage ratio against the dimension of sub-vectors, logarithmic. Left: keys, keys without each channel's mean, and values. Right: first residuals of keys and values. Crosses of one minus the normalised error lie on every line."}, "figure": {"caption": "Shrinkage ratio of k-means (lines; bands are the range over layers, positions and seeds) and one minus the normalised squared error (crosses) against D (re-makes the paper's figure 2).", "name": "12_gsrq-fig-shrinkage"}} tags=["hide-input"]
fig, axes = plotting.figure(1, 2, width="wide", height=3.6, sharey=True)
for ax, source in zip(axes, tensors.SOURCES, strict=True):
    part = plain[plain.source == source]
    for number, kind in enumerate(part.kind.unique()):
        grouped = part[part.kind == kind].groupby("dimension")
        rho, explained = grouped.shrinkage, 1 - grouped.train_nmse.mean()
        plotting.band(
            ax,
            rho.mean().index,
            rho.min(),
            rho.max(),
            value=rho.mean(),
            color=plotting.PALETTE[number],
            marker=plotting.MARKERS[number],
            label={"key, centred": "keys, centred"}.get(kind, f"{kind}s"),
        )
        ax.plot(explained.index, explained, "x", color="black", markersize=8)
    ax.set(xscale="log", xlabel="dimension D of a sub-vector")
    ax.set_title("originals" if source == "original" else "first residuals")
    ax.set_xticks(tensor_dimensions, tensor_dimensions)
    ax.minorticks_off()
    ax.legend()
axes[0].set_ylabel(r"$\rho$ (lines), 1 - NMSE (crosses)")
plt.show()

# %% [markdown]
# For values $\rho$ goes from {glue:text}`12_gsrq_rho_value_least:.2f` at $D$ = {glue:text}`12_gsrq_least_dimension:.0f` to
# {glue:text}`12_gsrq_rho_value_most:.2f` at {glue:text}`12_gsrq_most_dimension:.0f`; the fall is {glue:text}`12_gsrq_c1:.3f`
# {glue:text}`12_gsrq_c1_range` (C1). Keys have a large constant offset per channel, and one codeword can hold that: theirs go from
# {glue:text}`12_gsrq_rho_key_least:.2f` to {glue:text}`12_gsrq_rho_key_most:.2f` (fall {glue:text}`12_gsrq_c1_key:.3f`
# {glue:text}`12_gsrq_c1_key_range`); without each channel's mean the fall is {glue:text}`12_gsrq_c1_key_centred:.3f`
# {glue:text}`12_gsrq_c1_key_centred_range`. First residuals fall by {glue:text}`12_gsrq_c1_value_residual:.3f`
# {glue:text}`12_gsrq_c1_value_residual_range` (values) and {glue:text}`12_gsrq_c1_key_residual:.3f`
# {glue:text}`12_gsrq_c1_key_residual_range` (keys). The crosses are where {eq}`12_gsrq-eq-pythagoras` puts them: over
# {glue:text}`12_gsrq_identity_rows:.0f` converged fits $\rho+\text{NMSE}$ is off one by at most
# {glue:text}`12_gsrq_identity:.0e`. So C1 says, in other words, that the same number of codewords leaves a larger relative error
# when a sub-vector is longer.
#
# ### Does GSKM find better directions?
#
# {numref}`12_gsrq-fig-tensors` re-makes the paper's figure 5 as differences to k-means from k-means++, because they are too small to be
# seen in the numbers themselves.

# %% mystnb={"image": {"alt": "Eight panels against the dimension of sub-vectors: columns are keys, values, first residuals of keys and of values. Above: squared error of GSKM over that of k-means++, training and held-out, and those of the control arm. Below: the difference in mean cosine."}, "figure": {"caption": "GSKM against k-means from k-means++ on keys, values and their first residuals: ratio of squared errors (above, lower is better) and difference of mean cosines (below, higher is better). Solid: training vectors; dashed: held-out ones; dotted and dash-dotted: the control, k-means from the spherical start, at the sizes where it was run. Bands are the range over layers and positions (re-makes the paper's figure 5, as differences).", "name": "12_gsrq-fig-tensors"}} tags=["hide-input"]
tensor_kinds = [
    (kind, source) for source in tensors.SOURCES for kind in ("key", "value")
]
fig, axes = plotting.figure(
    2, len(tensor_kinds), width="wide", height=4.6, sharex=True, sharey="row"
)
lines = {
    "GSKM, training": ("train", "GSKM", "-"),
    "GSKM, held out": ("test", "GSKM", "--"),
    "control, training": ("train", "k-means, spherical start", "-."),
    "control, held out": ("test", "k-means, spherical start", ":"),
}
for column, (kind, source) in enumerate(tensor_kinds):
    part = tensor_table[(tensor_table.kind == kind) & (tensor_table.source == source)]
    for number, (label, (split, arm, style)) in enumerate(lines.items()):
        there = part[part.dimension.isin(part[part.arm == arm].dimension.unique())]
        there = there[there.position < tensor_config.positions]
        for row, quantity in enumerate(("mse", "cosine")):
            how = (lambda a, b: a / b) if quantity == "mse" else None
            compared = arms.paired(
                there,
                f"{split}_{quantity}",
                arm,
                "k-means++",
                unit=["dimension", "layer", "position"],
                how=how,
            ).groupby("dimension")
            plotting.band(
                axes[row, column],
                compared.mean().index,
                compared.min(),
                compared.max(),
                value=compared.mean(),
                color=plotting.PALETTE[number],
                marker=plotting.MARKERS[number],
                linestyle=style,
                label=label,
            )
    axes[0, column].set_title(
        f"{kind}s" + (", residual" if source == "residual" else "")
    )
    axes[0, column].axhline(1, color="0.4", linewidth=1)
    axes[1, column].axhline(0, color="0.4", linewidth=1)
    axes[1, column].set(xscale="log", xlabel="dimension D")
    marked = sorted({ends[0], *claimed_dimensions, ends[1]})
    axes[1, column].set_xticks(marked, marked)
    axes[1, column].minorticks_off()
axes[0, 0].set_ylabel("ratio of squared errors")
axes[1, 0].set_ylabel("difference of mean cosines")
fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

# %%
unit = list(tensors.UNIT)
real_rows = tensors.claimed_rows(tensor_table, tensor_config)
tensor_rows = {}
for source in tensors.SOURCES:
    for size in claimed_dimensions:
        part = real_rows[(real_rows.source == source) & (real_rows.dimension == size)]
        for other in ("k-means++", "k-means, spherical start"):
            row = {}
            for column in ("train_cosine", "test_cosine", "train_nmse", "test_nmse"):
                compared = less(part, column, "GSKM", other, unit=unit)
                interval = interval_of(compared)
                row[column] = (
                    f"{interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]"
                )
            tensor_rows[source, size, other] = row
control_nmse = arms.paired(
    real_rows, "test_nmse", "GSKM", "k-means, spherical start", unit=unit
)
note_range("c9_nmse", interval_of(control_nmse.to_numpy()), 4)
begun = arms.paired(
    real_rows, "test_cosine", "k-means, spherical start", "k-means++", unit=unit
)
note_range("start_cosine", interval_of(begun.to_numpy()), 4)
told("c9", found["C9"])
told("start_cosine", interval_of(begun.to_numpy()))
told("c9_nmse", interval_of(control_nmse.to_numpy()))
kind_rows = {}
for source in tensors.SOURCES:
    levels = real_rows[(real_rows.arm == "k-means++") & (real_rows.source == source)]
    note(f"level_{source}_low", levels.groupby("kind").test_cosine.mean().min())
    note(f"level_{source}_high", levels.groupby("kind").test_cosine.mean().max())
    for kind in ("key", "value"):
        part = real_rows[(real_rows.source == source) & (real_rows.kind == kind)]
        ratio = arms.paired(
            part, "test_mse", "GSKM", "k-means++", unit=unit, how=lambda a, b: a / b
        )
        gain = interval_of(less(part, "test_cosine", "GSKM", "k-means++", unit=unit))
        note_range(f"c2_{kind}_{source}", gain, 4)
        kind_rows[f"{kind}s" + (", residual" if source == "residual" else "")] = {
            "cosine of k-means++": f"{levels[levels.kind == kind].test_cosine.mean():.3f}",
            "GSKM less it (C2)": show(gain),
            "GSKM less control (C9)": show(
                interval_of(
                    less(
                        part,
                        "test_cosine",
                        "GSKM",
                        "k-means, spherical start",
                        unit=unit,
                    )
                )
            ),
            "error over that of k-means++ (C2b)": show(interval_of(ratio.to_numpy())),
        }
plainly = arms.paired(
    real_rows[real_rows.source == "original"],
    "test_mse",
    "GSKM",
    "k-means++",
    unit=unit,
    how=lambda a, b: a / b,
)
note_range("c2b_original", interval_of(plainly.to_numpy()), 4)
deep_rows = real_rows[
    (real_rows.source == "residual") & (real_rows.dimension == max(claimed_dimensions))
]
note_range(
    "c3_train",
    interval_of(less(deep_rows, "train_nmse", "GSKM", "k-means++", unit=unit)),
    4,
)
note("claimed_most", max(claimed_dimensions))
display(pd.DataFrame(kind_rows).T)
frame = pd.DataFrame(tensor_rows).T
frame.index.names = ["vectors", "D", "GSKM less"]
frame

# %% [markdown]
# Over {glue:text}`12_gsrq_tensor_units:.0f` layers (Student's intervals; keys and values, originals and residuals, sizes and positions
# of a layer are averaged first), GSKM less k-means from k-means++ is {glue:text}`12_gsrq_c2:.4f` {glue:text}`12_gsrq_c2_range` in
# held-out cosine (C2). The levels are {glue:text}`12_gsrq_level_original_low:.2f` to {glue:text}`12_gsrq_level_original_high:.2f` for
# originals and {glue:text}`12_gsrq_level_residual_low:.2f` to {glue:text}`12_gsrq_level_residual_high:.2f` for residuals, and the mean
# hides where the gain is: {glue:text}`12_gsrq_c2_key_original:.4f` on keys and {glue:text}`12_gsrq_c2_value_original:.4f` on values as they
# are, {glue:text}`12_gsrq_c2_key_residual:.4f` and {glue:text}`12_gsrq_c2_value_residual:.4f` on their residuals.
#
# The ratio of held-out squared errors is {glue:text}`12_gsrq_c2b:.4f` {glue:text}`12_gsrq_c2b_range` (C2b), on originals alone, where the
# paper's figure is, {glue:text}`12_gsrq_c2b_original:.4f` {glue:text}`12_gsrq_c2b_original_range`. On residuals at
# $D$ = {glue:text}`12_gsrq_claimed_most:.0f`, where the paper finds the squared error to fall, the difference in held-out normalised error is
# {glue:text}`12_gsrq_c3:.4f` {glue:text}`12_gsrq_c3_range` (C3). On the *training* vectors, where the paper measures, it is
# {glue:text}`12_gsrq_c3_train:.4f` {glue:text}`12_gsrq_c3_train_range`. As far as the first is the lower one, the gain is one of
# generalising; and the paper's released figures are those of the sum rule, and of keys after the rotary embedding.
#
# How much of this is the update, and how much the start? The control tells: k-means from the spherical start less
# k-means from k-means++ is {glue:text}`12_gsrq_start_cosine:.4f` {glue:text}`12_gsrq_start_cosine_range` in held-out cosine, which
# {glue:text}`12_gsrq_start_cosine_told` zero. GSKM less that control is {glue:text}`12_gsrq_c9:.4f` {glue:text}`12_gsrq_c9_range` (C9), which
# {glue:text}`12_gsrq_c9_told` zero, and in normalised squared error {glue:text}`12_gsrq_c9_nmse:.4f` {glue:text}`12_gsrq_c9_nmse_range`, which
# {glue:text}`12_gsrq_c9_nmse_told` it (above zero, the update costs error).
#
# C2 and C3 are claims against k-means from k-means++, and C9 does not touch their verdicts. The start is part of GSKM as the paper has
# it; the control says how much of the gain any k-means can have by starting on the sphere.
#
# ### Loss against bits
#
# Now the model itself. Keys and values of the layers in `layers` are replaced by what is read back from the codes, for all
# tokens, and the model predicts {glue:text}`12_gsrq_test_tokens:,.0f` tokens of a part of the text that neither the codebooks nor any
# choice has seen. *Most layers stay in full precision*, so a loss here is that of a partly coded cache, and smaller than a
# wholly coded one's. Beside the chains stand coupled quantisation (CQ-2c4b is one code of 4 bits for 2 channels)
# {cite}`cq2024`, here without the Fisher weights of its authors ("uniform"), and KIVI-style integers {cite}`kivi2024`, per channel for keys
# and per token for values, with no window of full precision either. The paper's other baselines, VQLLM and AnTKV (product codes by
# weighted k-means), were not run. The chain called GSKM is GSRQ without weights, as in the
# paper's table 1, whose lowest-rate figure is the unweighted one. Every method has *one start* here; lines that are not
# monotone in bits show what one start and {glue:text}`12_gsrq_test_tokens:,.0f` tokens are worth.

# %%
with watched("codebooks") as say:
    made = codebooks.fit(
        lm, text.calibration, rate_config, calibration=held, progress=say
    )
with watched("losses") as say:
    evaluators = {
        "validation": language.Evaluator(lm, text.validation, min(layers)),
        "test": language.Evaluator(lm, text.test, min(layers)),
    }
    rate_table = rates.compare(made, evaluators, rate_config, progress=say)
    kind_table = rates.compare_kinds(
        made, evaluators["test"], rate_config, progress=say
    )
    weight_table = rates.compare_weights(
        made, evaluators["test"], rate_config, progress=say
    )
tested = rate_table[rate_table.split == "test"]
by_block = tested.groupby(["method", "rate", "paper_bits", "block"], sort=False).loss
by_block = by_block.mean().unstack("block")
plain_loss = by_block.loc["full precision"].iloc[0]
added = by_block - plain_loss
added_interval = stats.bootstrap_interval(
    np.mean, added.to_numpy(), seed=seed, resamples=resamples
)
rate_frame = pd.DataFrame(
    {
        "loss added": added_interval.value,
        "low": added_interval.low,
        "high": added_interval.high,
        "perplexity": np.exp(by_block.mean(axis=1)),
    },
    index=by_block.index,
)
held_stages = tested.groupby(["method", "rate", "paper_bits"]).stages.first()
books = {}
for name in rate_frame.index:
    books[name] = 0.0
    if name[0] in arms.ARMS:
        books[name] = bits.residual(
            channels,
            dimension=dimension,
            stages=int(held_stages[name]),
            codewords=codewords,
            layers=len(layers),
        ).codebook_bytes
    for several, width in rate_config.coupled:
        if name[0] == codebooks.coupled_name(several, width):
            books[name] = bits.coupled(
                channels, coupled_channels=several, bits=width, layers=len(layers)
            ).codebook_bytes
rate_frame["codebooks (KiB)"] = pd.Series(books) / 1024
wider = rate_frame["codebooks (KiB)"].to_dict()
ratios = [
    wider[name] / wider[other]
    for name in wider
    for other in wider
    if name[0] == "GSKM" and other[0].startswith("CQ") and name[1:] == other[1:]
]
note("books_least", min(ratios, default=float("nan")))
note("books_most", max(ratios, default=float("nan")))
note("test_tokens", text.test.numel())
note("full_loss", plain_loss.mean())
note("blocks", len(plain_loss))
rate_frame.round(4)

# %% mystnb={"image": {"alt": "Loss added by coding against bits per number, with bars of uncertainty; bits are logarithmic, the loss is linear near zero and logarithmic above: lines of three residual chains and of coupled quantisation fall with more bits; diamonds for integers, filled where all their bits are counted and hollow where the paper counts them, joined by dashed lines."}, "figure": {"caption": "Loss that coding adds, against bits per number (side information counted, codebooks not), with 95 % bootstrap intervals over blocks of tokens; only the layers of `layers` are coded. Losses below 0.02 are on a linear scale, those above on a logarithmic one. Bars of two methods are not paired: compare chains by the differences in the next table. Integers stand at their bits by our count (filled) and by the paper's (hollow). Re-makes the curve behind the paper's table 1.", "name": "12_gsrq-fig-rates"}} tags=["hide-input"]
fig, ax = plotting.figure(width="wide", height=4.4)
curves = {
    **{arm: rate_frame.loc[[arm]] for arm in list(SHORT)[:3]},
    "CQ": rate_frame[[name[0].startswith("CQ") for name in rate_frame.index]],
}
for number, (name, part) in enumerate(curves.items()):
    part = part.sort_index(level="rate")
    place = part.index.get_level_values("rate") * (1 + 0.012 * (number - 1.5))
    value = part["loss added"]
    ax.errorbar(
        place,
        value,
        yerr=[value - part.low, part.high - value],
        marker=plotting.MARKERS[number],
        color=plotting.PALETTE[number],
        linestyle=("-", ":", "--", "-.")[number],
        capsize=2,
        label=name,
    )
for number, width in enumerate(rate_config.integers):
    part = rate_frame.loc[[f"KIVI-{width}"]]
    value = part["loss added"].iloc[0]
    ours, theirs = (part.index.get_level_values(n)[0] for n in ("rate", "paper_bits"))
    color = plotting.PALETTE[4 + number]
    ax.plot([theirs, ours], [value] * 2, "--", color=color, linewidth=1)
    ax.plot(theirs, value, "D", color=color, markerfacecolor="white")
    ax.errorbar(
        ours,
        value,
        yerr=[[value - part.low.iloc[0]], [part.high.iloc[0] - value]],
        marker="D",
        color=color,
        linestyle="",
        capsize=2,
        label=f"KIVI-{width}",
    )
ax.axhline(0, color="0.4", linewidth=1)
ax.set_xscale("log")
ticks = sorted(
    {round(r, 3) for r in rate_frame.index.get_level_values("rate")} - {16.0}
)
ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
ax.minorticks_off()
ax.set_yscale("symlog", linthresh=0.02)
heights = [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
ax.set_yticks(heights, [f"{tick:g}" for tick in heights])
ax.set_ylim(bottom=1.3 * min(0, rate_frame.low.min()) - 0.002)
ax.set(xlabel="bits per number", ylabel="loss added (nats per token)")
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %%
rate_rows = {}
least_favourable = None
against_cq, against_kmeans, controls = [], [], []
CONTROL = "k-means, spherical start"
for rate in rates.rate_units(rate_table):
    interval = interval_of(rate.differences)
    against = tested[(tested["rate"] - rate.rate).abs() < 1e-9]
    own = against.groupby(["method", "seed", "block"]).loss.mean().sort_index()
    there = own.index.unique("method")

    def difference(first, second, own=own):
        """Loss of one method less that of another, first seed, over blocks."""
        return interval_of((own[first, 0] - own[second, 0]).to_numpy())

    row = {
        "best baseline on validation": rate.baseline,
        "GSKM less it": show(interval),
    }
    coupled_here = [name for name in there if name.startswith("CQ")]
    row["GSKM less CQ of this rate"] = "not run"
    if coupled_here:
        against_cq.append(difference("GSKM", coupled_here[0]))
        row["GSKM less CQ of this rate"] = show(against_cq[-1])
    against_kmeans.append(difference("GSKM", "k-means++"))
    row["GSKM less k-means++ chain"] = show(against_kmeans[-1])
    row["GSKM less control chain"] = row["control less k-means++ chain"] = "not run"
    if CONTROL in there:
        controls += [difference("GSKM", CONTROL), difference(CONTROL, "k-means++")]
        row["GSKM less control chain"] = show(controls[-2])
        row["control less k-means++ chain"] = show(controls[-1])
    rate_rows[f"{rate.rate:g} bits"] = row
    if least_favourable is None or interval.high > least_favourable[1].high:
        least_favourable = (rate, interval)
rate, c5 = least_favourable
ledger.judge(
    "C5",
    value=c5.value,
    interval=c5.interval,
    note=f"at {rate.rate:g} bits, against {rate.baseline}",
)
chosen = [row["best baseline on validation"] for row in rate_rows.values()]
note("kmeans_chosen", chosen.count("k-means++"))
note("rates", len(chosen))
note("cq_rates", len(against_cq))
note("cq_lower", sum(found.value < 0 for found in against_cq))
note("cq_told", sum(excludes(found) for found in against_cq))
note("kmeans_told", sum(excludes(found) for found in against_kmeans))
note("controls", len(controls))
note("controls_told", sum(excludes(found) for found in controls))
note_range("kmeans_lowest", against_kmeans[-1], 4)
# Perplexities of Llama-3-8B on WikiText-2 in the paper's tables 1 and 6, unweighted.
PAPER = {
    2.0: {"CQ": 6.09, "k-means chain": 6.21, "GSKM": 5.91},
    1.0: {"CQ": 9.56, "k-means chain": 7.95, "GSKM": 7.20},
    0.75: {"CQ": 11.18, "k-means chain": 9.49, "GSKM": 8.46},
    0.375: {"CQ": 22.80, "k-means chain": 19.50, "GSKM": 12.77},
}
nats = np.log(pd.DataFrame(PAPER).T)
printed = pd.DataFrame(
    {
        "CQ less k-means chain": nats["CQ"] - nats["k-means chain"],
        "k-means chain less GSKM": nats["k-means chain"] - nats["GSKM"],
        "CQ less GSKM": nats["CQ"] - nats["GSKM"],
    }
)
printed.index.name = "bits, the paper's tables"
for name, bits_there in {"two": 2.0, "one": 1.0, "least": 0.375}.items():
    for short, gain in zip(
        ("chain", "gskm", "all"), printed.loc[bits_there], strict=True
    ):
        note(f"printed_{name}_{short}", gain)
note("c5_rate", rate.rate)
note("c5_baseline", rate.baseline)
note_range("c5", c5, 4)
loss_units = rates.claim_units(rate_table, kind_table, weight_table)
loss_found = {name: interval_of(values) for name, values in loss_units.items()}


def weighting(tables, name):
    """Loss with a weighting less that without, codebook seeds by blocks."""
    changes = []
    for table in tables:
        loss = table.pivot_table(
            index=["weights", "seed"], columns="block", values="loss"
        )
        changes.append((loss.loc[name] - loss.loc["none"]).to_numpy())
    return np.concatenate(changes, axis=1)


def crossed(changes):
    """Interval of a mean over seeds and blocks; both are resampled."""

    def mean(starts, blocks, axis=-1):
        starts, blocks = starts.astype(int), blocks.astype(int)
        return changes[starts[..., :, None], blocks[..., None, :]].mean((-2, -1))

    counted = (np.arange(size) for size in changes.shape)
    return stats.bootstrap_interval(
        mean, *counted, paired=False, seed=seed, resamples=resamples
    )


for claim, name in (("C6", "log"), ("C6b", "raw")):
    loss_found[claim] = crossed(weighting([weight_table], name))
for name in ("C6", "C6b", "C8"):
    interval = loss_found[name]
    ledger.judge(name, value=interval.value, interval=interval.interval)
    note_range(name.lower(), interval, 4)
note_range("c9_loss", loss_found["C9"], 4)
told("c9_loss", loss_found["C9"])
note("c6_paper", ledger.paper("C6").value)
note("c6b_paper", ledger.paper("C6b").value)
note("c8_paper", ledger.paper("C8").value)
display(pd.DataFrame(rate_rows).T)
printed.round(3)

# %% [markdown]
# Without codes the loss is {glue:text}`12_gsrq_full_loss:.3f` nats per token. At each rate the table names the baseline that was
# best on the validation windows, among those whose bits fit the rate. A chain of plain k-means, which is the paper's *ablation*,
# counts among them; it was chosen at {glue:text}`12_gsrq_kmeans_chosen:.0f` of {glue:text}`12_gsrq_rates:.0f` rates. The judged interval is
# the worst of these: at {glue:text}`12_gsrq_c5_rate:g` bits, against {glue:text}`12_gsrq_c5_baseline`, {glue:text}`12_gsrq_c5:.4f`
# {glue:text}`12_gsrq_c5_range` (C5).
#
# Against CQ, the published baseline that was run (without its Fisher weights), GSKM's loss is lower at
# {glue:text}`12_gsrq_cq_lower:.0f` of {glue:text}`12_gsrq_cq_rates:.0f` rates; at {glue:text}`12_gsrq_cq_told:.0f` of them the interval excludes
# zero. Equal bits are not equal memory: GSKM's codebooks are {glue:text}`12_gsrq_books_least:.0f` to
# {glue:text}`12_gsrq_books_most:.0f` times as large as those of CQ at the same rate (last column of the table before), and no rate here
# counts them.
#
# Against the control chain, same start and plain means, the difference over the rates where both were run is
# {glue:text}`12_gsrq_c9_loss:.4f` {glue:text}`12_gsrq_c9_loss_range`, the loss beside C9; it {glue:text}`12_gsrq_c9_loss_told` zero. The interval
# of GSKM less the chain of plain k-means excludes zero at {glue:text}`12_gsrq_kmeans_told:.0f` of {glue:text}`12_gsrq_rates:.0f` rates, and
# {glue:text}`12_gsrq_controls_told:.0f` of {glue:text}`12_gsrq_controls:.0f` intervals with the control chain do. Where none does, neither
# the start nor the update can be told from nothing in the loss: what C9 says in cosine is too small to be seen in
# {glue:text}`12_gsrq_test_tokens:,.0f` tokens.
#
# In the paper's tables two things are gained at once: from CQ to a chain of plain k-means, and from that to GSKM. The second table
# sets them apart, in nats of Llama-3-8B. At one bit the chain alone brings {glue:text}`12_gsrq_printed_one_chain:.2f` of
# {glue:text}`12_gsrq_printed_one_all:.2f`; at 0.375 bits it brings {glue:text}`12_gsrq_printed_least_chain:.2f` of
# {glue:text}`12_gsrq_printed_least_all:.2f`, and GSKM {glue:text}`12_gsrq_printed_least_gskm:.2f`; at two bits it brings
# {glue:text}`12_gsrq_printed_two_chain:.2f` and GSKM {glue:text}`12_gsrq_printed_two_gskm:.2f`. Here the second step, at the lowest rate and with
# {glue:text}`12_gsrq_coded_layers:.0f` of {glue:text}`12_gsrq_all_layers:.0f` layers coded, is {glue:text}`12_gsrq_kmeans_lowest:.4f`
# {glue:text}`12_gsrq_kmeans_lowest_range`.
#
# ### Keys, values and weights
#
# The paper's ablation codes keys alone and values alone at its lowest rate, and weights the training vectors by their
# gradients. {numref}`12_gsrq-fig-ablation` re-makes it. Weighted and unweighted codebooks are fitted to the same tokens, those
# that have gradients, with {glue:text}`12_gsrq_codebook_seeds:.0f` seeds each; keys alone and values alone are coded with one seed.

# %% mystnb={"image": {"alt": "Two panels of bars with intervals and a point for each codebook seed. Left: loss added at the lowest rate by k-means++ and GSKM chains with keys and values, keys alone, values alone coded. Right: loss added by GSKM fitted to fewer tokens without weights, with log weights and with raw weights."}, "figure": {"caption": "Loss added at the lowest rate: what is coded (left) and how vectors are weighted (right, codebooks fitted to the tokens with gradients). Bars: mean with 95 % bootstrap intervals over blocks, on the left of one codebook seed, on the right of several; points: single seeds (re-makes the paper's table 6).", "name": "12_gsrq-fig-ablation"}} tags=["hide-input"]


def bars(ax, at, part, color, label=None):
    """A bar of added loss with its interval, and a point for each seed."""
    table = part.pivot_table(index="seed", columns="block", values="loss") - plain_loss
    interval = interval_of(table.mean().to_numpy())
    ax.bar(
        at,
        interval.value,
        0.36,
        yerr=[[interval.value - interval.low], [interval.high - interval.value]],
        color=color,
        capsize=3,
        label=label,
    )
    points = table.mean(axis=1)
    ax.plot([at] * len(points), points, "o", color="white", markeredgecolor="black")
    return interval


lowest = tested[(tested.stages == min(stages)) & (tested.seed >= 0)]
fig, (left, right) = plotting.figure(1, 2, width="wide", height=3.8, sharey=True)
settings = {"keys and values": lowest, "keys": None, "values": None}
for place, name in enumerate(settings):
    for shift, arm in ((-0.2, "k-means++"), (0.2, "GSKM")):
        part = lowest if place == 0 else kind_table[kind_table.kinds == name[:-1]]
        number = list(SHORT).index(arm)
        interval = bars(
            left,
            place + shift,
            part[part.method == arm],
            plotting.PALETTE[number],
            arm if place == 0 else None,
        )
        note_range(
            f"added_{name.split()[-1] if place else 'both'}_{SHORT[arm]}", interval, 3
        )
left.set_xticks(range(3), settings)
left.set(xlabel="what is coded", ylabel="loss added (nats per token)")
left.legend()
for place, name in enumerate(codebooks.WEIGHTS):
    part = weight_table[weight_table.weights == name]
    interval = bars(right, place, part, plotting.PALETTE[2])
    note_range(f"added_{name}", interval, 3)
right.set_xticks(range(3), codebooks.WEIGHTS)
right.set_xlabel("weights of the training vectors")
for ax in (left, right):
    ax.grid(axis="x", visible=False)
plt.show()

# %%
note("lowest_rate", tested[tested.stages == min(stages)].rate.iloc[0])
note("codebook_seeds", codebook_seeds)
norms = {
    place: activations.gradient_norms(gradient, dimension)
    for place, gradient in held.gradients.items()
    if place[0] in layers
}
heavy = {
    f"layer {layer}, {kind}s": {
        "raw: largest / median": norm.max() / np.median(norm),
        "log: largest / median": (w := weights.log_weights(norm, tau)).max()
        / np.median(w),
    }
    for (layer, kind), norm in norms.items()
}
note("raw_heaviest", max(row["raw: largest / median"] for row in heavy.values()))
note("log_heaviest", max(row["log: largest / median"] for row in heavy.values()))
pd.DataFrame(heavy).T.round(1)

# %% [markdown]
# At {glue:text}`12_gsrq_lowest_rate:g` bits coding values alone adds {glue:text}`12_gsrq_added_values_kmeans:.3f`
# {glue:text}`12_gsrq_added_values_kmeans_range` nats with k-means chains and {glue:text}`12_gsrq_added_values_gskm:.3f`
# {glue:text}`12_gsrq_added_values_gskm_range` with GSKM; keys alone {glue:text}`12_gsrq_added_keys_kmeans:.3f`
# {glue:text}`12_gsrq_added_keys_kmeans_range` and {glue:text}`12_gsrq_added_keys_gskm:.3f`
# {glue:text}`12_gsrq_added_keys_gskm_range`. What GSKM gains with values less what it gains with keys is
# {glue:text}`12_gsrq_c8:.4f` {glue:text}`12_gsrq_c8_range` (C8; the paper's tables give {glue:text}`12_gsrq_c8_paper:.3f`).
#
# Gradient norms reach {glue:text}`12_gsrq_raw_heaviest:,.0f` times their median, log weights
# {glue:text}`12_gsrq_log_heaviest:.1f` times. With log weights the loss changes by {glue:text}`12_gsrq_c6:.4f` {glue:text}`12_gsrq_c6_range`
# nats against none (C6; in the paper by {glue:text}`12_gsrq_c6_paper:.4f`), with raw weights by {glue:text}`12_gsrq_c6b:.4f`
# {glue:text}`12_gsrq_c6b_range` (C6b; in the paper by {glue:text}`12_gsrq_c6b_paper:.4f`). These two intervals resample codebook seeds as well as
# blocks of text; few seeds make such an interval a rough one.
#
# ### Another text
#
# Codebooks are made from some text and used on any. On Llama-3-8B the paper's baselines lose several times more on C4 than on
# WikiText-2, from which their codebooks probably came; which text its own codebooks came from is not said for each table. So here
# are codebooks from two texts, {glue:text}`12_gsrq_text` and {glue:text}`12_gsrq_other_text`, each tested on both.

# %%
with watched("other text") as say:
    other_states = activations.collect(lm, other_text.calibration, layers, progress=say)
    fitted = {
        text.name: made[codebooks.Made("GSKM")],
        other_text.name: codebooks.fit_residual(
            other_states, rate_config, stages=min(stages)
        ),
    }
    on_both = {
        text.name: evaluators["test"],
        other_text.name: language.Evaluator(lm, other_text.test, min(layers)),
    }
    transfer_table = rates.transfer(fitted, on_both, rate_config, progress=say)
whole = transfer_table[transfer_table.method == "full precision"]
whole = whole.set_index(["text", "block"]).loss.sort_index()
coded = transfer_table[transfer_table.method != "full precision"]
coded = coded.set_index(["text", "fitted_on", "block"]).loss.sort_index()
transfer_rows = {}
for name, foreign in ((text.name, other_text.name), (other_text.name, text.name)):
    own = (coded[name, name] - whole[name]).to_numpy()
    away = (coded[name, foreign] - whole[name]).to_numpy()
    price = interval_of(away - own)
    short = "text" if name == text.name else "other"
    note(f"transfer_{short}_own", own.mean())
    note(f"transfer_{short}_away", away.mean())
    note_range(f"transfer_{short}", price, 3)
    transfer_rows[f"tested on {name}"] = {
        f"codebooks from {name}": show(interval_of(own)),
        f"codebooks from {foreign}": show(interval_of(away)),
        "the other less its own": show(price),
    }
pd.DataFrame(transfer_rows).T

# %% [markdown]
# At {glue:text}`12_gsrq_lowest_rate:g` bits GSKM adds {glue:text}`12_gsrq_transfer_text_own:.3f` nats on its own text and
# {glue:text}`12_gsrq_transfer_text_away:.3f` with codebooks from the other, {glue:text}`12_gsrq_transfer_text:.3f`
# {glue:text}`12_gsrq_transfer_text_range` more; on the other text {glue:text}`12_gsrq_transfer_other_own:.3f` and
# {glue:text}`12_gsrq_transfer_other_away:.3f`, {glue:text}`12_gsrq_transfer_other:.3f`
# {glue:text}`12_gsrq_transfer_other_range` more. Before you use codebooks, look at this number for your own text, and hold it against what
# separates the chains above: at the same rate GSKM less the chain of k-means is {glue:text}`12_gsrq_kmeans_lowest:.4f`.

# %% [markdown]
# ## Claims
#
# Codes of few codewords on few layers stand in for the paper's here. C1, C2, C2b, C3 and our control C9 were measured on keys and values as vectors, C5, C6, C6b and C8 on the model's loss with
# {glue:text}`12_gsrq_coded_layers:.0f` of its layers coded. None is at the paper's own setting at this size, so "holds in direction" is the best that any can be. C9 is ours:
# it decides how C2 and C3 are read, not their verdicts.

# %%
ledger.skip(
    "C4",
    reason="LongBench asks for an instruct model of 8 billion parameters and contexts of many thousand tokens",
    needs="the model on a GPU, the benchmark, and VQLLM's codebooks",
)
llama_075 = accounts["GSRQ 0.75 bits"]
read_64k = int(llama_075.cache_bytes(65536)) / 2**20
half_64k = int(half.cache_bytes(65536)) / 2**20
ledger.skip(
    "C7",
    reason=(
        "time is that of fused kernels on a GPU; counted here: at 64K tokens a step of Llama-3-8B reads "
        f"{read_64k:,.0f} MiB of codes at 0.75 bits and up to {llama_075.codebook_bytes / 2**20:,.0f} MiB of codebooks, "
        f"against {half_64k:,.0f} MiB in FP16"
    ),
    needs="an A100, and kernels that unpack, look up, rotate and attend in one pass",
)
summary = ledger.close()
own = ledger.verdict("C9")
counted = dict(ledger.counts())
counted[own] -= 1
scaled = {"contradicted": "contradicted at this scale"}
counts = ", ".join(
    f"{number} {scaled.get(verdict, verdict)}"
    for verdict, number in counted.items()
    if number
)
note(
    "verdicts",
    f"Of the paper's {len(summary.rows()) - 1} claims: {counts}. Our control C9: {own}.",
)
for row in summary.rows():
    note(f"verdict_{row['id'].lower()}", row["label"])
summary

# %% mystnb={"image": {"alt": "Forest plot of the judged claims, a row each: the interval of the measured quantity relative to the claim's null, with the paper's number at one where there is one."}, "figure": {"caption": "Judged claims: each interval relative to its null; the claimed side is on the right. Where the paper has a number it is at 1 (filled marks), with the rule's tolerance as a grey bar; elsewhere 1 is the far end of our own interval (hollow marks).", "name": "12_gsrq-fig-verdicts"}} tags=["hide-input"]
plotting.verdict_plot(ledger)
plt.show()

# %% [markdown]
# ## What did not hold, and why
#
# **What we changed after a first run.** One complete run came before this one. It showed faults in how intervals were made, and we
# changed: (1) what is resampled on keys and values: it was a layer, kind and position (for C1 also the seed), eight overlapping
# units of two layers, in a percentile bootstrap; now everything is averaged within a layer, and intervals are Student's over
# layers, of which four were added; each has one start instead of two. (2) C1 compares all sub-vectors of the smallest $D$ inside
# one of the largest; it was the first two. (3) C6 and C6b: codebook seeds are resampled beside blocks; before, blocks alone.
# (4) The repetition of the weights on other tokens was added, and C2b now says in words what its rule has always been. (5) For
# time, what decides no claim was cut: the second setting of the random chains ($D=128$, $K=256$, four stages, three seeds),
# three of seven sizes $D$ of keys and values, the control chain at all rates but the lowest, a test window of the
# second text, and a middle number of vectors per codeword below. What C5 and C8 test was not touched, but the nearest codeword is now
# found after a common offset is taken away, which is more exact, and k-means++ is seeded by code of our own in single precision (tested
# against a plain loop and scikit-learn), so single codes differ. The table is the record of that first run,
# and its last column is this one:

# %%
# The record of the first complete run: values, intervals and verdicts as they were.
FIRST_RUN = {
    "C1": ("0.237 [0.215, 0.260]", "holds in direction"),
    "C2": ("0.0070 [0.0036, 0.0109]", "holds in direction"),
    "C2b": ("0.9989 [0.9970, 1.0010]", "holds in direction"),
    "C3": ("-0.0044 [-0.0066, -0.0027]", "holds in direction"),
    "C5": ("0.0041 [-0.0079, 0.0175]", "inconclusive"),
    "C6": ("-0.0064 [-0.0150, 0.0010]", "inconclusive"),
    "C6b": ("-0.0100 [-0.0185, -0.0015]", "contradicted at this scale"),
    "C8": ("0.0022 [-0.0186, 0.0204]", "inconclusive"),
    "C9": ("0.0006 [0.0002, 0.0011]", "holds in direction"),
}
# GSKM less the control on low-rank vectors, fresh ones, at the setting that was cut.
CUT_SETTING = {
    "error": "-0.0048 [-0.0158, 0.0061]",
    "cosine": "0.021 [-0.003, 0.045]",
}
note("cut_error", CUT_SETTING["error"])
note("cut_cosine", CUT_SETTING["cosine"])
now = {row["id"]: row["label"] for row in summary.rows()}
record = pd.DataFrame(FIRST_RUN, index=["first run", "its verdict"]).T
record["verdict now"] = [now[claim] for claim in record.index]
note("changed", int((record["its verdict"] != record["verdict now"]).sum()))
record

# %% [markdown]
# {glue:text}`12_gsrq_changed:.0f` verdicts differ between the two. The setting that was cut could not tell GSKM from its control on the
# vectors made for it: {glue:text}`12_gsrq_cut_error` in held-out error, {glue:text}`12_gsrq_cut_cosine` in cosine.
#
# **The update, and what it is good for (C9, C2b, C3).** Two questions remain about the unit rule. What does it give up? Let
# k-means go on from the codebook that it ends in: a *polish*, which can only lower the training error. And when does it help?
# The paper's random vectors are few per codeword where GSKM looks best (its keys and values are not: there are some hundred per
# codeword and more). To see what crowding does on real vectors we also fit to fewer tokens, with the same ones held out.

# %%
with watched("follow-up") as say:
    polish = followups.polished(held.states, tensor_config, progress=say)
    crowded = followups.crowding(held.states, tensor_config, fewer, progress=say)
crowded = pd.concat([crowded, tensor_table.assign(tokens=tensor_tokens)])
crowded = tensors.claimed_rows(crowded, tensor_config)
note("moved", 100 * polish[polish.arm != "GSKM"].moved.mean())
polish_rows = {}
for column in ("train_nmse", "test_nmse", "train_cosine", "test_cosine"):
    change = interval_of(less(polish, column, "GSKM, then k-means", "GSKM", unit=unit))
    note_range(f"polish_{column}", change, 4)
    polish_rows[column] = {"k-means after GSKM, less GSKM": show(change)}
crowd = {}
for count, part in crowded.groupby("tokens"):
    at = "most" if count == tensor_tokens else "least"
    note(f"per_codeword_{at}", count / tensor_codewords)
    for other in ("k-means++", "k-means, spherical start"):
        row = {}
        for column in ("test_nmse", "test_cosine"):
            change = interval_of(less(part, column, "GSKM", other, unit=unit))
            note_range(f"few_{at}_{SHORT[other]}_{column}", change, 4)
            row[column] = show(change)
        crowd[count / tensor_codewords, other] = row
crowd = pd.DataFrame(crowd).T
crowd.index.names = ["training vectors per codeword", "GSKM less"]
display(pd.DataFrame(polish_rows).T)
crowd

# %% [markdown]
# The polish gives {glue:text}`12_gsrq_moved:.0f` % of the training vectors another codeword. It changes the held-out error by
# {glue:text}`12_gsrq_polish_test_nmse:.4f` {glue:text}`12_gsrq_polish_test_nmse_range` (what is below zero had been given up by the update),
# and the held-out cosine by {glue:text}`12_gsrq_polish_test_cosine:.4f` {glue:text}`12_gsrq_polish_test_cosine_range`.
#
# Crowding is another matter. With {glue:text}`12_gsrq_per_codeword_most:.0f` vectors per codeword GSKM's held-out cosine is
# {glue:text}`12_gsrq_few_most_kmeans_test_cosine:.4f` above that of k-means from k-means++, with
# {glue:text}`12_gsrq_per_codeword_least:.0f` it is {glue:text}`12_gsrq_few_least_kmeans_test_cosine:.4f`
# {glue:text}`12_gsrq_few_least_kmeans_test_cosine_range` above it. Over the control, which starts on the sphere too, the two are
# {glue:text}`12_gsrq_few_most_control_test_cosine:.4f` and {glue:text}`12_gsrq_few_least_control_test_cosine:.4f`
# {glue:text}`12_gsrq_few_least_control_test_cosine_range`. So you can read off how much of a margin that grows with crowding is the
# start's. (k-means++ picks single vectors as codewords. Where vectors are few they keep a cluster to themselves: in the last stages
# of the random chains above up to {glue:text}`12_gsrq_chain_smallest:.0f` of {glue:text}`12_gsrq_chain_codewords:.0f` clusters had a single
# member or none.)
#
# This is no account of the paper's figure 5, which has many vectors per codeword. Why its margin is larger than ours is open: it has
# more codewords, keys after the rotation, the sum rule, and measures on training vectors.
#
# **Weights (C6, C6b).** The paper finds that raw gradients do harm and logarithms help. Are {glue:text}`12_gsrq_blocks:.0f` blocks of
# test tokens a lucky draw? The same codebooks on the validation windows, which had no part in making or choosing them, say:

# %%
with watched("weights again") as say:
    again = rates.compare_weights(
        made, evaluators["validation"], rate_config, progress=say
    )
again_rows = {}
splits = {
    "test": [weight_table],
    "validation": [again],
    "both": [weight_table, again],
}
for where, tables in splits.items():
    for name in ("log", "raw"):
        changes = weighting(tables, name)
        interval = crossed(changes)
        note_range(f"weights_{where}_{name}", interval, 4)
        again_rows[where, f"{name} less none"] = {
            "mean of seeds": show(interval),
            "each seed": ", ".join(f"{value:.4f}" for value in changes.mean(axis=1)),
            "Student's over seeds alone": show(stats.t_interval(changes.mean(axis=1))),
        }
        if where == "both":
            note(f"weights_{name}_lower", int((changes.mean(axis=1) < 0).sum()))
note("harm", "is seen" if loss_found["C6b"].low > 0 else "is not seen")
pd.DataFrame(again_rows).T

# %% [markdown]
# The first intervals resample seeds and blocks, the last are over seeds alone. On the validation windows the loss changes by
# {glue:text}`12_gsrq_weights_validation_log:.4f` {glue:text}`12_gsrq_weights_validation_log_range` with log weights and by
# {glue:text}`12_gsrq_weights_validation_raw:.4f` {glue:text}`12_gsrq_weights_validation_raw_range` with raw ones, on both parts together by
# {glue:text}`12_gsrq_weights_both_log:.4f` {glue:text}`12_gsrq_weights_both_log_range` and {glue:text}`12_gsrq_weights_both_raw:.4f`
# {glue:text}`12_gsrq_weights_both_raw_range`. With {glue:text}`12_gsrq_weights_log_lower:.0f` of {glue:text}`12_gsrq_codebook_seeds:.0f` seeds the loss
# over both parts is lower with log weights than without, with {glue:text}`12_gsrq_weights_raw_lower:.0f` it is lower with raw ones. The
# verdicts stay those of the test windows. That raw weights do harm {glue:text}`12_gsrq_harm` there.
#
# Why the paper sees harm is open. It codes all layers, with more codewords and some thirty times as many vectors for each; a wholly
# coded model would tell.
#
# **Rates, keys and values (C5, C8).** {glue:text}`12_gsrq_test_tokens:,.0f` tokens and one start can tell only large differences, and partly
# because few layers are coded, the model hardly loses anything. The paper's gap between values and keys
# ({glue:text}`12_gsrq_c8_paper:.3f` nats) stands against {glue:text}`12_gsrq_added_values_kmeans:.3f` nats that coding values costs here in
# all, so C8 can show its direction at this scale and not its size.
#
# ## Turn the knobs
#
# - `dimension=24` and `stages=[8,4,3]` halve the sub-vectors at equal rates. Which chain gains more? (C6, C6b and C8 are then judged at
#   0.75 bits, not at the 0.375 of their statements.)
# - `calibration_windows=24` with `codebook_tokens=12288` triples the tokens per codeword. What happens to the losses?
# - `tau=0.001` makes log weights nearly raw ones. Look at C6 and C6b. (Choose on the validation windows, not on the test.)
# - `layers=[15,16,25]` codes one layer more. Do losses add up?
# - `calibration_text=gsm8k` and `other_text_name=python` swap the two texts.
#
# **Exercises.** (1) At $K=1$, when do the unit rule and the mean differ? Try vectors of one direction, and vectors of one length. (2) Prove that one step of k-means from a converged codebook of the unit rule never raises the training error. For
# which clusters does it leave the codeword alone? (3) A zero codeword in every stage guarantees that no stage raises the error of
# any vector, and leaves one codeword fewer. Write such a chain, a dozen lines with `fit_codebook`, and measure what that does to the
# held-out error of Gaussian vectors.
#
# ## Use it in your own code
#
# A fitted chain goes into a cache for `transformers`. It keeps packed codes and nothing else, for all tokens of the
# layers that have codebooks; other layers stay as they are. Batches, left padding and decoding token by token work.
# Here: the codebooks fitted above, at {glue:text}`12_gsrq_few_stages:.0f` stages.

# %%
from icml26.gsrq import CodedCache

quantizers = made[codebooks.Made("GSKM")]
few = min(8, max(stages))
note("few_stages", few)
cache = CodedCache(lm.config, quantizers, stages=few)
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token
prompts = tokenizer(
    ["The for statement is used to", "A class definition"],
    return_tensors="pt",
    padding=True,
    padding_side="left",
).to(lm.device)
answers = lm.generate(
    **prompts,
    cache=cache,
    do_sample=False,
    max_new_tokens=16,
    pad_token_id=tokenizer.pad_token_id,
)
print(*tokenizer.batch_decode(answers, skip_special_tokens=True), sep="\n---\n")
storage = bits.residual(
    channels,
    dimension=dimension,
    stages=few,
    codewords=codewords,
    layers=len(layers),
)
length = cache.get_seq_length()
counted_bytes = int(storage.cache_bytes(length, sequences=2))
print(
    f"{cache.code_nbytes} bytes of codes for {2 * length} slots, padding included, in {len(layers)} layers;"
)
print(
    f"by bits.residual {counted_bytes}, in FP16 "
    f"{int(bits.full_precision(channels, layers=len(layers)).cache_bytes(length, 2))};"
    f" codebooks {storage.codebook_bytes:,} bytes"
)
held_tokens = np.arange(1, 100_000)
spent = storage.cache_bytes(held_tokens) + storage.codebook_bytes
uncoded = bits.full_precision(channels, layers=len(layers)).cache_bytes(held_tokens)
note("break_even", int(held_tokens[spent < uncoded][0]))

# %% [markdown]
# Look at the last number. The codebooks are shared by all that is cached, but they have to be held: below
# {glue:text}`12_gsrq_break_even:,.0f` cached tokens a coded cache with its codebooks is larger than one in FP16.
#
# The loss above was measured by replacing what leaves the projections. Is that the same as decoding with the cache? Feed a
# text token by token and compare (the flags are what matters; the differences are rounding):

# %% tags=["nbval-check-output"]
tokens = text.test[:1, :24].to(lm.device)
coded_cache = CodedCache(lm.config, quantizers, stages=few)
with torch.no_grad():
    stepwise = [
        lm(tokens[:, at : at + 1], cache=coded_cache).logits
        for at in range(tokens.shape[1])
    ]
    stepwise = torch.cat(stepwise, dim=1)
    with activations.replaced(lm, codebooks.replacements(quantizers, stages=few)):
        at_once = lm(tokens).logits
    untouched = lm(tokens).logits
print("same as replaced:", bool((stepwise - at_once).abs().max() < 1e-2))
print("same as uncoded:", bool((stepwise - untouched).abs().max() < 1e-2))
print("bytes as counted:", coded_cache.code_nbytes == int(storage.cache_bytes(24)))

# %% [markdown]
# Codebooks of your own come from `activations.collect` and `ResidualQuantizer`, and go to a file and back. A
# single codebook is a scikit-learn estimator:

# %%
from icml26.gsrq import GainShapeKMeans, ResidualQuantizer
from icml26.gsrq.file import load, save

values = held.states[tensor_layers[0], "value"]
chain = ResidualQuantizer(dimension, 2, min(16, codewords), iterations=20).fit(values)
codes = chain.encode(values[:5])
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "layer.gsrq"
    save(file, chain)
    print(
        "codes from the file agree:",
        bool((load(file).encode(values[:5]) == codes).all()),
    )
one = GainShapeKMeans(8, random_state=seed).fit(values[:500, :dimension])
print(
    "labels:",
    one.predict(values[:5, :dimension]).tolist(),
    "gains:",
    one.gains_.round(1),
)

# %% [markdown]
# What is decoded is decoded anew at every step: this cache saves memory and not time, which the paper's fused kernels are
# for. Keys are rotated back before they are coded, by the position ids that the model hands its cache, so left padding is
# no trouble.
#
# ## At the paper's scale
#
# The profile `paper` codes all 32 layers of Llama-3-8B with $D=128$ and $K=256$, calibrated on WikiText-2, by parameters
# alone. The differences that remain: the text is cut by position, so that calibration and test come from one file; the
# lowest rate has six stages of $D=128$ where the paper has twelve of $D=256$; weights are those of 16 windows. A
# (layer, keys or values, position, stage) is one fit: 16,384 of them for a chain at two bits, each of some hundred passes over 196,608 vectors,
# and three chains, with CQ, three seeds and three weightings on top. They run on CPU cores here; plan a day on a machine with many, or
# some GPU hours with fits written for it. The model needs 16 GB. We have not run it. C4 needs an instruct model,
# LongBench, and VQLLM {cite}`vqllm2024` beside; C7 needs kernels.
#
# ## References
#
# ```{bibliography}
# :filter: docname in docnames
# ```
