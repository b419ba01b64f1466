"""The kind node image: pulled where an image registry can be reached, else built from source."""
