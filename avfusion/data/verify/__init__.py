"""Checks a dataset before it is trained on: ``prepared`` and ``talknet`` tell what is wrong, as ``findings``."""
