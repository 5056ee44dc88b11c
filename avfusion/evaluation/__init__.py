"""Figures of active speaker detection: tables in, numbers out. Nothing here ever sees a model."""
