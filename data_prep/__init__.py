"""Commands that turn sources into prepared datasets: ``python -m data_prep.NAME --help``."""
