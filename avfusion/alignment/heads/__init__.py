"""What each head does over a whole dataset, with intervals over scenes."""
