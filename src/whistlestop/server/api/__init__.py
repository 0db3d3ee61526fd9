"""HTTP under /api/v1: each module one family of paths, thin over services."""
