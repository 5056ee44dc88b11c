"""Models of the field, rebuilt from their papers to be trained and judged by the same code as ours."""
