"""Synthetic talkers with exact truth: who speaks, when, with which phones, and how late the sound is.

What a person says is a ``script`` of ``phones``; ``voice`` makes its sound and ``mouth`` its movement; ``face``,
``camera`` and ``picture`` show it; ``scenes`` puts people together, one recipe a role; ``sound`` mixes; ``truth``
tells.
"""

from avfusion.data.synthetic.dataset import SyntheticDataset
from avfusion.data.synthetic.scenes import HARD_ROLES, ROLES, SCENES_PER_BLOCK
from avfusion.data.synthetic.truth import FaceTruth, SceneTruth, VoiceTruth

__all__ = ["HARD_ROLES", "ROLES", "SCENES_PER_BLOCK", "FaceTruth", "SceneTruth", "SyntheticDataset", "VoiceTruth"]
