"""Real servers and fault drills for tests, benchmarks and people who want to see their set-up break and heal."""
