"""What training does to a clip: time, picture, sound, what is mixed in, and whole streams left out."""
