"""States, reasons, stop levels, credits, errors and time. Standard library only; no I/O."""
