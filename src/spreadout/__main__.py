"""`python -m spreadout`."""

from spreadout.cli import main

main()
