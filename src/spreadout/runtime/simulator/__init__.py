"""Many clients side by side on one device."""
