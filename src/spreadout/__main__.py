"""`python -m spreadout`."""

from spreadout.cli.main import main

if __name__ == "__main__":
    main()
