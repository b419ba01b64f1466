"""Files that are shipped as text into other containers."""
