"""The command line: one module per command or small family, thin over the client.

Modules import only what their options need; HTTP, shapes and tables are loaded when a command really runs.
"""
