"""The program's side channel: a directory with a memory-mapped control block and append-only journals."""
