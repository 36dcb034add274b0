"""Energy per weight: the published table, the formula on it, and what the formula says."""

from dataclasses import replace
from fractions import Fraction

import pytest

from icml26.errors import InputError
from icml26.s_quant import energy
from icml26.s_quant.asic import Decoder, Design
from icml26.s_quant.config import PAPER_4BIT

FP16, SEEDLM = Design.fp16(), Design.seedlm()
S_QUANT = Design("S-Quant", Fraction("3.75"), Decoder.of(PAPER_4BIT), (0, 0, 0, 0, 0, 3, 1))  # mean k 5.25
COUNTED = replace(S_QUANT, bits=Fraction(4))


def ratio(design, **settings):
    return energy.energy_per_weight(FP16, **settings) / energy.energy_per_weight(design, **settings)


def test_energies_per_weight_in_dram_are_those_of_the_papers_designs():
    found = [energy.energy_per_weight(design) for design in (FP16, SEEDLM, S_QUANT)]
    assert [round(pj) for pj in found] == [326, 84, 80]
    assert [round(ratio(design), 1) for design in (SEEDLM, S_QUANT, COUNTED)] == [3.9, 4.1, 3.8]


def test_cheaper_memory_leaves_less_to_save():
    assert [round(ratio(design, dram=energy.DRAM_HBM), 1) for design in (SEEDLM, S_QUANT)] == [3.6, 3.4]
    assert ratio(S_QUANT, dram=0) < 1, "without memory only the reconstruction is left"


def test_reading_eight_bits_costs_eight_hundred_small_products():
    assert 8 * energy.DRAM_LPDDR / energy.product_energy(8, 8) == pytest.approx(812, abs=1)


def test_products_cost_by_the_product_of_their_widths():
    assert energy.product_energy(8, 8) == energy.TABLE["int8 multiply"].picojoules
    assert [energy.product_energy(16, bits) for bits in (4, 8)] == pytest.approx([0.2, 0.4])
    narrow = replace(S_QUANT, decoder=Decoder.of(replace(PAPER_4BIT, coefficient_bits=4)))
    parts = [energy.breakdown(design)["reconstruction"] for design in (S_QUANT, narrow)]
    assert parts == pytest.approx([5.25 * 0.5, 5.25 * 0.3])


def test_the_parts_add_up_and_only_the_product_grows_with_the_batch():
    for design in (FP16, SEEDLM, S_QUANT):
        one, eight = (energy.breakdown(design, batch=b, sram=energy.SRAM_32KB) for b in (1, 8))
        assert energy.energy_per_weight(design, batch=8, sram=energy.SRAM_32KB) == pytest.approx(sum(eight.values()))
        assert eight == one | {"product": 8 * one["product"]}
        assert one["sram"] == pytest.approx(one["dram"] * 20 / 1300)
    assert energy.breakdown(FP16)["reconstruction"] == 0


def test_every_entry_names_its_source_in_the_bibliography(project):
    keys = {entry.source for entry in energy.TABLE.values()}
    bibliography = (project / "book/references.bib").read_text(encoding="utf-8")
    assert all(f"{{{key}," in bibliography for key in keys)
    assert all(entry.picojoules > 0 for entry in energy.TABLE.values())


@pytest.mark.parametrize("wrong", [{"dram": -1}, {"sram": float("nan")}, {"batch": 0}])
def test_negative_energies_and_empty_batches_are_refused(wrong):
    with pytest.raises(InputError, match="use pJ per bit from 0, and 1 or more vectors"):
        energy.breakdown(FP16, **wrong)
