"""The text is parsed, never imported; its parts share nothing; lengths are the model's own choice of an end token."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from icml26 import checkpoints, generation, training
from icml26.errors import InputError
from icml26.tie import docstring_lm as lm
from icml26.tie import docstrings
from icml26.tie.docstrings import Pair

SOURCE = '''
"""The module's docstring is no pair."""
raise RuntimeError("this module must not be imported")

def outer(a, *, b=1) -> int:
    """Summary over
    two lines.

    More of it.
    """
    def inner():
        """Inside."""

class Kind(Base, other.Base):
    """A kind."""
    if True:
        async def method(self, x: "int" = 3):
            "A method: é."

    def bare(self):
        return 1

def twin():
    """Twin."""
'''

SMALL = lm.MODEL | {"hidden_size": 32, "intermediate_size": 32}


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "documented_sample"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "a.py").write_text(SOURCE, encoding="utf-8")
    (folder / "b.py").write_text(
        'def twin():\n    """Twin."""\ndef f(' + "x" * 95 + '):\n    """Long."""\n', encoding="utf-8"
    )
    (folder / "c.py").write_text("print 'another language'\n", encoding="utf-8")
    (folder / "tests" / "d.py").write_text('def test():\n    """Test."""\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "documented_sample"
    sys.modules.pop("documented_sample", None)


@pytest.fixture(scope="module")
def model():
    """Random weights, uneven enough that the end token is drawn now and then."""
    return training.build(SMALL | {"initializer_range": 0.2}, seed=0)


def many(count):
    return [Pair(f"python/{n % 97}.py", f"def f{n}() {docstrings.KINDS[n % 5]}:", f"Return {n}.") for n in range(count)]


EXPECTED = {
    "def outer(a, *, b=1)": (
        'def inner():\n    """Inside."""',
        "Summary over\ntwo lines.",
        "Summary over\ntwo lines.\n\nMore of it.",
    ),
    "def inner()": ("", "Inside.", "Inside."),
    "class Kind(Base, other.Base)": (
        'if True:\n    async def method(self, x: "int" = 3):\n        "A method: é."\n\ndef bare(self):\n    return 1',
        "A kind.",
        "A kind.",
    ),
    "def method(self, x: 'int'=3)": ("", "A method: é.", "A method: é."),
    "def twin()": ("", "Twin.", "Twin."),
}


@pytest.mark.parametrize("kind", docstrings.KINDS)
def test_each_kind_of_prompt_is_answered_by_its_part_of_the_source(package, kind, monkeypatch):
    # One kind stands for all five, so that every definition is asked for it.
    order = [docstrings.KINDS.index(kind)]
    monkeypatch.setattr(docstrings, "_hash", lambda text: order[0])
    found = {pair.prompt: pair.answer for pair in docstrings.pairs([package]) if pair.file.endswith("a.py")}
    expected = {}
    for signature, (code, summary, docstring) in EXPECTED.items():
        answers = ("documented_sample/a.py", code.split("\n")[0], summary, docstring, code)
        if answers[order[0]]:
            expected[f"{signature} {kind}:"] = answers[order[0]]
    assert found == expected


def test_every_kind_is_asked_about_as_often():
    asked = [pair.prompt.split()[-1].rstrip(":") for pair in docstrings.pairs(["email", "json", "asyncio"])]
    shares = [asked.count(kind) / len(asked) for kind in docstrings.KINDS]
    assert min(shares) > 0.1
    assert max(shares) < 0.3


def test_the_text_is_found_without_importing_it(package):
    before = set(sys.modules)
    docstrings.pairs([package])
    assert "documented_sample" not in set(sys.modules) - before


def test_a_package_that_is_not_there_is_refused():
    for package in ("no_such_package", "sys", "a.b"):
        with pytest.raises(InputError, match="not installed as a folder"):
            docstrings.pairs([package])


def test_the_parts_share_no_file_no_prompt_and_no_answer():
    found = many(3000) + [Pair(f"python/{n % 97}.py", "def again() code:", f"Say {n % 5}.") for n in range(500)]
    parts = docstrings.split(found)
    for attribute in ("file", "prompt", "answer"):
        seen = [{getattr(pair, attribute) for pair in part} for part in parts]
        assert all(seen)
        assert not (seen[0] & seen[1])
        assert not ((seen[0] | seen[1]) & seen[2])
    for part in parts[1:]:
        assert len({pair.prompt for pair in part}) == len(part)


def test_the_part_of_a_file_does_not_depend_on_what_else_there_is():
    whole, half = docstrings.split(many(1000)), docstrings.split(many(1000)[::2])
    assert all(set(few) <= set(all_of_them) for few, all_of_them in zip(half, whole, strict=True))


def test_shares_are_of_files():
    files = [Pair(f"scipy/{n}.py", f"def f{n}()", f"Return {n}.") for n in range(20_000)]
    assert [round(len(part) / 20_000, 2) for part in docstrings.split(files)] == [0.85, 0.10, 0.05]


def test_the_digest_tells_any_change_of_text_and_order():
    found = many(10)
    changed = [found[::-1], found[:-1], [*found[:-1], Pair("python/9.py", "def f9()", "Return 9!")]]
    assert len({docstrings.digest(text) for text in [found, *changed]}) == 4
    assert docstrings.digest(found) == docstrings.digest(many(10))


def test_prompts_are_drawn_once_each_and_alike_for_a_seed():
    found = many(50)
    assert docstrings.choose(found, 20, seed=1) == docstrings.choose(found, 20, seed=1)
    assert docstrings.choose(found, 20, seed=1) != docstrings.choose(found, 20, seed=2)
    assert sorted(docstrings.choose(found, 50, seed=1)) == sorted(found)
    with pytest.raises(InputError, match="count=51"):
        docstrings.choose(found, 51, seed=1)


def test_the_stream_is_every_pair_once_between_end_tokens():
    found = many(30)
    tokens = lm.stream(found, seed=0).tolist()
    assert tokens[0] == tokens[-1] == lm.END
    parts = " ".join(map(str, tokens[1:-1])).split(f" {lm.END} ")
    expected = [" ".join(map(str, [*lm.prompt(pair.prompt)[1:].tolist(), *pair.answer.encode()])) for pair in found]
    assert parts != expected
    assert sorted(parts) == sorted(expected)


def test_a_generation_starts_as_the_stream_goes_on():
    pair = Pair("a.py", "def é() summary:", "Return.")
    tokens = lm.stream([pair], seed=0)
    start = lm.prompt(pair.prompt)
    assert torch.equal(tokens[: len(start)], start)
    assert lm.text(tokens[len(start) :]) == "Return."
    assert lm.text(torch.tensor([0xC3, lm.END])) == "\ufffd"


def test_the_window_holds_every_prompt_and_generation():
    kinds = (lm.prompt("x" * (docstrings.LONGEST_PROMPT - len(kind) - 2) + f" {kind}:") for kind in docstrings.KINDS)
    longest = max(map(len, kinds)) + lm.CAP
    assert longest <= lm.TRAINING.window <= lm.MODEL["max_position_embeddings"]


def test_training_repeats_itself_and_learns_when_to_end(monkeypatch):
    monkeypatch.setattr(lm, "MODEL", SMALL)
    config = training.TrainingConfig(steps=60, batch_size=4, window=24, learning_rate=0.01, warmup=5)
    found = [Pair("a.py", "def f() code:", "ab."), Pair("a.py", "def g() code:", "ab.")]
    first, again = (lm.train(found, config, seed=0) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    drawn = lm.sample_lengths(first, ["def f() code:", "def g() code:"], 20, seed=0, cap=12)
    assert (drawn.lengths == 4).mean() > 0.8  # three bytes and the end token


def test_the_recipe_tells_text_training_and_seed_apart():
    other = replace(lm.TRAINING, steps=3)
    recipes = [lm.recipe("a"), lm.recipe("b"), lm.recipe("a", other), lm.recipe("a", seed=1)]
    assert len({checkpoints.digest(found) for found in recipes}) == 4


def test_lengths_are_those_of_the_continuations_whatever_the_grouping(model, monkeypatch):
    signatures = ["def f(a, b) code:", "class K file:", "def longer_name(self, value=None) line:"]
    monkeypatch.setattr(lm, "_ROWS", 1)
    alone = lm.sample_lengths(model, signatures, 8, seed=3, cap=30)
    generator = torch.Generator().manual_seed(3)
    for index in (1, 0, 2):  # shortest first
        drawn = generation.sample(
            model, [lm.prompt(signatures[index])], samples=8, max_new_tokens=30, end=lm.END, generator=generator
        )
        assert np.array_equal(alone.lengths[index], drawn.lengths[0].numpy())
        assert np.array_equal(alone.capped[index], ~drawn.ended[0].numpy())
    monkeypatch.setattr(lm, "_ROWS", 100)
    together = lm.sample_lengths(model, signatures, 8, seed=3, cap=30)
    # All uniform numbers come from one generator in the order of the rows, so that grouping changes nothing.
    assert np.array_equal(together.lengths, alone.lengths)


def test_capped_generations_have_the_caps_length(model):
    drawn = lm.sample_lengths(model, ["def f() code:"], 30, seed=0, cap=3)
    assert drawn.capped.any()
    assert (drawn.lengths[drawn.capped] == 3).all()
    assert (drawn.lengths >= 1).all()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda m: lm.sample_lengths(m, [], 2, seed=0), "texts is empty"),
        (lambda m: lm.sample_lengths(m, ["def f() code:"], True, seed=0), "samples=True"),
        (lambda m: lm.sample_lengths(m, ["def f() code:"], 2, seed=0, cap=0), "max_new_tokens=0"),
        (lambda m: lm.sample_lengths(m, ["def f() code:"], 2, seed=-1), "seed=-1"),
        (lambda m: lm.prompt("def f()"), "must end in a kind"),
        (lambda m: lm.prompt(None), "prompt None must be a string"),
        (lambda m: lm.prompt("\ud800 code:"), r"prompt '\\ud800' holds half a character"),
        (lambda m: lm.stream([Pair("a.py", "a code:", "\ud800")], seed=0), "answer .* holds half a character"),
        (lambda m: lm.stream([], seed=0), "pairs is empty"),
    ],
)
def test_bad_input_is_refused_in_one_line(model, call, told):
    with pytest.raises(InputError, match=told):
        call(model)
