"""Small random models built in memory: stand-ins that make a chapter's code run in seconds, with nothing to download.

Their weights are seeded random numbers and their tokenizer knows bytes only, so nothing that they say means anything;
they have the classes, shapes and interfaces of the real ones. Their names are in the registry of `icml26.models`.
"""

from typing import Any

__all__ = ["byte_tokenizer", "random_bert", "random_llama"]

SPECIALS = ("<pad>", "<bos>", "<eos>")
VOCABULARY = 256 + len(SPECIALS)
POSITIONS = 1024


def byte_tokenizer() -> Any:
    """Return a tokenizer whose tokens are the 256 bytes and ``<pad>``, ``<bos>``, ``<eos>`` (ids 0, 1, 2).

    Returns
    -------
    transformers.PreTrainedTokenizerFast
        Any text survives encoding and decoding; special tokens are added only on request.

    Examples
    --------
    >>> tokenizer = byte_tokenizer()
    >>> ids = tokenizer("Hé")["input_ids"]
    >>> len(ids), tokenizer.decode(ids)
    (3, 'Hé')
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    characters = sorted(pre_tokenizers.ByteLevel.alphabet())  # one printable character stands for each byte
    vocabulary = {token: index for index, token in enumerate([*SPECIALS, *characters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def random_llama(seed: int = 0) -> Any:
    """Return a random Llama of 2 layers, width 128, 4 query and 2 KV heads.

    Parameters
    ----------
    seed : int
        Seed of the weights; the global random state is left as it was.

    Returns
    -------
    transformers.LlamaForCausalLM
        fp32, in evaluation mode.

    Examples
    --------
    >>> random_llama().num_parameters()
    427008
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return _seeded(LlamaForCausalLM, config, seed)


def random_bert(seed: int = 0) -> Any:
    """Return a random BERT of 2 layers, width 128, 4 heads.

    Parameters
    ----------
    seed : int
        Seed of the weights; the global random state is left as it was.

    Returns
    -------
    transformers.BertModel
        fp32, in evaluation mode.

    Examples
    --------
    >>> random_bert().config.hidden_size
    128
    """
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=POSITIONS,
        pad_token_id=0,
    )
    return _seeded(BertModel, config, seed)


def _seeded(model_class: Any, config: Any, seed: int) -> Any:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class(config).float().eval()
