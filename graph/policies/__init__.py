"""Rules for the gates: presets, the view that a policy sees, and how one is loaded."""

from tritonsmith.graph.policies.default import Default
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.presets import (
    PRESETS,
    BestOfN,
    NoAnalysis,
    NoDetect,
    NoRace,
    NoRepair,
    Notes,
    NoTune,
    RescueAll,
    RescueBest,
    SingleSeed,
    TuneByAuthor,
    TuneByBoth,
    TuneJointly,
    TunePersistent,
)
from tritonsmith.graph.policies.view import Policy, View
from tritonsmith.graph.policies.wider import Beam, ToTheFloor

__all__ = [
    "PRESETS", "Beam", "BestOfN", "Default", "NoAnalysis", "NoDetect", "NoRace", "NoRepair", "NoTune", "Notes", "Policy", "RescueAll",
    "RescueBest", "SingleSeed", "ToTheFloor", "TuneByAuthor", "TuneByBoth", "TuneJointly", "TunePersistent", "View", "load_policy",
]  # fmt: skip
