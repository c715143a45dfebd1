"""The table of all proposals."""

from __future__ import annotations

from collections.abc import Mapping

from graph_rewrite.soundness.instances.operator_draft import Proposal
from graph_rewrite.soundness.instances.proposals.attention import ATTENTION_PROPOSALS
from graph_rewrite.soundness.instances.proposals.elementwise import ELEMENTWISE_PROPOSALS
from graph_rewrite.soundness.instances.proposals.layers import LAYERS_PROPOSALS
from graph_rewrite.soundness.instances.proposals.movement import MOVEMENT_PROPOSALS
from graph_rewrite.soundness.instances.proposals.products import PRODUCTS_PROPOSALS
from graph_rewrite.soundness.instances.proposals.slices import SLICES_PROPOSALS

PROPOSALS: Mapping[tuple[str, str], Proposal] = {
    **ELEMENTWISE_PROPOSALS,
    **MOVEMENT_PROPOSALS,
    **SLICES_PROPOSALS,
    **PRODUCTS_PROPOSALS,
    **LAYERS_PROPOSALS,
    **ATTENTION_PROPOSALS,
}
"""By domain and operator; operators that are missing work element by element."""
