"""From what a film was found to hold to the files a user takes away: table, segments, RTTM, overlay, viewer."""

from avfusion.inference.outputs.write import OUTPUTS, write_outputs

__all__ = ["OUTPUTS", "write_outputs"]
