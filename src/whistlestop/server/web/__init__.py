"""The dashboard: a client of /api/v1 in static files, and the sessions of browsers."""
