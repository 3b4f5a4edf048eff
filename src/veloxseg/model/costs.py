"""What the presets cost, as count.py counts it; a test compares. Written down, so that reading it needs no torch."""

__all__ = ["COSTS", "WHY_THEY_DIFFER"]

# preset → parameters, MACs, MACs as published, of one patch with the preset's own modalities and classes
COSTS = {
    "b": (1_669_639, 1_751_946_208, 1_790_860_266),
    "s": (1_201_223, 1_382_679_520, 1_418_089_194),
    "l": (2_674_296, 2_467_030_976, 2_456_571_348),
    "b+": (5_278_583, 4_001_482_864, 4_271_065_578),
    "c": (1_470_301, 2_562_919_928, 2_642_399_712),
    "b-hecktor": (1_670_281, 2_091_506_688, 2_125_878_336),
}
WHY_THEY_DIFFER = (
    "MACs are real work (FlopCounterMode / 2). 'As published' repeats the paper's counter, which takes transposed "
    "convolutions stride^3 too dear, adds norms and soft-max, and leaves attention products out. Parameters are all "
    "that inference weights hold; the paper's counter leaves out layer norms and position tables, so it prints fewer."
)
