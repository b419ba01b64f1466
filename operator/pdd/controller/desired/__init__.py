"""Pure builders of the desired objects: values in, plain dicts out, one file per kind of object."""
