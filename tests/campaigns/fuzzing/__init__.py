"""Coverage-guided fuzzing of the Python readers of what strangers write."""
