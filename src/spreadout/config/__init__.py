"""The description of a run: a typed value, read from TOML and written back."""
