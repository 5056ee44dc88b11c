"""How a model bears sound that is moved, replaced or noisy, and pictures that are damaged."""
