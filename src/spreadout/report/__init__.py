"""What people look at: the terminal and the HTML page."""
