"""What `spreadout serve` stands: time of a request and requests a second, by classes and clients."""
