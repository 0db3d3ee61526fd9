"""Runners on a Ray cluster. The server never imports Ray: engine.py and process.py are its side, driver.py and what it
imports run in a process of their own, agent.py on the nodes."""
