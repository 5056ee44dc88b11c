"""What is measured by changing something: moved sound, heads left out, true times, two voices."""
