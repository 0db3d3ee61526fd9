"""Where runners run. An engine launches, polls and cancels runners; it never carries data."""
