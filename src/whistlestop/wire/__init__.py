"""Versioned shapes: the spec file, the API, the runner's frames and its launch file."""
