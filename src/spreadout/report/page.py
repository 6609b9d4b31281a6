"""stub"""
from pathlib import Path
def write_page(arms, output, title): return output
