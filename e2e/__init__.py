"""Two real clusters with a WAN between them, and the tests that need them."""
