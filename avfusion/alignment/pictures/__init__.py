"""Pictures of alignments: clips, heads, controls, history."""
