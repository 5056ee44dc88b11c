"""Faces in pictures: found, followed, cropped."""
