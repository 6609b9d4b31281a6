"""Configs shipped with the package; `spreadout presets` lists them."""
