"""The OpenAI-compatible router: a pure core that conducts P, RLD and MD, and an ASGI shell."""
