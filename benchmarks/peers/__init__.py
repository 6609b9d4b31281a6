"""spreadout beside other libraries, on the same work."""
