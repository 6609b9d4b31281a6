"""`python -m spreadout`."""

from spreadout.cli.main import main

main()
