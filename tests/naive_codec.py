"""The two codecs as their definitions read, slow and without any of the library's short cuts, to test against.

Everything is float64 NumPy over all seeds; only single register steps come from the library.
"""

import math

import numpy as np

from icml26.s_quant.register import states_reference

TIE = 1e-10


def basis(register, seed, rows, columns, layout, first):
    """z - h as a list of rows, filled state by state."""
    skipped = 0 if first == "seed" else 1
    z = states_reference(register, int(seed), rows * columns + skipped)[skipped:]
    index = (lambda r, c: c * rows + r) if layout == "columns" else (lambda r, c: r * columns + c)
    return [[z[index(r, c)] - register.half for c in range(columns)] for r in range(rows)]


def all_bases(bases, k):
    """Every seed's matrix z - h."""
    seeds = range(1, bases.register.period + 1)
    return np.array([basis(bases.register, s, bases.block_size, k, bases.layout, bases.first) for s in seeds], float)


def energies(blocks, matrices):
    """R of each block (row) for each matrix, by the pseudo-inverse."""
    fit = matrices @ np.linalg.pinv(matrices, rcond=1e-10)
    return np.stack([1 - ((t - fit @ t) ** 2).sum(1) / (t @ t) for t in blocks])


def best(energy):
    """The lowest seed among those within a tie of the best, and the best energy."""
    top = energy.max(1, keepdims=True)
    return (energy >= top - TIE).argmax(1) + 1, top[:, 0]


def decode_s_quant(encoded):
    """num * scale / (h - 1), num an integer, one division and one cast; block after block."""
    config, register = encoded.config, encoded.config.bases.register
    weights, place = [], 0
    for i, (seed, k) in enumerate(zip(encoded.seeds.tolist(), encoded.counts.tolist(), strict=True)):
        rows = basis(register, seed, config.block_size, k, config.layout, "seed")
        codes = encoded.coefficients[place : place + k].tolist()
        place += k
        scale = float(encoded.scales[i // config.group_size])
        for row in rows:
            num = sum(u * q for u, q in zip(row, codes, strict=True))
            weights.append(np.float32(num * scale / (register.half - 1)))
    assert place == len(encoded.coefficients)
    return np.array(weights[: encoded.size], dtype=np.float32).reshape(encoded.shape)


def decode_seedlm(encoded):
    """num * 2^e / (h - 1) from the packed words."""
    config, register = encoded.config, encoded.config.bases.register
    weights = []
    for word in encoded.words.tolist():
        seed = word & register.period
        e, *codes = (((word >> config.register_bits + 4 * i & 15) ^ 8) - 8 for i in range(config.rank + 1))
        for row in basis(register, seed, config.block_size, config.rank, "row-major", "successor"):
            num = sum(u * q for u, q in zip(row, codes, strict=True))
            weights.append(np.float32(num * 2.0 ** (e + encoded.shift) / (register.half - 1)))
    return np.array(weights[: encoded.size], dtype=np.float32).reshape(encoded.shape)


def seedlm(block, config, matrices):
    """Seed, exponent, coefficients and squared error of the best of all seeds and, if searched, of all exponents."""
    unit = config.bases.register.half - 1
    fits = np.linalg.pinv(matrices / unit, rcond=1e-10) @ block
    found = (math.inf, 0, 0, ())
    for i, t in enumerate(fits):
        peak = np.abs(t).max()
        if config.exponent_rule == "search":
            exponents = range(-8, 8)
        elif peak == 0:
            exponents = [-8]
        elif config.exponent_rule == "printed":
            exponents = [min(max(math.frexp(peak)[1] - 1, -8), 7)]
        else:
            mantissa, power = math.frexp(peak / 7.5)
            exponents = [min(max(power - (mantissa == 0.5), -8), 7)]
        for e in exponents:
            q = np.clip(np.rint(t / 2.0**e), -8, 7)
            wrong = block - (matrices[i] @ q) * 2.0**e / unit
            error = sum(x * x for x in wrong.tolist())
            found = min(found, (error, i + 1, e, tuple(q.astype(int).tolist())))
    return found
