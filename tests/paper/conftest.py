"""Stand-ins for what the paper profile needs: models of the same classes, tiny and random, and data sets of two items.

They are collected where the extra `paper` is installed, in the environment of `make test-paper`; elsewhere one line
says that they are skipped.
"""

from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="the paper profile's packages are not installed; run `make test-paper`")

import datasets

from icml26 import evaluation, models_tiny

ARC = [
    {
        "id": "a",
        "question": "What falls?",
        "choices": {"text": ["rain", "a hill"], "label": ["A", "B"]},
        "answerKey": "A",
    },
    {
        "id": "b",
        "question": "What is wet?",
        "choices": {"text": ["sand", "rain"], "label": ["1", "2"]},
        "answerKey": "2",
    },
]
HELLASWAG = [
    {"activity_label": "Walking", "ctx_a": "A man walks.", "ctx_b": "he", "endings": endings, "label": label}
    for endings, label in (
        (["stops.", "sings.", "melts.", "rhymes."], "0"),
        (["flies.", "rests.", "rusts.", "boils."], "1"),
    )
]
WINOGRANDE = [
    {
        "sentence": "The cup fell off the table as _ was tipped.",
        "option1": "the cup",
        "option2": "the table",
        "answer": "2",
    },
    {"sentence": "The dog chased the cat until _ hid.", "option1": "the dog", "option2": "the cat", "answer": "2"},
]
BOOLQ = [
    {"passage": "Rain is water.", "question": "is rain water", "label": 1},
    {"passage": "Sand is dry.", "question": "is sand wet", "label": 0},
]
WIKITEXT = [{"text": f" = Rain and sand {part} = \n" + " It rains on the sand . \n" * 120} for part in (1, 2)]

HUB = {
    ("allenai/ai2_arc", "ARC-Easy"): ARC,
    ("allenai/ai2_arc", "ARC-Challenge"): ARC,
    ("Rowan/hellaswag", "default"): HELLASWAG,
    ("allenai/winogrande", "winogrande_xl"): WINOGRANDE,
    ("aps/super_glue", "boolq"): BOOLQ,
    ("Salesforce/wikitext", "wikitext-2-raw-v1"): WIKITEXT,
}
SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="session", autouse=True)
def hub(tmp_path_factory):
    """Two items of each data set where `datasets` keeps what it has downloaded from the hub; also for subprocesses."""
    cache = tmp_path_factory.mktemp("hub")
    for (repository, configuration), items in HUB.items():
        name = repository.split("/")[1]
        folder = cache / repository.replace("/", "___") / configuration / "0.0.0" / ("0" * 40)
        folder.mkdir(parents=True)
        data = datasets.Dataset.from_list(items)
        for split in SPLITS:
            writer = datasets.arrow_writer.ArrowWriter(
                path=str(folder / f"{name}-{split}.arrow"), features=data.features
            )
            writer.write_table(data.data.table)
            writer.finalize()
        datasets.DatasetInfo(
            features=data.features,
            dataset_name=name,
            config_name=configuration,
            version="0.0.0",
            splits={split: {"name": split, "num_examples": len(items), "dataset_name": name} for split in SPLITS},
        ).write_to_directory(str(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
        patch.setenv("HF_DATASETS_CACHE", str(cache))
        yield cache


@pytest.fixture(scope="session")
def wikitext(tmp_path_factory) -> str:
    """A folder written by `save_to_disk`."""
    folder = tmp_path_factory.mktemp("text") / "wikitext"
    datasets.DatasetDict({"test": datasets.Dataset.from_list(WIKITEXT)}).save_to_disk(str(folder))
    return str(folder)


def merged_tokenizer():
    """A byte-level tokenizer with merges, another vocabulary and a start token, as Llama 3 has one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<start>", "<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([Path(evaluation.__file__).read_text()], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<start> $A", special_tokens=[("<start>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<start>", eos_token="<end>")


@pytest.fixture(scope="session", params=["Llama 2", "Llama 3"])
def language_model(request, tmp_path_factory) -> str:
    """A folder with a model of the paper's class: all heads have keys of their own, or they share them in groups."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    second = request.param == "Llama 2"
    tokenizer = models_tiny.byte_tokenizer() if second else merged_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4 if second else 2,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4 if second else 5e5},
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float16",
    )
    folder = tmp_path_factory.mktemp("model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
