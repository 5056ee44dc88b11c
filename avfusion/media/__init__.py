"""Sound and picture files, in and out, on one clock (25 frames and 16 000 samples a second)."""
