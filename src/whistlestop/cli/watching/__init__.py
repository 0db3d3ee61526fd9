"""`whistle watch` as a full page in the terminal. Needs Textual, so nothing but that command imports it."""
