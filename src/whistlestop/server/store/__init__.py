"""The only SQL. One module per kind of thing; functions take an open connection and do one thing each."""
