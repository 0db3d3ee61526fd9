"""A task that uses what training left."""

import sys

import whistlestop

directory = whistlestop.input(sys.argv[1])
print("uses", sorted(path.name for path in directory.iterdir()), directory, flush=True)
