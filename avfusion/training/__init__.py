"""From a configuration to a trained, scored and reported run."""
