"""Which sound each attention head listened to: maps taken from a model, figures that describe them, pictures."""
