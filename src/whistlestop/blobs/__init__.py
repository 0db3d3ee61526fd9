"""Checkpoint bytes: commit, verify, retention."""
