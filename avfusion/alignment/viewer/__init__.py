"""One page in which a reader plays clips and looks at every head; Python writes the data, scripts draw."""
