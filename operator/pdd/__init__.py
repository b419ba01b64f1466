"""PDD: one large language model served from two clusters, prefill and relay decode in A, main decode in B."""

__version__ = "0.1.0"
