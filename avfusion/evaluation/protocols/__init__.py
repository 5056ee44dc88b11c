"""Rules of other benchmarks than AVA, from their own annotation files: Columbia and ASW."""
