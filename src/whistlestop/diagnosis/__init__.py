"""What is wrong with a run, how sure that is, and whether it is worth its cost: pure functions over what was recorded.

The server gathers `Evidence`, `judge` finds causes in it, `advise` weighs them. Nothing here asks, waits or acts."""
