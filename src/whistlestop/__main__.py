"""`python -m whistlestop` is `whistle`."""

from whistlestop.cli.main import main

main()
