"""Codebooks fitted, vectors encoded, codes looked up, and a token decoded over a cache of packed codes; one thread.

Fits start from the same codewords and make the same number of passes. Codecs use the same codebooks, greedily (beam 1),
and what they encode and decode is compared before it counts: packed rows are byte for byte those of faiss. The cache's
labels say what share of float16's bytes it takes, alone and with its codebooks.
"""

from types import SimpleNamespace

import faiss
import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from transformers import DynamicCache

from icml26.gsrq import bits
from icml26.gsrq.cache import CodedCache
from icml26.gsrq.clustering import fit_codebook
from icml26.gsrq.coder import Coder
from icml26.models_tiny import random_llama

FITS = "Codebooks: 2,048 vectors of 48 into 64 codewords, 10 passes"
ENCODED = "Vectors of 48 encoded in 16 stages of 64 codewords"
DECODED = "Vectors of 48 looked up in 16 stages of 64 codewords"
VECTORS, DIMENSION, CODEWORDS, PASSES, STAGES = 2048, 48, 64, 10, 16


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    yield
    torch.set_num_threads(threads[0])
    faiss.omp_set_num_threads(threads[1])


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(VECTORS, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def books():
    shrinking = 0.8 ** np.arange(STAGES)[:, None, None]
    drawn = np.random.default_rng(1).normal(size=(STAGES, CODEWORDS, DIMENSION))
    return (drawn * shrinking).astype(np.float32)


def error(vectors, centres):
    return faiss.knn(vectors, np.ascontiguousarray(centres, np.float32), 1)[0].mean()


def lloyd(vectors):
    fitted = KMeans(CODEWORDS, init=vectors[:CODEWORDS], n_init=1, max_iter=PASSES, tol=0).fit(vectors)
    assert fitted.n_iter_ == PASSES
    return fitted.cluster_centers_


def test_scikit_learn(measure, vectors):
    measure(FITS, "`sklearn.cluster.KMeans`", VECTORS * PASSES, "vector", lloyd, vectors, baseline=True)


def test_faiss(measure, vectors):
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": VECTORS}
    kmeans = faiss.Kmeans(DIMENSION, CODEWORDS, niter=PASSES, **limits)

    def run():
        kmeans.train(vectors, init_centroids=vectors[:CODEWORDS])
        return kmeans.centroids

    found = measure(FITS, "`faiss.Kmeans`", VECTORS * PASSES, "vector", run)
    assert error(vectors, found) == pytest.approx(error(vectors, lloyd(vectors)), rel=5e-3)


@pytest.mark.parametrize("rule", ["mean", "unit", "sum"])
def test_fit_codebook(measure, vectors, rule):
    def run():
        return fit_codebook(vectors, CODEWORDS, rule=rule, start=vectors[:CODEWORDS], iterations=PASSES)

    found = measure(FITS, f"`fit_codebook`, rule {rule}", VECTORS * PASSES, "vector", run)
    assert found.iterations == PASSES
    assert error(vectors, found.codewords) == pytest.approx(error(vectors, lloyd(vectors)), rel=2e-2)


@pytest.fixture(scope="module")
def peer(books):
    quantizer = faiss.ResidualQuantizer(DIMENSION, STAGES, 6)
    quantizer.max_beam_size = 1
    faiss.copy_array_to_vector(books.ravel(), quantizer.codebooks)
    quantizer.is_trained = True
    return quantizer


def test_faiss_encodes(measure, peer, vectors):
    label = "`faiss.ResidualQuantizer`, beam 1"
    found = measure(ENCODED, label, VECTORS, "vector", peer.compute_codes, vectors, baseline=True)
    assert found.shape == (VECTORS, STAGES * 6 // 8)


def test_coder_encodes(measure, peer, books, vectors):
    label = "`Coder.encode`, as the cache does"
    found = measure(ENCODED, label, VECTORS, "vector", Coder(books[None]).encode, torch.from_numpy(vectors))
    assert (found.numpy() == peer.compute_codes(vectors)).all(axis=1).mean() > 0.99


def test_faiss_decodes(measure, peer, vectors):
    codes = peer.compute_codes(vectors)
    label = "`faiss.ResidualQuantizer`"
    assert measure(DECODED, label, VECTORS, "vector", peer.decode, codes, baseline=True).shape == vectors.shape


def test_coder_decodes(measure, peer, books, vectors):
    codes = peer.compute_codes(vectors)
    label = "`Coder.decode`, as the cache does"
    found = measure(DECODED, label, VECTORS, "vector", Coder(books[None]).decode, torch.from_numpy(codes))
    np.testing.assert_allclose(found.numpy(), peer.decode(codes), atol=1e-5)


@pytest.fixture(scope="module")
def model():
    return random_llama()  # 2 layers, 2 KV heads of 32


def coded(model, stages):
    rng = np.random.default_rng(0)
    made = {
        (layer, kind): SimpleNamespace(codebooks=0.1 * rng.normal(size=(2, stages, 64, 32)))
        for layer in range(2)
        for kind in ("key", "value")
    }
    return CodedCache(model.config, made)


@pytest.mark.parametrize("context", [64, 512])
@pytest.mark.parametrize("stages", [0, 10, 5, 2])
def test_a_token_over_a_cache(measure, model, context, stages):
    cache = coded(model, stages) if stages else DynamicCache(config=model.config)
    full = bits.full_precision(64, layers=2).cache_bytes(context)
    label = "`DynamicCache`"
    tokens = torch.randint(3, 200, (1, context), generator=torch.Generator().manual_seed(0))

    def step():
        with torch.no_grad():
            logits = model(tokens[:, -1:], cache=cache).logits
        cache.crop(-1)
        return logits

    with torch.no_grad():
        model(tokens, cache=cache)
    if stages:
        storage = bits.residual(64, dimension=32, stages=stages, codewords=64, layers=2)
        assert cache.code_nbytes == storage.cache_bytes(context)
        alone, total = cache.nbytes / full, (cache.nbytes + storage.codebook_bytes) / full
        label = f"`CodedCache`, {storage.bits_per_value:.2g} bits: {alone:.1%} of the bytes, {total:.0%} with codebooks"
    group = f"A token of a small Llama after {context} others; bytes beside float16"
    logits = measure(group, label, 1, "token", step, baseline=not stages)
    assert logits.isfinite().all()
    assert cache.get_seq_length() == context
